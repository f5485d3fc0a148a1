"""LaTeX to MathML: known equations, all equations of the walls, and never an exception."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.report.formula import mathml
from mlsysim.walls.catalog import RESOLVERS, resolver


def inner(latex: str) -> str:
    found = mathml(latex)
    assert found is not None
    return found.removeprefix('<math display="block">').removesuffix("</math>")


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        ("a+1", "<mi>a</mi><mo>+</mo><mn>1</mn>"),
        (r"x_{\max}", "<msub><mi>x</mi><mi>max</mi></msub>"),
        (r"T_{\mathrm{dp}}^{\mathrm{exp}}", "<msubsup><mi>T</mi><mi>dp</mi><mi>exp</mi></msubsup>"),
        (
            r"\mathrm{H_2O}",
            '<mrow><msub><mi mathvariant="normal">H</mi><mn>2</mn></msub><mi mathvariant="normal">O</mi></mrow>',
        ),
        (r"\sqrt{2\,M}", '<msqrt><mrow><mn>2</mn><mspace width="0.17em"/><mi>M</mi></mrow></msqrt>'),
        (r"e^{-T}", "<msup><mi>e</mi><mrow><mo>−</mo><mi>T</mi></mrow></msup>"),
        (r"\sum_{k<c} k", "<munder><mo>∑</mo><mrow><mi>k</mi><mo>&lt;</mo><mi>c</mi></mrow></munder><mi>k</mi>"),
        (
            r"\left(\frac{a}{b}\right)^{-1}",
            '<msup><mrow><mo stretchy="true">(</mo><mfrac><mi>a</mi><mi>b</mi></mfrac><mo stretchy="true">)</mo></mrow>'
            "<mrow><mo>−</mo><mn>1</mn></mrow></msup>",
        ),
    ],
)
def test_known_equations(latex, expected):
    assert inner(latex) == expected


@pytest.mark.parametrize(
    "latex", [r"\unknown", "{a", "a}", r"\left(a", r"\left x a \right)", "a_b_c", r"\frac{a}", "50%", "", "x^"]
)
def test_what_is_not_read_gives_none(latex):
    assert mathml(latex) is None


def test_deep_nesting_is_refused_and_not_a_crash():
    assert mathml("{" * 5000 + "a" + "}" * 5000) is None


def test_every_equation_of_the_walls_is_set():
    equations = [equation for name in RESOLVERS for equation in resolver(name).equations]
    assert len(equations) > 30
    for equation in equations:
        found = mathml(equation.latex)
        assert found is not None, equation.latex
        ElementTree.fromstring(found)


@given(st.text(alphabet=r"\{}_^abF 12.,()|<&%" + "αfracsqtmhlgipe", max_size=60))
def test_whatever_is_set_is_well_formed(latex):
    found = mathml(latex)
    if found is not None:
        ElementTree.fromstring(found)

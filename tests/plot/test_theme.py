"""Contrast of every colour, by the formula of WCAG 2.2."""

from __future__ import annotations

from itertools import combinations

import pytest

from mlsysim.plot.theme import DARK, LIGHT, RAMP, SERIES, stylesheet


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_formula():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast(theme):
    for k in range(SERIES):
        assert contrast(theme[str(k)], theme["bg"]) >= 3
        assert contrast(theme[str(k)], theme["on"]) >= 4.5
    for name in ("ink", "muted", "bad"):
        assert contrast(theme[name], theme["bg"]) >= 4.5
    assert contrast(theme["axis"], theme["bg"]) >= 3
    for shade in range(RAMP):
        assert contrast(theme[f"q{shade}"], theme["on" if shade >= 4 else "ink"]) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_differ_and_the_ramp_has_one_direction(theme):
    assert all(theme[str(a)] != theme[str(b)] for a, b in combinations(range(SERIES), 2))
    steps = [luminance(theme[f"q{k}"]) for k in range(RAMP)]
    assert steps == sorted(steps, reverse=theme is LIGHT)


def test_an_ancestor_overrides_what_the_reader_prefers():
    css = stylesheet()
    assert css.index("prefers-color-scheme:dark") < css.index("[data-theme=light] .mlp") < css.index("@media print")
    assert set(LIGHT) == set(DARK)

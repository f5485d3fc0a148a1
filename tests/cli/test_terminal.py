"""Paragraphs and columns of a terminal: nothing is lost, nothing is wider than it, and styles stay out of pipes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.cli.terminal import columns, wrapped, write, write_columns

WORDS = st.text(st.sampled_from("ab ×µ漢\n"), max_size=60)


@given(WORDS, st.integers(2, 30))
def test_wrapping_keeps_every_sign_and_the_width(text, size):
    lines = list(wrapped(text, size))
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(columns(line) <= size for line in lines)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=5), st.integers(20, 60))
def test_columns_keep_every_sign_and_the_width(rows, size):
    with pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setenv("COLUMNS", str(size))
        patch.setattr("sys.stdout.write", said.append)
        write_columns([(row, None) for row in rows], right=(1,), ruled=True)
    lines = "".join(said).splitlines()
    assert all(columns(line) <= size for line in lines)
    assert sorted("".join(lines).replace("─", "").replace(" ", "")) == sorted(
        "".join(map("".join, rows)).replace(" ", "").replace("\n", "")
    )


@pytest.mark.parametrize(
    ("set_", "styled"), [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)]
)
def test_styles_stay_out_of_pipes(set_, styled, capsys, monkeypatch):
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in set_.items():
        monkeypatch.setenv(name, value)
    write("It fits.", "bold green")
    assert capsys.readouterr().out == ("\x1b[1;32mIt fits.\x1b[0m\n" if styled else "It fits.\n")


def test_a_table_without_columns_is_nothing(capsys):
    write_columns([([], "bold")], ruled=True)
    assert capsys.readouterr().out == ""


def test_columns_come_nearer_before_a_line_is_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    write_columns([(["twelve signs", "seven 7"], None)])
    assert capsys.readouterr().out == "twelve signs seven 7\n"
    write_columns([(["twelve signs", "sevens 77"], None)])
    assert all(len(line) <= 20 for line in capsys.readouterr().out.splitlines())

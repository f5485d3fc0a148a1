"""Shell scripts are tokenised, never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlsysim.errors import InputError
from mlsysim.launch.shell import is_unresolved, read_script


def test_variables_arrays_and_continuations() -> None:
    script = read_script("""
        A=4
        export B="$((A*2))"
        WORDS=(--x $A # a comment
               "two words")
        WORDS+=(--z)
        run ${WORDS[@]} "${WORDS[@]}" ${C:-5} $D 'kept $A' \\
            --last "$B" > log.txt 2>&1 &
    """)
    assert script.variables == {"A": "4", "B": "8"}
    assert script.arrays == {"WORDS": ["--x", "4", "two words", "--z"]}
    assert script.commands == [
        ["run", "--x", "4", "two", "words", "--z", "--x", "4", "two words", "--z", "5", "$D", "kept $A", "--last", "8"]
    ]
    assert is_unresolved("$D") and not is_unresolved("D")


def test_statements_conditions_and_here_documents() -> None:
    script = read_script(
        "cat > /tmp/a.yml <<'EOF'\nx: 1\nEOF\nif [ -n \"$X\" ]; then\n first a\nelse\n second b\nfi\nA=1 cd x && go; B=$(ls | wc) stop"
    )
    assert script.files == {"a.yml": "x: 1\n"}
    assert [words[0] for words in script.commands][:3] == ["first", "cd", "go"]
    assert len(script.warnings) == 1 and "first branch" in script.warnings[0]


def test_nothing_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = read_script(f"X=$(touch {mark})\n`touch {mark}`\ntouch {mark}\n")
    assert not mark.exists()
    assert is_unresolved(script.variables["X"])


@pytest.mark.parametrize("text", ["a 'b", 'a "b', "A=(1 2", "cat <<EOF\nx", "x" * 1_000_001])
def test_bad_scripts_are_one_sentence(text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_script(text)
    assert str(caught.value).count("\n") == 0 and str(caught.value).endswith(".")


def test_variables_cannot_grow_without_end() -> None:
    lines = ["A=xxxxxxxxxx"] + ["A=$A$A$A$A$A$A$A$A$A$A"] * 12
    with pytest.raises(InputError, match="grow beyond"):
        read_script("\n".join(lines))

"""Shell scripts as far as a launch needs them: commands in words, variables, arrays, here-documents. Nothing is run.

Read: line continuations, comments, quotes, ``NAME=value``, ``export``, ``NAME=( ... )`` and ``NAME+=( ... )``, ``$NAME``, ``${NAME}``,
``${NAME:-default}``, ``${NAME[@]}``, ``$((8*4))`` of whole numbers, ``cat > FILE <<EOF``, ``#SBATCH`` lines. Left as they stand, with a warning
where a value needs them: variables that the script does not set, ``$1``, ``$(command)``. Of ``if`` the first branch is taken, said in
a warning; loops are read once.
"""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass, field

from mlsysim.errors import InputError

LARGEST = 1_000_000
_MOST_WORDS = 50_000

_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_INTO = re.compile(r">{1,2}\s*([^\s<>|&;]+)")
_VARIABLE = re.compile(
    r"\$\(\((?P<sum>[^()]*)\)\)|\$\{(?P<array>[A-Za-z_]\w*)\[[@*]\]\}|\$\{(?P<long>\w+)(?::?-(?P<default>[^{}]*))?\}|\$(?P<short>[A-Za-z_]\w*|\d)"
)
_WHOLE = re.compile(r'"\$\{([A-Za-z_]\w*)\[[@*]\]\}"')
_NOTE = re.compile(r"#\s*(fleet|model|plan|response(?=:\s*\d{1,8}\s*$)):\s*(\S.*?)\s*$")
_REDIRECT = re.compile(r"^(\d?>{1,2}(&\d)?|<|&>)")


@dataclass
class Script:
    """What a script holds."""

    commands: list[list[str]] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    directives: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def is_unresolved(value: object) -> bool:
    """Whether a word holds a variable or a command that only a running shell knows."""
    return isinstance(value, str) and ("$" in value or "`" in value)


def bounded(text: str, name: str = "The launch file") -> str:
    """The text, where it may be a launch file."""
    if not isinstance(text, str):
        raise InputError(f"A launch file is text, not {type(text).__name__}.")
    if len(text) > LARGEST:
        raise InputError(f"{name} is longer than {LARGEST:,} characters, which no launch file is.")
    return text


def read_script(text: str) -> Script:
    """The words of a script."""
    script = Script()
    lines = _without_heredocs(bounded(text).replace("\r\n", "\n").split("\n"), script)
    skipping: list[bool] = []
    for statement in _statements(lines, script):
        _take(statement, script, skipping)
        if sum(map(len, script.commands)) > _MOST_WORDS:
            raise InputError(f"The launch file has more than {_MOST_WORDS:,} words, which no launch file has.")
    return script


def read_notes(text: str) -> dict[str, str]:
    """What the comments at the top of a file that is no script note: ``# fleet: 64xH100``."""
    return read_script("\n".join(line for line in text.splitlines() if line.startswith("#"))).notes


def _without_heredocs(lines: list[str], script: Script) -> list[str]:
    """The lines outside here-documents; those inside are kept by the name of the file that they write."""
    kept: list[str] = []
    rest = iter(lines)
    for line in rest:
        mark = _HEREDOC.search(line) if not line.lstrip().startswith("#") else None
        if mark is None:
            kept.append(line)
            continue
        body = []
        for inner in rest:
            if inner.strip() == mark[2]:
                break
            body.append(inner)
        else:
            raise InputError(f"The here-document that ends with {mark[2][:40]!r} has no end.")
        target = _INTO.search(line)
        if target is not None:
            script.files[target[1].strip("'\"").rsplit("/", 1)[-1]] = "\n".join(body) + "\n"
        else:
            kept.append(line[: mark.start()])
    return kept


def _statements(lines: list[str], script: Script) -> list[str]:
    """Statements, one string each: comments gone, continued lines and open quotes and parentheses joined."""
    found: list[str] = []
    current: list[str] = []
    quote, depth = "", 0

    def end() -> None:
        found.append("".join(current).strip())
        current.clear()

    for line in lines:
        if not quote and line.lstrip().startswith("#"):
            _comment(line.strip(), script)
            continue
        i = 0
        continued = False
        while i < len(line):
            ch, two = line[i], line[i : i + 2]
            i += 1
            if ch == "\\" and not quote and i >= len(line.rstrip()):
                continued = True
                break
            if ch == "\\" and (not quote or (quote == '"' and i < len(line))):
                ch = two
                i += 1
            elif quote:
                quote = "" if ch == quote else quote
            elif ch in "'\"":
                quote = ch
            elif ch == "#" and (i == 1 or line[i - 2].isspace()):
                break
            elif ch in "()":
                depth = depth + 1 if ch == "(" else max(0, depth - 1)
            elif depth == 0 and two != "&>" and (ch == ";" or (ch in "&|" and (i == 1 or line[i - 2] not in ">&|"))):
                end()
                i += two in ("&&", "||", ";;")
                continue
            current.append(ch)
        if quote:
            current.append("\n")
        elif continued or depth:
            current.append(" ")
        else:
            end()
    if quote:
        raise InputError("A quotation in the launch file has no end.")
    if depth:
        raise InputError("A parenthesis in the launch file has no end.")
    end()
    return [statement for statement in found if statement]


def _comment(line: str, script: Script) -> None:
    if line.startswith("#SBATCH"):
        script.directives.append(line.removeprefix("#SBATCH").split(" #")[0].strip())
    note = _NOTE.match(line)
    if note is not None:
        script.notes.setdefault(note[1], note[2])


_CONDITIONS = "The script has conditions, which are not evaluated: what stands in their first branch was read."


def _take(statement: str, script: Script, skipping: list[bool]) -> None:
    """Enter one statement into the script."""
    head = statement.split(None, 1)[0]
    while head in ("then", "do", "{", "time", "exec", "nohup", "!") and head != statement:
        statement = statement[len(head) :].lstrip()
        head = statement.split(None, 1)[0] if statement else ""
    if head in ("if", "case"):
        skipping.append(False)
        script.warnings[:] = dict.fromkeys([*script.warnings, _CONDITIONS])
        return
    if skipping and head in ("elif", "else"):
        skipping[-1] = True
    elif skipping and head in ("fi", "esac"):
        skipping.pop()
    if head in ("elif", "else", "fi", "esac") or any(skipping) or not head:
        return
    if head in ("then", "do", "done", "}", "for", "while", "until", "function"):
        return
    if head in ("export", "declare", "local", "readonly"):
        statement = statement[len(head) :].lstrip()
        while statement.startswith("-"):
            statement = statement.partition(" ")[2].lstrip()
    match = _ASSIGN.match(statement)
    if match is not None and statement[match.end() : match.end() + 1] == "(" and statement.endswith(")"):
        words = _words(_expanded(statement[match.end() + 1 : -1], script))
        script.arrays[match[1]] = [*(script.arrays.get(match[1], []) if match[2] else []), *words]
        return
    if match is not None and statement[match.end() :].lstrip('"').startswith(("$(", "`")):
        value = _expanded(statement[match.end() :].strip('"'), script)
        script.variables[match[1]] = value if " " not in value else f"${match[1]}"
        return
    words = _words(_expanded(statement, script))
    while words and _ASSIGN.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        script.variables[name.rstrip("+")] = value
    kept: list[str] = []
    pending = False
    for word in words:
        if pending:
            pending = False
        elif _REDIRECT.match(word):
            pending = word.rstrip("&0123456789") in (">", ">>", "<", "1>", "2>", "&>") and "&" not in word[1:]
        else:
            kept.append(word)
    if kept:
        script.commands.append(kept)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=False, posix=True)
    except ValueError as error:
        raise InputError(f"The launch file cannot be split into words: {str(error).lower()}.") from None


def _expanded(text: str, script: Script) -> str:
    """The text with the variables that the script sets put in; what stands in single quotes stays."""
    out: list[str] = []
    arrays = script.arrays
    for i, piece in enumerate(re.split(r"('[^']*')", text)):
        if i % 2:
            out.append(piece)
            continue
        # "${ARRAY[@]}" in quotes keeps its words whole; without them each is split again.
        piece = _WHOLE.sub(lambda m: shlex.join(arrays[m[1]]) if m[1] in arrays else m[0], piece)
        out.append(_VARIABLE.sub(lambda m: _value(m, script), piece))
        if sum(map(len, out)) > LARGEST:
            raise InputError(f"The variables of the launch file grow beyond {LARGEST:,} characters.")
    return "".join(out)


def _value(match: re.Match[str], script: Script) -> str:
    if match["sum"] is not None:
        inner = _VARIABLE.sub(lambda m: _value(m, script), match["sum"])
        inner = re.sub(r"[A-Za-z_]\w*", lambda m: script.variables.get(m[0], m[0]), inner)
        factors = [part.strip() for part in inner.split("*")]
        whole = all(part.isdigit() and len(part) < 10 for part in factors)
        return str(math.prod(int(part) for part in factors)) if whole and len(factors) < 9 else match[0]
    if match["array"] is not None:
        items = script.arrays.get(match["array"])
        return match[0] if items is None else " ".join(items)
    name = match["long"] or match["short"]
    if name in script.variables:
        return script.variables[name]
    default = match["default"]
    return match[0] if default is None else default.strip("\"'")

"""The page of all options and keys: what each is called in a file, on the command line and in Python, what it means, and which tasks it matters to.

Each has a heading of its own, so that a search for ``--slo``, ``pause-above`` or ``zero_stage`` leads to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer
import typer.main

from mlsysim.cli.main import app
from mlsysim.plans.plan import Plan
from mlsysim.plans.schema import ALL_TASKS, Leaf

__all__ = ["options_page", "short_options"]

_PARTS = {
    "": "The plan itself",
    "workload": "Workload: what runs",
    "hardware": "Hardware: what it runs on",
    "parallelism": "Parallelism: how the work is split",
    "serving": "Serving: traffic, engine and limits",
    "rl": "Post-training",
    "ops": "Operations: where, how long, for how much",
    "constraints": "Constraints: what the answer must satisfy",
}
_FIRST = "---\nhide:\n  - toc\n---\n\n"


def options_page() -> str:
    """The page as Markdown."""
    lines = [
        "# Options and keys",
        "",
        "Every key of a plan is a line of a [scenario file](../scenarios.md), an option of every command that answers plans, a keyword in Python, a field of a request and a",
        "control of the explorer. This page has all of them, then the options that single commands have besides.",
        "",
        "Any name works wherever the first does; `-` and `_` are the same.",
        "",
    ]
    parts: dict[str, list[Leaf]] = {}
    for leaf in Plan.leaves().values():
        parts.setdefault(leaf.key.partition(".")[0] if "." in leaf.key else "", []).append(leaf)
    for part, leaves in parts.items():
        lines += [f"## {_PARTS.get(part, part.capitalize())}", ""]
        for leaf in leaves:
            lines += _key(leaf, [short for short, name in short_options().items() if name in _flags(leaf)])
    lines += ["## Options of single commands", ""]
    for name, command in _commands():
        lines += [f"### mlsysim {name}", "", _safe(command.get_short_help_str(400)), ""]
        rows = [_option(parameter) for parameter in command.params if parameter.param_type_name == "option"]
        lines += ["| option | meaning |", "|---|---|", *rows, ""] if rows else []
    return _FIRST + "\n".join(lines)


@cache
def short_options() -> dict[str, str]:
    """The option that each letter stands for, such as ``-e`` for ``--efficiency``; where commands differ, what most of them mean."""
    pairs = Counter(  # keys of a plan are parameters of a command in a context
        (short, name)
        for _, command in _commands()
        for parameter in command.get_params(typer.Context(command))
        for short in parameter.opts
        for name in parameter.opts
        if len(short) == 2 and name.startswith("--")
    )
    found: dict[str, str] = {}
    for (short, name), _ in sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0])):
        found.setdefault(short, name)
    return dict(sorted(found.items()))


def _flags(leaf: Leaf) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name in leaf.names]


def _key(leaf: Leaf, short: list[str]) -> list[str]:
    flags = _flags(leaf) + short
    others = ", ".join(f"`{name}`" for name in leaf.names[1:])
    facts = [f"Key `{leaf.key}`" + (f", also called {others}" if others else "") + "."]
    facts += [f"One of {', '.join(f'`{choice}`' for choice in leaf.choices)}."] if leaf.choices else []
    low, high = leaf.bounds
    facts += [f"{word} {end:,.10g}." for word, end in (("At least", low), ("At most", high)) if end is not None]
    facts += [f"For {' and '.join(leaf.tasks)}."] if leaf.tasks != ALL_TASKS else []
    meaning = _safe(leaf.meaning[:1].upper() + leaf.meaning[1:])
    return [
        f"### {', '.join(flags)} {{ #{leaf.key} }}",
        "",
        meaning + ("." if meaning and meaning[-1] not in ".?!" else ""),
        "",
        " ".join(facts),
        "",
    ]


def _commands() -> Iterator[tuple[str, Any]]:
    def walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield path, command
        for name, each in sorted((inner or {}).items()):
            yield from walk(f"{path} {name}".strip(), each)

    return walk("", typer.main.get_command(app))


def _option(parameter: Any) -> str:
    flags = ", ".join(f"`{flag}`" for flag in [*parameter.opts, *parameter.secondary_opts])
    return f"| {flags} | {_safe(parameter.help or '')} |"


def _safe(text: str) -> str:
    return (
        " ".join(text.split())
        .replace("|", r"\|")
        .replace("$", r"\$")
        .replace("<", "&lt;")
        .replace("*", r"\*")
        .replace("[", r"\[")
    )

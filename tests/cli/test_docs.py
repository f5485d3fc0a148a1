"""The page about plans: its scenarios are plans, and every key of a plan is in it with its meaning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mlsysim.plans.files import plan_from_text
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import Assertion, ChipPart

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _blocks(page: Path, language: str) -> list[str]:
    return [body for name, body in BLOCK.findall(page.read_text(encoding="utf-8")) if name == language]


def test_scenarios_of_the_page_are_plans() -> None:
    blocks = _blocks(ROOT / "docs" / "scenarios.md", "toml")
    assert blocks and all(plan_from_text(block).workload.model for block in blocks)


def keys() -> list[tuple[str, str]]:
    """Every key of a plan by its path, and its meaning."""
    found: list[tuple[str, str]] = []

    def walk(record: Any, path: str) -> None:
        for name, field in record.model_fields.items():
            key = f"{path}{field.alias or name}"
            inner = next(
                (
                    k
                    for k in (field.annotation, *getattr(field.annotation, "__args__", ()))
                    if hasattr(k, "model_fields")
                ),
                None,
            )
            if inner is None or inner in (ChipPart, Assertion):
                assert field.description, key
                found.append((key, field.description))
            if inner is not None:
                walk(inner, f"{key}.")

    walk(Plan, "")
    return found


def test_every_key_is_on_the_page_with_its_meaning() -> None:
    text = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    missing = [f"| `{key}` | {meaning} |" for key, meaning in keys() if f"| `{key}` | {meaning} |" not in text]
    assert not missing, "\n".join(missing)
    named = set(re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE))
    assert named <= {key for key, _ in keys()} | METRICS


METRICS = {"latency", "ttft", "tpot", "energy", "memory", "power"}
"""Names in the page's table of plain numbers."""

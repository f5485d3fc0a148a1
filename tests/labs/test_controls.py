"""Every key of a plan has a control or a reason to have none, and what a control writes is read back."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from mlsysim.labs import catalogue
from mlsysim.labs.catalogue import NOT_CONTROLS, keys_module, plan_keys
from mlsysim.plans.plan import Plan

SITE = Path(str(files("mlsysim.labs"))) / "site"
CHECK = """
import { CONTROLS, GROUPS, planWith, valueOf } from "./controls.js";
const plan = { task: "training", workload: { model: "x" }, hardware: { on: "8xH100" }, parallelism: { tp: 2 } };
const context = { plan, chosen: {}, figures: {}, lists: {} };
const found = CONTROLS.map((control) => {
  const { path, group, kind, tasks } = control;
  if (group !== "more") return { path, group, kind, tasks };
  const value = kind === "menu" ? (control.options?.[0].key ?? "first") : kind === "slider" ? control.stops[1] : "30 d";
  const changed = planWith(control, value, context);
  const gone = planWith(control, null, { ...context, plan: changed });
  return { path, group, kind, tasks, value, read: valueOf(control, { ...context, plan: changed }), gone: valueOf(control, { ...context, plan: gone }) };
});
console.log(JSON.stringify({ found, groups: Object.keys(GROUPS) }));
"""


def test_every_key_has_a_control_or_a_reason_to_have_none() -> None:
    keys = {key["path"] for key in plan_keys()}
    assert keys | set(NOT_CONTROLS) == set(Plan.leaves())
    assert not keys & set(NOT_CONTROLS)


def test_a_key_says_what_a_control_needs() -> None:
    lists = {"models", "chips", *catalogue.short_lists()}
    for key in plan_keys():
        assert key["meaning"] and key["label"] and key["tasks"]
        assert key.get("list") in {None, *lists}
    by_path = {key["path"]: key for key in plan_keys()}
    assert by_path["parallelism.recompute"]["choices"] == ["none", "selective", "full"]
    assert by_path["ops.deadline"]["example"] == "30 d"


POOLED = """
import { CONTROLS, planWith } from "./controls.js";
const fleet = CONTROLS.find(({ path }) => path === "accelerators");
const plan = { task: "rl", workload: { model: "x" }, hardware: { on: "8xH100" }, parallelism: { tp: 1, pp: 5 }, rl: { split: "3" } };
const chosen = { accelerators: 8, per_node: 8, system: "H100", system_kind: "chip" };
const grown = (pp) => planWith(fleet, 16, { plan: { ...plan, parallelism: { tp: 1, pp } }, chosen, figures: {}, lists: {} });
console.log(JSON.stringify([grown(5), grown(4)]));
"""


def run_node(folder: Path, script: str) -> Any:
    """What a script beside the controls prints."""
    for name in ("controls.js", "state.js"):
        shutil.copy(SITE / name, folder / name)
    (folder / "plan_keys.js").write_bytes(keys_module())
    (folder / "check.js").write_text(script)
    (folder / "package.json").write_text('{"type": "module"}')
    done = subprocess.run(["node", "check.js"], cwd=folder, capture_output=True, text=True, check=True, timeout=600)
    return json.loads(done.stdout)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_trainers_of_a_larger_fleet_keep_their_layout_where_it_divides_them(tmp_path: Path) -> None:
    freed, kept = run_node(tmp_path, POOLED)
    assert [plan["hardware"]["on"] for plan in (freed, kept)] == ["16xH100", "16xH100"]
    assert "parallelism" not in freed and kept["parallelism"] == {"tp": 1, "pp": 4}
    assert freed["rl"] == kept["rl"] == {"split": "8"}


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_what_a_control_writes_it_reads_back(tmp_path: Path) -> None:
    told = run_node(tmp_path, CHECK)
    assert {key["path"] for key in plan_keys()} <= {control["path"] for control in told["found"]}
    for control in told["found"]:
        assert control["group"] in told["groups"] and control["tasks"]
        if control["group"] == "more":
            assert control["read"] == control["value"] and control["gone"] is None, control

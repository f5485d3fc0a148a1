"""The audit: a plan through all six domains, one row a wall, first order beside calibrated.

First order is what the tutorial prints; the calibrated column is the same number on measured silicon, where the wall has
one. A row says which wall it is and whether it binds.
"""

from __future__ import annotations

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import settled
from mlsysim.plans.evaluate import evaluate, evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import FIRST_ORDER, find_fleets, workload_of
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si
from mlsysim.walls.analysis.sensitivity import SensitivitySolver
from mlsysim.walls.catalog import wall
from mlsysim.walls.data.ingestion import DataModel
from mlsysim.walls.document import Document, as_plain
from mlsysim.walls.node.compute_memory import SingleNodeModel

_TOKEN_BYTES = 4
_TUTORIAL_RATE = "8 MB/s"

AUDITED = Plan.model_validate(
    {
        "name": "Llama-70B on 512 H100 in Quebec",
        "task": "training",
        "workload": {"model": "Llama3_70B", "batch_size": 2048, "seq_len": 2048, "precision": "fp16"},
        "hardware": {"on": "512xH100"},
        "parallelism": {"tp": 8, "zero": 1, "micro_batch": 1},
        "ops": {"region": "Quebec", "duration": "30 day"},
    }
)
"""The tutorial's run, with the optimizer's state sharded so that it fits."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    domain: str
    resolver: str
    metric: str
    first_order: str
    calibrated: str
    wall: int
    name: str
    status: str


@dataclass(frozen=True)
class Audit(Document):
    """The table, and the two answers behind it."""

    rows: tuple[Row, ...]
    first_order: Answer | None
    calibrated: Answer | None
    notes: tuple[str, ...] = ()

    @property
    def answer(self) -> Answer:
        """The answer that leads: the calibrated one where there is one."""
        found = self.calibrated or self.first_order
        assert found is not None
        return found


def audit(plan: Plan = AUDITED) -> Audit:
    """A plan through all domains."""
    given = plan.hardware.efficiency
    notes: list[str] = []
    measured: Answer | None = None
    try:
        measured = evaluate(plan.replacing(hardware={"efficiency": "calibrated"}))
    except InputError as error:
        notes.append(f"No calibrated column: {error}")
    # What the calibrated answer chose stays, so that both columns are of one design.
    design = plan if measured is None else settled(measured)
    rough = design.replacing(hardware={"efficiency": given if isinstance(given, float) else FIRST_ORDER})
    first: Answer | None = None
    if measured is None:
        first = leads = evaluate(rough)
    else:
        leads = measured
        try:
            first = evaluate_plainly(rough)
        except InputError as error:
            notes.append(f"No first-order column: {error}")
    rows = [*_node(plan, leads), *_scores(first, leads)]
    rows.sort(key=lambda row: _ORDER.index(row.domain))
    return Audit(tuple(rows), first, measured, tuple(notes))


_ORDER = ("Node", "Data", "Algorithm", "Fleet", "Operations", "Analysis")

_METRICS = {
    **{1: "Compute", 2: "Memory", 3: "Utilisation", 4: "First token, then each", 5: "Requests of a replica", 8: "Data"},
    **{11: "Tokens and parameters", 14: "Communication and bubbles", 15: "Failures"},
    **{17: "Cost of owning", 18: "Footprint", 19: "Checkpoint"},
}
"""What a row of a wall's scorecard is about."""


def _scores(first: Answer | None, leads: Answer) -> list[Row]:
    """A row for each wall of the scorecard that was asked."""
    rows, rough = [], {} if first is None else {score.wall: score for score in first.scorecard}
    for score in leads.scorecard:
        beside = rough.get(score.wall)
        if score.wall in _METRICS and (beside or score).status != "not asked":
            resolver, metric = wall(score.wall).resolver, _METRICS[score.wall]
            said = "" if beside is None else beside.value
            measured = "" if beside is not None and said == score.value else score.value
            rows.append(Row(score.domain, resolver, metric, said, measured, score.wall, score.name, score.status))
    return rows


def _node(plan: Plan, answer: Answer) -> list[Row]:
    """What one accelerator alone makes of the model, and which figure of it binds."""
    chip, model = find_fleets(plan.hardware).fleets[0].node.accelerator, workload_of(plan.workload)
    precision = answer.precision
    batch = (plan.workload.batch_size or 1) if plan.kind == "inference" else 1
    try:
        alone = SingleNodeModel().solve(model, chip, batch, precision)
        bound = SensitivitySolver().solve(model, chip, precision)
    except InputError:
        return []
    rows = []
    if model.data_rate is None and not model.fixed_shape and plan.kind == "training" and chip.storage is not None:
        # Tokens are read as four-byte numbers, by each accelerator its share; the tutorial's own rate for its own run.
        devices = find_fleets(plan.hardware).accelerators
        rate = to_si(answer.value("tokens_per_second"), "1/s") * _TOKEN_BYTES / devices
        data = DataModel().solve(_TUTORIAL_RATE if plan is AUDITED else f"{rate:.6g} B/s", chip)
        share = data.utilization or 0.0
        used = "under 0.1% of supply" if share < 1e-3 else f"{share:.1%} of supply"
        shown = data.demand_bw.to("MB/s" if to_si(data.demand_bw, "byte/s") >= 1e6 else "kB/s")
        words = f"Data at {shown.magnitude:.3g} {shown.units:~P}"
        rows.append(Row("Data", "DataModel", words, used, "", 8, "Ingestion", "holds"))
    word, status = (f"{alone.bottleneck}-bound", "holds") if alone.feasible else ("too big for one", "split")
    binds = alone.binding
    rows.append(Row("Node", "SingleNodeModel", "One accelerator", word, "", binds.wall, binds.name, status))
    text = str(as_plain(bound.binding_constraint)).replace("_", " ")
    rows.append(Row("Analysis", "SensitivitySolver", "Binding figure", text, "", 21, "Sensitivity", "holds"))
    return rows

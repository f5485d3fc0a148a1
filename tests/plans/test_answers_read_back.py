"""The document of every result and answer reads back into an equal one: whatever class of the package writes one is found here."""

import importlib
import inspect
import json
import pkgutil
import typing
from collections import Counter
from functools import cache, reduce
from operator import getitem
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlsysim
from mlsysim.calibrate.fit_results import FittedEngine
from mlsysim.calibrate.movable import Adjusted
from mlsysim.calibrate.questions import Prediction
from mlsysim.calibrate.user import Calibration
from mlsysim.calibrate.validate import FileReport
from mlsysim.calibrate.verify import Verification
from mlsysim.engine.evaluation import EvaluationLevel, Metric, SystemEvaluation
from mlsysim.engine.explain import Difference, compare
from mlsysim.engine.pipeline import Pipeline, PipelineResult
from mlsysim.engine.scenario import Scenario, Scenarios
from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.importers.codecarbon import EmissionsReport, EmissionsRow
from mlsysim.importers.hf import read_config
from mlsysim.importers.report import ImportReport
from mlsysim.importers.trace import KernelTime, KindTime, TraceReport
from mlsysim.importers.trace_what_if import WhatIf, what_if
from mlsysim.labs.design import Reached
from mlsysim.labs.grading import Grade
from mlsysim.labs.submissions import Classroom, LabOfClass, Predicted, Said, Submission, Task
from mlsysim.launch.reading import Reading
from mlsysim.launch.review import Review, review
from mlsysim.launch.targets import read_launch
from mlsysim.plans.answer import Answer
from mlsysim.plans.audit import Audit, audit
from mlsysim.plans.collectives import Collectives, collectives
from mlsysim.plans.compare import Comparison, compare_answers
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.least_service import Service
from mlsysim.plans.metrics import Metric as AnswerMetric
from mlsysim.plans.pieces import Change
from mlsysim.plans.plan import Plan
from mlsysim.plans.planned import Planned, planned
from mlsysim.search.optimize import OptimizeResult, optimize
from mlsysim.search.space import Space
from mlsysim.search.sweep import SweepResult, sweep
from mlsysim.swept import Swept
from mlsysim.timing.engines import engine
from mlsysim.timing.profile import profile
from mlsysim.units.uncertain import Uncertain
from mlsysim.walls.document import Document, Told, finite
from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.walls.result import Result
from mlsysim.walls.uncertain_result import Percentiles

RL = {"prompts": 64, "samples": 8, "response": 500, "split": "8"}
PLANS = (
    {"task": "training", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "8xH100"}, "ops": {"region": "Quebec"}},
    {"task": "training", "workload": {"model": "Llama3_70B"}, "hardware": {"on": "8xL4"}, "parallelism": {"tp": 8}},
    {"task": "serving", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "8xH100"}},
    {"task": "serving", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "8xH100 + 8xB200"}},
    {"task": "inference", "workload": {"model": "ResNet50"}, "hardware": {"on": "A100"}},
    {"task": "rl", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "16xH100"}, "rl": RL},
    {"task": "inference", "workload": {"model": "Llama3_70B"}, "hardware": {"on": "A100", "efficiency": 0.5}},
)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan['task']} on {plan['hardware']['on']}")
def test_an_answer_reads_back(plan, tmp_path):
    answer, file = evaluate(plan), tmp_path / "answer.json"
    file.write_text(json.dumps(finite(answer.to_dict())), encoding="utf-8")
    again = Answer.from_dict(json.loads(file.read_text(encoding="utf-8")))
    assert again == answer
    assert again.value(answer.main) == answer.value(answer.main) and again.metrics[0].text == answer.metrics[0].text
    assert finite(again.to_dict()) == finite(answer.to_dict())
    assert evaluate(again.plan, change=False).headline == answer.headline


@pytest.mark.parametrize("document", [[], {}, {"metrics": []}, {"metrics": {}}])
def test_what_is_no_answer_is_refused(document):
    with pytest.raises(InputError):
        Answer.from_dict(document)


SPACE = {
    "kind": "serving",
    "minimize": "tpot_s",
    "pareto": ["tpot_s", "ttft_s"],
    "fixed": {"model": "Llama3_8B", "isl": 512, "osl": 64},
    "axes": {"hardware": ["H100", "A100"], "batch": [1, 8, 64]},
}


def _space():
    return Space.from_dict(SPACE)


def _trace():
    kernel = KernelTime(name="k", kind="gemm", count=2, time=1e-3, flops=1e11)
    kind = KindTime(kind="gemm", count=2, time=1e-3, share=1.0, flops=1e11)
    times = {"step": 2e-3, "busy": 1e-3, "idle": 1e-3, "communication": 0.0, "exposed_communication": 0.0}
    found = {"chip": "H100", "device_name": None, "devices": 1, "steps": 1, "precision": "bf16"}
    return TraceReport(name="trace", **found, **times, kinds=(kind,), kernels=(kernel,) * 30)


def _emissions():
    fields = {"project": "run", "timestamp": "", "duration": 10.0, "chip": None, "gpus": 1, "grid": None}
    others = {name: None for name in EmissionsRow.model_fields if name not in fields and name != "flags"}
    row = EmissionsRow(**fields, **{**others, "measured_energy": 1.0, "measured_carbon": 0.1}, flags=("odd",))
    return EmissionsReport(name="emissions.csv", rows=(row,), utilisation=0.5)


def _verification():
    given = {name: "x" for name, hint in typing.get_type_hints(Verification).items() if hint is str}
    sizes = {"batch": 1, "seq_len": None, "layers": 2, "of_layers": None, "extrapolating": False, "graph": True}
    sizes |= {"compiled": False, "adapters": 0}
    times = {"measured_s": 1.0, "predicted_s": 1.1, "low_s": 0.9, "high_s": float("inf")}
    return Verification(**given, **sizes, **times, parts={"a": 1.0})


def _spread():
    return SingleNodeModel().solve("Llama3_8B", "H100", efficiency=Uncertain.uniform(0.3, 0.6), samples=20).latency


def _two(first, second):
    return SingleNodeModel().solve("Llama3_8B", first), SingleNodeModel().solve("Llama3_8B", second)


def _evaluation():
    scenario: Scenario = next(iter(Scenarios))
    return scenario.evaluate()


def _calibration():
    chip = Hardware.get("H100")
    held = {"prior": profile(chip), "profile": profile(chip), "samples": (SimpleNamespace(label="gemm", seconds=1e-3),)}
    errors = {"before": (0.1,), "after": (0.05,), "fitted": (0.01,)}
    moved = (Adjusted("matrix.efficiency", 0.8, 0.7, "", 0.1, False),)
    return Calibration(chip, "Mine", rows=1, adjusted=moved, kept=("launch",), **held, **errors)


def _fitted_engine():
    table = {"overhead": {"value": 2.0, "error": 0.1}}
    found = SimpleNamespace(table=lambda: table)
    return FittedEngine(engine("vLLM"), "dense", 8, found, {"overhead": 1.5}, (0.2, -0.1), (0.1, 0.0))


def _report():
    seen = Prediction("tpot", 10.0, 11.0, "decode", True, source="a paper")
    return FileReport("a.csv", "serving", 2, 1, 0, Counter({"no chip": 1}), [seen])


MADE = {
    Calibration: _calibration,
    FileReport: _report,
    FittedEngine: _fitted_engine,
    Reading: lambda: read_launch("vllm serve meta-llama/Llama-3.1-8B -tp 2 --max-num-seqs 64 --odd 3"),
    Review: lambda: review("vllm serve meta-llama/Llama-3.1-8B -tp 2", on="2xH100"),
    Answer: lambda: evaluate(PLANS[0], change=False),
    AnswerMetric: lambda: evaluate(PLANS[4]).metrics[0],
    Audit: audit,
    Change: lambda: evaluate(PLANS[0]).change,
    Collectives: lambda: collectives("8xH100", sizes=[1e6, 1e9]),
    Comparison: lambda: compare_answers(*(evaluate(plan, change=False) for plan in PLANS[:2])),
    Difference: lambda: compare(*_two("H100", "A100")),
    EmissionsReport: _emissions,
    EvaluationLevel: lambda: _evaluation().performance,
    Grade: lambda: Grade(correct=True, counts=False, message="right"),
    ImportReport: lambda: read_config(
        {
            "model_type": "new",
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "vocab_size": 99,
            "intermediate_size": 256,
        }
    ),
    Metric: lambda: next(iter(_evaluation().performance.metrics.values())),
    OptimizeResult: lambda: optimize(_space()),
    Percentiles: _spread,
    Planned: lambda: planned(Plan.model_validate({**PLANS[0], "deadline": "30 day", "tokens": 1e9}), ["H100"]),
    Service: lambda: Service("H100", answer=evaluate(PLANS[2], change=False), headroom=1.5),
    PipelineResult: lambda: Pipeline([SingleNodeModel]).run(model="Llama3_8B", hardware="H100"),
    Submission: lambda: Submission("A-1", attempts={"q": 2}),
    Reached: lambda: Reached("Time", "2 s", "at most 1 s", False, "1 s too much"),
    Task: lambda: Task("q", "?", [1, 0, 0, 0], 2, {"bits for bytes": 1}),
    Said: lambda: Said("ann", "12 ms", "close"),
    Predicted: lambda: Predicted("p", "?", [Said("ann", "12 ms")]),
    LabOfClass: lambda: LabOfClass("roofline", "The roofline", 1, 4.5, 5, [], []),
    Classroom: lambda: Classroom([LabOfClass("roofline", "The roofline", 1, 4.5, 5, [], [])], [Submission("A-1")]),
    SweepResult: lambda: sweep(_space()),
    Swept: lambda: Swept.of(sweep(_space()), _space()),
    SystemEvaluation: _evaluation,
    TraceReport: _trace,
    Verification: _verification,
    WhatIf: lambda: what_if(_trace(), "A100"),
}

OF_OTHERS = ("Plan", "Uncertain", "Binding", "LazyBinding", "Summary", "Told", "Candidate", "Varied", "SweptPlan")
"""What is given, and read by its own name: Plan(**document), uncertain(document), the binding of a result; lists of answers that are outlined, whose plans
give them again."""


def _writers():
    """Every class of the package that has ``to_dict``, but for results of walls, which test_read_back goes through."""
    found = set()
    for module in pkgutil.walk_packages(mlsysim.__path__, "mlsysim."):
        if not module.name.endswith(("__main__", "site")):
            loaded = importlib.import_module(module.name)
            found |= {each for _, each in inspect.getmembers(loaded, inspect.isclass) if hasattr(each, "to_dict")}
    own = {each for each in found if each.__module__.startswith("mlsysim.") and each is not Document}
    return {each for each in own if not issubclass(each, Result)}


def test_every_class_that_writes_a_document_is_tried():
    names = {each.__name__ for each in _writers() - set(MADE)}
    assert names <= {*OF_OTHERS}, f"written and never read back: {names - {*OF_OTHERS}}"


@pytest.mark.parametrize("kind", MADE, ids=lambda kind: f"{kind.__module__.removeprefix('mlsysim.')}.{kind.__name__}")
def test_a_document_reads_back(kind):
    made = MADE[kind]()
    assert type(made) is kind
    again = kind.from_json(made.to_json())
    assert again == made and again.to_json() == made.to_json()
    assert not isinstance(again, Told) or len(str(again)) < 1_000, "a document printed whole"


def test_a_sweep_that_was_read_back_asks_for_its_space():
    made = MADE[Swept]()
    again = Swept.from_json(made.to_json())
    with pytest.raises(InputError, match=r"Swept\.of\(sweep, space\)"):
        again.rows()
    assert Swept.of(again, made.space).rows() == made.rows()


@pytest.mark.parametrize("kind", MADE, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("text", ["{", "[]", "null", '{"nosuch": 1}', "{}"])
def test_what_is_no_document_is_refused_in_a_sentence(kind, text):
    if (kind, text) != (PipelineResult, "{}"):
        with pytest.raises(InputError, match=r"^[A-Z].*[.?)]$"):
            kind.from_json(text)


OTHER = (
    *(None, True, -1, 0, 1e308, "x", "", [], {}, [[1]], {"a": 1}, "Infinity"),
    *({"magnitude": 1, "unit": "zz"}, {"magnitude": [[1]], "unit": "s"}),
)
"""What stands where something else was written."""


def _places(document, before=()):
    pairs = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in pairs:
        yield (*before, key)
        yield from _places(value, (*before, key))


@cache
def _written(kind):
    return MADE[kind]().to_json()


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(MADE, key=str)), st.data())
def test_a_changed_document_reads_or_is_refused_in_a_sentence(kind, data):
    document = json.loads(_written(kind))
    *way, last = data.draw(st.sampled_from([*_places(document)]))
    held = reduce(getitem, way, document)
    if data.draw(st.booleans()):
        held[last] = data.draw(st.sampled_from(OTHER))
    else:
        del held[last]
    try:
        read = kind.from_dict(document)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        read.to_json()


@pytest.mark.parametrize("second", range(len(PLANS)))
def test_any_two_answers_compare_and_read_back(second):
    for first in range(second):
        two = [evaluate(PLANS[which], change=False) for which in (first, second)]
        try:
            found = compare_answers(*two)
        except InputError:
            continue
        again = Comparison.from_json(found.to_json())
        assert again == found and again.to_json() == found.to_json()


AXES = {
    "hardware": ["H100", "A100", "MI300X", "L4", "TPUv5p"],
    "batch": [1, 8, 1000, 10**6],
    "isl": [1, 2000, 10**6],
    "tp_size": [1, 8],
}


@settings(max_examples=20, deadline=None)
@given(
    st.fixed_dictionaries(
        {name: st.lists(st.sampled_from(of), min_size=1, max_size=3, unique=True) for name, of in AXES.items()}
    )
)
def test_a_sweep_of_any_axes_reads_back(axes):
    found = sweep(Space.from_dict({**SPACE, "fixed": {"model": "Llama3_8B", "osl": 64}, "axes": axes}))
    again = SweepResult.from_json(found.to_json())
    assert again == found and again.to_json() == found.to_json()

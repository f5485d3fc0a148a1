"""The operations: a document in, a document out. HTTP and the Model Context Protocol both call :func:`call`.

An answer is an object; an error is ``{"error": {"sentence", "kind", "field", "suggestions"}}`` with one of these kinds:

    malformed      no JSON object, or JSON that cannot be used
    input          a value that cannot be used; ``field`` names it
    unknown_name   a name that nothing answers to; ``suggestions`` has the nearest
    unit           a wrong dimension or an unknown unit
    range          numbers so large or small that the arithmetic leaves the doubles
    limit          more than the server allows
    memory         the operation needs more memory than the server allows
    internal       a fault of ours

The same request gets the same bytes. Names mean entries of the zoo; nothing that a request says is opened as a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from mlsysim.api import requests as ask
from mlsysim.api import words
from mlsysim.api.documents import Malformed, dump, plain
from mlsysim.api.forgiving import understood
from mlsysim.api.limits import Limits
from mlsysim.api.searches import OverLimit, optimize, sweep
from mlsysim.api.words import Said
from mlsysim.errors import (
    DimensionalityError,
    InputError,
    MLSysError,
    UnitError,
    UnknownNameError,
    ZooFileError,
    unknown_name,
)
from mlsysim.importers.nccl_tests import nccl_log
from mlsysim.plans import catalogue
from mlsysim.plans.answer import Answer
from mlsysim.plans.collectives import asked
from mlsysim.plans.evaluate import evaluate, evaluate_plainly
from mlsysim.plans.likely import with_task
from mlsysim.plans.plan import Plan
from mlsysim.plans.planned import planned
from mlsysim.plans.schema import spoken
from mlsysim.units.fields import Record
from mlsysim.units.records import dataclass
from mlsysim.zoo.writing import without_files

_LONGEST_SENTENCE = 1000
_SHARED = ("plan", "space", "first", "second")
LEFT_OUT = (
    *("scorecard", "roofline", "equations", "sources", "time_parts", "memory", "next_wall", "assumed", "interval_key"),
    *("over_time", "played", "run_parts", "carbon_parts", "energy_parts"),
)
"""What a summary of an answer leaves out."""
_OF_A_ROW = ("answer", "metrics")
"""What a row of a list leaves out: always, and in a summary."""


_LARGEST_REPLY = 32_000_000
_JSON_WORDS: dict[type, str] = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
_KINDS: dict[type[Exception], str] = {
    Malformed: "malformed", OverLimit: "limit", UnknownNameError: "unknown_name", UnitError: "unit",
    DimensionalityError: "unit", MLSysError: "input",
}  # fmt: skip
"""Kinds of errors of a request; the first that fits is told."""


@dataclass(frozen=True)
class Reply:
    """What comes back: a document, the kind of error where it is one, and the same in words where there are some."""

    document: dict[str, Any]
    kind: str | None = None
    words: str = ""


@dataclass(frozen=True)
class Operation:
    """One operation: what it takes, what it does, and an example that runs."""

    name: str
    request: type[Record]
    run: Callable[[Any, Limits], Said]
    summary: str

    @property
    def examples(self) -> dict[str, dict[str, Any]]:
        """Requests by a few words on them; a plan or a space that is text is one of the shared ones."""
        examples = ask.file("examples.toml")

        def whole(key: str, part: Any) -> Any:
            return examples["shared"][part] if key in _SHARED and isinstance(part, str) else part

        return {
            words: {key: whole(key, part) for key, part in request.items()}
            for words, request in examples[self.name].items()
        }


def call(name: str, document: Any, limits: Limits | None = None) -> Reply:
    """The answer of an operation to a request; never raises for anything that a request can say."""
    operation = OPERATIONS.get(name)
    try:
        if operation is None:
            raise unknown_name("operation", name, OPERATIONS, f"use one of {', '.join(OPERATIONS)}.")
        if not isinstance(document, dict):
            got = _JSON_WORDS.get(type(document), "a number")
            raise Malformed(f"{name} takes a JSON object, got {got}.")
        with without_files():
            asked_for = operation.request.model_validate(understood(name, document))
            document, said = operation.run(asked_for, limits or Limits())
            return Reply(plain(document), words=said)
    except ZooFileError:
        # Its sentence names a file of the machine.
        return failure("internal", "An entry of this server's zoo cannot be read; see its log.")
    except (MLSysError, DimensionalityError) as error:
        kind = next(kind for family, kind in _KINDS.items() if isinstance(error, family))
        details, told = {}, str(error)
        if isinstance(error, MLSysError):
            details = error.details
            if details.get("of_a_plan"):
                told = spoken(error.message, words.as_a_key, Plan.leaves())
        sentence = told if operation is None else _in_keys(told, operation)
        return failure(
            kind, sentence, details.get("field"), details.get("suggestions") if kind == "unknown_name" else None
        )
    except ArithmeticError as error:
        return failure("range", f"{name}: a number of the request is too large or too small to compute with ({error}).")
    except MemoryError:
        return failure("memory", f"{name} needs more memory than this server allows; ask for less.")
    except Exception as error:
        return failure("internal", f"{name} failed: {type(error).__name__}: {error}")


def _in_keys(sentence: str, operation: Operation) -> str:
    """A sentence in the words of a request: options of the command line as keys, the operation by its name."""
    told = sentence.replace(operation.request.__name__, operation.name)
    # Flags of a launch file, which a review speaks of, stay as they are.
    flag = "|".join(operation.request.model_fields) if operation.name == "review" else r"[a-z][\w-]*"
    told = re.sub(
        rf"(?<=such as |....say |..write )--({flag}) ([\w.:@+=-]*\w)",
        lambda found: f'"{found[1].replace("-", "_")}": "{found[2]}"',
        told,
    )
    return re.sub(rf"(?<![\w`-])--({flag})\b", lambda found: repr(found[1].replace("-", "_")), told)


def answer(name: str, document: Any, limits: Limits) -> tuple[bytes, str | None, str]:
    """The answer of an operation as JSON text, the kind of error where it is one, and the words."""
    reply = call(name, document, limits)
    text = dump(reply.document)
    if len(text) > _LARGEST_REPLY:
        reply = failure("limit", f"The answer of {name} is larger than {_LARGEST_REPLY:,} bytes; ask for less.")
        text = dump(reply.document)
    return text, reply.kind, reply.words


def failure(kind: str, sentence: str, field: Any = None, suggestions: Any = None) -> Reply:
    """The reply for an error."""
    told: dict[str, Any] = {"sentence": " ".join(sentence.split())[:_LONGEST_SENTENCE], "kind": kind}
    if field:
        told["field"] = str(field)[:200]
    if suggestions:
        told["suggestions"] = [str(name) for name in suggestions]
    return Reply({"error": told}, kind)


# --- plans --------------------------------------------------------------------------------------------------------


def _answered(request: ask.EvaluateRequest, limits: Limits) -> Said:
    found = evaluate(with_task(request.plan), change=request.change).in_words(words.as_a_key)
    return Said(_document(found, request.detail), words.of_answer(found))


def _document(answer: Answer, detail: str | None) -> dict[str, Any]:
    whole = answer.to_dict()
    return whole if detail != "summary" else {key: value for key, value in whole.items() if key not in LEFT_OUT}


def _planned(request: ask.PlanRequest, limits: Limits) -> Said:
    found = planned(request.plan, request.on).in_words(words.as_a_key)
    told = found.to_dict() | {"best": None if found.best is None else _document(found.best, request.detail)}
    left = _OF_A_ROW if request.detail == "summary" else _OF_A_ROW[:1]
    rows = [{key: value for key, value in row.items() if key not in left} for row in told["candidates"]]
    return Said(told | {"candidates": rows}, words.of_planned(found))


def _explained(request: ask.ExplainRequest, limits: Limits) -> Said:
    found = evaluate(with_task(request.plan, request.metric), change=False).in_words(words.as_a_key)
    said = [found.subject, str(found.explain(request.metric)), found.binding.sentence]
    return Said(found.explanation(request.metric), "\n".join(said))


def _compare(request: ask.CompareRequest, limits: Limits) -> Said:
    from mlsysim.plans.compare import compare_plans

    found = compare_plans(request.first, request.second)
    answers = [answer.in_words(words.as_a_key) for answer in (found.first, found.second)]
    sides = {name: _document(a, request.detail) for name, a in zip(("first", "second"), answers, strict=True)}
    lines = [f"{name.capitalize()}: {a.subject}. {a.headline}" for name, a in zip(sides, answers, strict=True)]
    return Said(found.to_dict() | sides, "\n".join([*lines, str(found)]))


def _export(request: ask.ExportRequest, limits: Limits) -> Said:
    from mlsysim.launch.targets import launched, target_named, written

    plan = request.plan if request.to else with_task(request.plan)
    target = target_named(request.to or ("vllm" if plan.kind == "serving" else "megatron"))
    answer = evaluate_plainly(launched(target, plan, request.command))
    text = written(target, answer, command=request.command)
    told = {"target": target, "feasible": answer.feasible, "headline": answer.headline, "text": text}
    return Said(told, f"{answer.headline}\n\n{text}")


def _review(request: ask.ReviewRequest, limits: Limits) -> Said:
    from mlsysim.launch.review import review
    from mlsysim.launch.targets import read_launch

    reading = read_launch(request.launch, request.target, on=request.on, model=request.model)
    parts = Plan.in_parts({"task": reading.document.get("task"), **request.settings})
    given: dict[str, Any] = {part: fields for part, fields in parts.items() if isinstance(fields, dict)}
    found = review(reading.placed(**given))
    return Said(found.to_dict(), words.of_review(found))


def _collectives(request: ask.CollectivesRequest, limits: Limits) -> Said:
    log = None if request.log is None else nccl_log(request.log)
    return Said(asked(request.on, request.op, request.size, request.group, request.stride, log).to_dict())


# --- what there is ------------------------------------------------------------------------------------------------


def _zoo(request: ask.ZooRequest, limits: Limits) -> Said:
    kind: str | None = request.kind
    name = request.name
    if kind is None and name in catalogue.KINDS:
        kind, name = name, None
    ours = None if kind is None else catalogue.registries(kind)
    several = [] if name is None else [zoo for zoo in catalogue.alike(name) if ours is None or zoo in ours]
    if kind is None and name is not None and not several:
        kind = catalogue.kind_of_entry(name)
    if kind is None and not several:
        if request.filter or request.sort:
            raise InputError("Say which part of the zoo: hardware, models, systems or grids.", field="kind")
        return Said({"zoo": catalogue.counts()})
    zoos = several or catalogue.registries(str(kind))
    if name is not None and not several:
        word, entry = catalogue.entry_named(str(kind), zoos, name)
        return Said({"zoo": word, "entry": entry.model_dump(mode="json", exclude_none=True)})
    rows = catalogue.as_documents(catalogue.listing(zoos, request.filter, request.sort, like=name or ""))
    chosen = rows[request.offset : request.offset + request.limit]
    return Said({"total": len(rows), "offset": request.offset, "entries": chosen})


def _walls(request: ask.WallsRequest, limits: Limits) -> Said:
    return Said({"walls": catalogue.wall_cards()} if request.number is None else catalogue.wall_card(request.number))


OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation("train", ask.TrainRequest, _answered, "Train a model on a fleet: fits, days, cost, carbon, MFU, what binds, what to change."),
        Operation("serve", ask.ServeRequest, _answered, "Serve a language model on a fleet: fits, time to the first token, time per token, throughput, cost of a million tokens, whether limits hold."),
        Operation("rl", ask.RlRequest, _answered, "A step of post-training (GRPO, PPO ...): rollout, its long tail, training, weight transfer; the best split. Also takes keys of `train` (the trainer) and `engine`."),
        Operation("plan", ask.PlanRequest, _planned, "How many accelerators, of which chip: the least fleet that trains by a deadline, or that serves qps within limits, with its cost."),
        Operation("evaluate", ask.EvaluateRequest, _answered, "Answer a plan of any task: does it fit, how fast, what does it cost and emit, what binds."),
        Operation("compare", ask.CompareRequest, _compare, "Two plans side by side, such as one model on two chips: every metric, the factor between them, which wall binds."),
        Operation("explain", ask.ExplainRequest, _explained, "Why a number is what it is: equations with values, assumptions, sources, what binds."),
        Operation("optimize", ask.OptimizeRequest, lambda r, limits: optimize(r, limits.max_points), "The best layout, batch, region or point of a space."),
        Operation("sweep", ask.SweepRequest, lambda r, limits: sweep(r, limits.max_points), "A plan with keys at several values (over), or every point of a design space (space): the best, the trade-offs, what rejected the rest."),
        Operation("review", ask.ReviewRequest, _review, "What a launch command or script (Megatron, torchtitan, DeepSpeed, vLLM, SGLang ...) costs beside the best settings, and which flags to change. Nothing is run."),
        Operation("export", ask.ExportRequest, _export, "A plan as launch arguments or files; as text, nothing is written or run."),
        Operation("collectives", ask.CollectivesRequest, _collectives, "Time and bus bandwidth of a collective by message size."),
        Operation("zoo", ask.ZooRequest, _zoo, "What the zoo has: hardware, models, systems, grids; or one entry with its sources."),
        Operation("walls", ask.WallsRequest, _walls, "All walls, or the card of one: equation, reference, inputs, fallacies."),
        Operation("schema", ask.SchemaRequest, lambda r, limits: Said(catalogue.schema_of(r.type)), "JSON Schema of a plan, of the zoo's types, of a space or of a resolver."),
    )
}  # fmt: skip
"""The operations by name."""

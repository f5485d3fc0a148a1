"""``Sheet``: what an evaluation gathers on its way to an answer, and the words that all evaluations share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.ledger import Ledger
from mlsysim.plans.answer import Answer
from mlsysim.plans.equations import Together, equations_of
from mlsysim.plans.metrics import Metric, kinds, metric, value_text
from mlsysim.plans.parts import memory_bar, next_wall, time_parts
from mlsysim.plans.pieces import Limit, Score
from mlsysim.plans.plan import Plan
from mlsysim.plans.targets import TIMES, levels_of
from mlsysim.units.text import bytes_text, compact_time
from mlsysim.walls.base import CAVEATS
from mlsysim.walls.binding import NAMES
from mlsysim.walls.catalog import TITLES
from mlsysim.walls.result import Result

_TASKS = {"samples": "training", "images": "inference"}
"""Tasks of which some have labels of their own."""


class Sheet:
    """Metrics, scores, results and assumptions while a plan is evaluated.

    ``task`` chooses the labels; "samples" is training of a network that counts samples, "images" all steps of a denoiser. ``noun`` is what the ledger is of.
    """

    def __init__(self, plan: Plan, assumed: Mapping[str, str], task: str, noun: str) -> None:
        self.plan, self.task, self.noun = plan, task, noun
        self.assumed = Assumptions()
        for name, text in assumed.items():
            self.assumed[name] = text
        self.metrics: dict[str, Metric] = {}
        self.results: list[Result] = []
        self.sources: dict[str, str] = {}
        self.scores: dict[int, Score] = {}
        self.unknown: list[str] = []
        ops = plan.ops
        self.facts: dict[str, Any] = {"checkpoint_given": ops.checkpoint_time, "mtbf_given": ops.mtbf}
        self.together: dict[str, Together] = {}
        self.shown: dict[str, Any] = {}
        """Fields of the answer as they are."""
        self.rented = self.owned = ""
        """The price of an accelerator-hour in words, where the plan rents; what owning covers, and for how long."""
        self.ledger = Ledger(0.0, ())
        self.binding_wall = 0

    @property
    def counted(self) -> str:
        """What a run trains on."""
        return "samples" if self.task == "samples" else "tokens"

    def read(self, ledger: Ledger | None) -> Ledger:
        """Take the ledger that the answer is read off."""
        assert ledger is not None
        self.ledger, self.binding_wall = ledger, ledger.binding_wall
        self.shown |= {"memory": memory_bar(ledger), "time_parts": time_parts(ledger)}
        return ledger

    def keep(self, result: Any) -> Any:
        """Remember a result: its equations, sources and assumptions."""
        self.results.append(result)
        self.sources.update(result._facts.sources)
        # What was not understood of the model's files is a warning of the answer.
        known = (each for each in result.assumed if each.name != CAVEATS)
        by = result._facts.resolver
        if len(self.results) == 1:
            # What was settled before the first resolver was asked went into it.
            self.assumed.told_to(by)
        self.assumed.learn(known, by)
        return result

    def add(self, name: str, value: Any, band: Any = None, wall: int = 0) -> None:
        """A metric; nothing where the value is not known. Without a wall of its own it belongs to the one given, or that binds."""
        if value is not None:
            self.metrics[name] = metric(name, value, self.task, band, wall, self.binding_wall)

    def text(self, name: str) -> str:
        """A metric as it is printed; every sentence takes its numbers from here."""
        return self.metrics[name].text

    def band(self, name: str) -> str:
        """The interval of a metric in brackets, as it is printed; nothing where there is none."""
        found = self.metrics[name].interval
        return f" ({found})" if found else ""

    def note(self, sentence: str) -> None:
        """Something that is not known, said once."""
        if sentence not in self.unknown:
            self.unknown.append(sentence)

    def score(self, wall: int, value: str, load: float | None = None, note: str = "", fails: bool = False) -> None:
        """What was found about a wall."""
        self.scores[wall] = _score(wall, "fails" if fails else "holds", value=value, note=note, load=load)

    def score_walls(self, notes: dict[int, str], fails: bool) -> None:
        """What the ledger says about each wall with time, as a share of it; wall 2 has bytes held and bytes moved apart.

        ``notes`` say more of a wall; one without time has its note alone.
        """
        ledger, noun = self.ledger, self.noun
        for wall, seconds in ledger.walls().items():
            if wall not in NAMES:  # what is drawn while nothing waits has joules and no seconds
                continue
            share = float(seconds / ledger.seconds)
            most = ledger.led(wall) if seconds > 0 else ""
            note = "; ".join(filter(None, (notes.get(wall), most)))
            self.score(wall, f"{share:.1%} of the {noun}", share, note=note)
        for wall in notes.keys() - self.scores.keys():
            self.score(wall, notes[wall])
        moved = ledger.total("moved")
        traffic = f"{float(ledger.walls().get(2, 0.0) / ledger.seconds):.1%} of the {noun}"
        moves = f"moves {bytes_text(moved)} in a {noun}: {traffic}" if moved else traffic
        used, capacity = float(ledger.memory), float(ledger.capacity)
        self.score(2, f"{bytes_text(used)} of {bytes_text(capacity)}", used / capacity, note=moves, fails=fails)

    def _scorecard(self, binding: int) -> tuple[Score, ...]:
        """All walls; the binding one is marked."""
        found = []
        for wall in TITLES:
            score = self.scores.get(wall) or _score(wall, "not asked")
            binds = wall == binding and score.status != "fails"
            found.append(score.model_copy(update={"status": "binds"}) if binds else score)
        return tuple(found)

    def ingest(self, rate: Any, chip: Any) -> None:
        """Wall 8, where the workload says how fast it reads data."""
        if rate is None or (chip.storage is None and chip.interconnect is None):
            return
        from mlsysim.walls.data.ingestion import DataModel

        data = self.keep(DataModel().solve(rate, chip))
        self.add("data_utilization", data.utilization)
        self.score(8, f"{data.utilization:.1%} of supply", data.utilization, fails=data.is_stalled)

    def answer(self, *, calibrated: bool, binding: Limit, fidelity: str = "", **found: Any) -> Answer:
        """The answer: all that was gathered, and what an evaluation makes of it (feasible, subject, headline, verdict, main)."""
        # Of fields of a resolver that no answer shows: its parts are the ledger's.
        self.assumed.pop("parts", None)
        interval, key = self.assumed.get("interval", ""), str(self.assumed.value("interval", ""))
        if (own := self.plan.hardware.chip) is not None and own.hypothetical:
            found["subject"] = f"{found['subject']} ({self.assumed['chip']})"
            interval = (
                interval
                and f"extrapolating: the chip is hypothetical, and the interval is that of the real one: {interval}"
            )
        metrics, shown = tuple(self.metrics.values()), self.shown
        answer = Answer(
            name=self.plan.name,
            plan=self.plan,
            task=_TASKS.get(self.task, self.task),  # type: ignore[arg-type]
            fidelity=fidelity or ("calibrated" if calibrated else "first order"),
            metrics=metrics,
            binding=binding,
            next_wall=next_wall(self.ledger, binding, self.noun),
            interval=interval_sentence(interval) if calibrated else FIRST_ORDER_ONLY,
            interval_key=key if calibrated else "first order",
            scorecard=self._scorecard(binding.wall),
            assumed=self.assumed.records,
            sources=self.sources,
            equations=equations_of(
                metrics, self.results, self.facts, shown["time_parts"], shown["memory"], self.together
            ),
            **shown,
            **found,
        )
        return answer.read_off(self.ledger)


def _score(wall: int, status: str, **more: Any) -> Score:
    name, domain = TITLES[wall]
    return Score(wall=wall, name=name, domain=domain, status=status, **more)  # type: ignore[arg-type]


FIRST_ORDER_ONLY = "First order: what binds, ratios and bounds; not calibrated on measurements."


def interval_sentence(text: str) -> str:
    """What a resolver says about its interval, as a sentence.

    >>> interval_sentence("90 % of 860 times per token fell within the interval")
    '90 % of 860 times per token fell within the interval.'
    """
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def percentile_texts(kind: str, held: Mapping[str, Any]) -> list[str]:
    """Mean and percentiles of a kind of time, or of a metric of runs, each with its sampling error where that is half a per cent or more, and a question mark where it is not known."""
    # Gaps between tokens have no sampling error; of the others all may be unknown.
    found, stated = [], kind != "itl" and (kind in TIMES or any(error is not None for error in held["error"]))
    for level, error in zip(levels_of(held), held["error"], strict=True):
        own = held[level]
        if own is None:
            found.append("no end")
            continue
        noise = f" ±{error / own:.0%}" if own and error and error >= 0.005 * own else ""
        noise = " ±?" if own and error is None and stated else noise
        found.append((compact_time(own) if kind in TIMES else value_text(kind, kinds()[kind].packed(own))) + noise)
    return found


def percentile_label(kind: str) -> str:
    """What a row of percentiles is called."""
    return TIMES[kind] if kind in TIMES else kinds()[kind].label_of("training")

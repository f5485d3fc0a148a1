"""Ways to run a step of post-training: who trains, who generates, and how both are laid out.

The trainer is the training case of a plan of its own (``parallelism`` its layout, sequences of prompt and mean response), the generator the serving case of
another; :mod:`mlsysim.cases.rl` puts both together. Colocated they take turns on all accelerators; split, each has a pool.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from mlsysim.cases import rl as case
from mlsysim.cases.assumptions import DEFAULT, Assumptions
from mlsysim.cases.layout import divisors
from mlsysim.cases.ledger import Ledger
from mlsysim.cases.put_back import rates_alone
from mlsysim.errors import InputError, either
from mlsysim.plans.change_candidates import fleet_of
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, find_model, refuse_foreign, workload_of
from mlsysim.plans.rl_part import AUTO, COLOCATED, RlPart
from mlsysim.plans.served import Served
from mlsysim.plans.serving import server_of
from mlsysim.plans.serving_load import Server
from mlsysim.plans.training import Trained, trained
from mlsysim.simulate.rl import Lengths, Rollout, Samples, imbalance, rollout
from mlsysim.systems.types import Fleet
from mlsysim.timing.network import datasheet_network
from mlsysim.units.registry import to_si
from mlsysim.units.text import many
from mlsysim.vocabulary import Setting, listed, worded
from mlsysim.walls.fleet.communication import DistributedModel

PROMPT = 1024
_TIMES_THE_MEAN = 8
_LONG = 0.12
"""Of the most tokens: a mean below it has a longer tail, as published runs show."""
PIECE = 64
"""Tokens that a sequence is a multiple of, so that contexts and tensors divide it, whether the layout is given or searched."""


class Asked(NamedTuple):
    """What a step is asked for, with what was chosen where the plan is silent."""

    samples: Samples
    batch: int
    algorithm: case.Algorithm
    framework: case.Framework
    passes: float
    environment: float
    staleness: float


def asked_of(plan: Plan, assumed: Assumptions) -> Asked:
    """The step of a plan; refused where samples or lengths are not given."""
    part = plan.rl or RlPart()
    name = part.algorithm or "grpo"
    if part.algorithm is None:
        assumed.say("algorithm", name, DEFAULT)
    algorithm = case.algorithm(name)
    each = part.samples if part.samples is not None else algorithm.samples
    needed = (
        ("prompts", part.prompts, 512, "prompts"),
        ("samples", each, 16, "samples of each prompt"),
        ("response", part.response, 2000, "mean tokens of a response"),
    )
    missing = [(key, such, words) for key, value, such, words in needed if value is None]
    if missing:
        told = f"The time of a step of {name.upper()} depends on its {either((words for *_, words in missing), 'and')}; give such as "
        raise InputError(
            worded(told, listed([Setting(key, such) for key, such, _ in missing], ", "), "."), field=missing[0][0]
        )
    assert part.prompts and each and part.response
    if algorithm.samples and each != algorithm.samples:
        told = f"{name.upper()} has {many(algorithm.samples, 'sequence')} of a prompt, not {each}"
        raise InputError(f"{told}; leave samples out.", field="samples")
    prompt = plan.serving and plan.serving.prompt_tokens
    if not prompt:
        prompt = PROMPT
        assumed.say("prompt_tokens", prompt, DEFAULT, f"{prompt:,}")
    most = part.max_response
    if most is None:
        most = _TIMES_THE_MEAN * part.response
        assumed.say("max_response", most, DEFAULT, f"{most:,}: {_TIMES_THE_MEAN} times the mean")
    cv = part.response_cv
    if cv is None:
        cv = 1.0 if part.response > _LONG * most else 1.5
        assumed.say("response_cv", cv, DEFAULT, f"{cv:g}, lognormal, cut off at the longest response")
    own = case.framework(part.framework)
    if part.framework is None:
        assumed.say("framework", own.name, DEFAULT, f"{own.name}: its constants, fitted to {own.rows} published steps")
    elif not own.known:
        named = "none that is named" if own.name == case.OTHER else f"{own.name}: no published steps of it"
        assumed.say("framework", own.name, DEFAULT, f"{named}, so constants of {case.DEFAULT}, with a wider interval")
    staleness = part.staleness
    if staleness is None:
        staleness = 1.0 if part.generate_on or part.split not in (None, COLOCATED) else 0.0
    samples = Samples(part.prompts, each, prompt, Lengths(float(part.response), cv, float(most)))
    passes: float = algorithm.passes if part.logprob_passes is None else part.logprob_passes
    if part.teacher is not None:
        teacher, student = find_model(part.teacher), workload_of(plan.workload)
        passes = passes * teacher.active_parameter_count / student.active_parameter_count
        assumed["teacher"] = (
            f"{teacher.name}: its pass as long as its active parameters are more; its weights wait in the host's memory, which is not counted"
        )
    late = 0.0 if part.environment_time is None else to_si(part.environment_time, "s")
    batch = plan.workload.batch_size or samples.all
    if samples.all % batch:
        text = f"{samples.all:,} samples are no whole number of batches of {batch:,} sequences."
        raise InputError(text, field="batch_size")
    return Asked(samples, batch, algorithm, own, passes, late, staleness)


class Worked(NamedTuple):
    """What a step is put together from, before a framework's constants; ``seconds`` with those of a framework."""

    times: case.Times
    serving: Ledger | None
    training: Ledger
    transfer: tuple[float, float, str]
    staleness: float | None
    partial: bool

    def step(self, own: case.Framework) -> case.Step:
        """The step as a framework runs it."""
        return case.step(own, *self[:4], staleness=self.staleness, partial=self.partial)


class Way(NamedTuple):
    """One way to run a step: trainer, generator, and the step that they make."""

    asked: Asked
    trainer: Trained
    served: Served | None
    rollout: Rollout | None
    step: case.Step
    generators: int
    staleness: float | None
    worked: Worked

    @property
    def feasible(self) -> bool:
        return bool(self.trainer.step.feasible) and (self.served is None or bool(self.served.result.feasible))

    @property
    def seconds(self) -> float:
        return float(self.step.ledger.seconds)

    @property
    def rank(self) -> tuple[bool, float]:
        """The fastest first; of those that do not fit, the one whose trainer needs least."""
        return not self.feasible, self.seconds if self.feasible else float(ledger_of(self.trainer).memory)

    @property
    def text(self) -> str:
        """Its pools in words."""
        count = self.trainer.fleet.total_accelerators
        if self.staleness is None:
            return f"all {count:,} take turns" if count > 1 else "training and generation take turns"
        chips = [each.node.accelerator.metadata.key for each in (self.trainer.fleet, self.generating)]
        one, other = ("", "") if chips[0] == chips[1] else (f" {key}" for key in chips)
        return f"{count:,}{one} train and {self.generators:,}{other} generate"

    @property
    def generating(self) -> Fleet:
        return self.trainer.fleet if self.served is None else self.served.server.fleet


def ledger_of(trainer: Trained) -> Ledger:
    """The ledger of a trainer's step."""
    assert trainer.step.ledger is not None
    return trainer.step.ledger


OTHERS = 3
"""Splits that an answer tells beside the best."""


class Stepper:
    """Evaluates ways to run a step of a plan."""

    def __init__(self, plan: Plan) -> None:
        refuse_foreign(plan, "rl")
        self.plan, self.part = plan, plan.rl or RlPart()
        self.groups = find_fleets(plan.hardware)
        self.fleet, self.model = self.groups.one, workload_of(plan.workload)
        if self.model.fixed_shape or not hasattr(self.model, "heads"):
            raise InputError(f"{self.model.name} writes no tokens, so it has no post-training.", field="model")
        if plan.hardware.efficiency not in (None, "calibrated"):
            words = "rollouts are simulated with calibrated steps; leave the efficiency out"
            raise InputError(f"At first order a response has no length in time: {words}.", field="efficiency")
        self.assumed = Assumptions()
        self.asked = asked_of(plan, self.assumed)
        self.beside = None if self.part.generate_on is None else find_fleets(self._beside().hardware).one
        chips = {str(each.node.accelerator.metadata.key): None for each in (self.fleet, self.beside or self.fleet)}
        self.asked = self.asked._replace(framework=self.asked.framework.on(*chips))

    def ways(self) -> list[Way]:
        """All ways that the plan leaves open, the best first, which is told whole: others are ranked by their seconds."""
        with rates_alone() as left_out:
            best, *others = self._ranked()
        return [self._whole(best) if left_out else best, *others]

    def _whole(self, way: Way) -> Way:
        """The same with what was put back among the parts of its requests, which are as many."""
        if way.served is None:
            return way
        again = self._server(way.generators, way.staleness)
        served = again.at(way.served.layout, way.served.clients)
        worked = way.worked._replace(serving=served.ledger)
        return way._replace(served=served, worked=worked, step=worked.step(way.asked.framework))

    def _ranked(self) -> list[Way]:
        total, split = self.fleet.total_accelerators, self.part.split
        if self.beside is not None:
            if split is not None or not self.asked.algorithm.rollout:
                field = "generate_on" if split is None else "split"
                words = "there is no rollout" if split is None else "generate_on has all generators"
                raise InputError(f"Nothing is split off the trainers: {words}; leave {field} out.", field=field)
            return [self.way(self.beside.total_accelerators)]
        if not self.asked.algorithm.rollout:
            if split not in (None, COLOCATED):
                words = "without a rollout there is nothing to generate"
                raise InputError(f"{self.part.algorithm}: {words}, so that nothing is split.", field="split")
            return [self.way(0)]
        if split in (None, COLOCATED):
            if self.asked.staleness:
                words = "samples of a colocated step are of its own weights; give split, such as auto"
                raise InputError(f"Trainer and generator take turns, so that {words}.", field="staleness")
            return [self.way(0)]
        if split != AUTO:
            generators = int(split or 0)
            if generators >= total:
                raise InputError(
                    f"{generators:,} of {total:,} accelerators generate, so that none trains.", field="split"
                )
            return [self.way(generators)]
        found, refused, told = list[Way](), None, math.inf
        for generators in (0, *self._shares()):
            try:
                found = sorted([*found, self.way(generators, told)], key=lambda way: way.rank)
            except InputError as error:
                refused = refused or error
            if len(found) > OTHERS and found[OTHERS].feasible:
                told = found[OTHERS].seconds
        if not found:
            raise refused or InputError("No split of the accelerators fits.", field="split")
        return found

    def _shares(self) -> list[int]:
        """Numbers of generators to try: eighths of the fleet in whole nodes, of a node in accelerators; halves first, which are seldom far from the best."""
        total = self.fleet.total_accelerators
        unit = 1 if self.fleet.count == 1 else self.fleet.node.accelerators_per_node
        tried = {max(unit, round(total * k / 8 / unit) * unit) for k in range(1, 8)} - {0, total}
        return sorted(tried, key=lambda generators: (abs(2 * generators - total), generators))

    def way(self, generators: int, told: float = math.inf) -> Way:
        """The step with so many accelerators that generate alone; 0: all take turns. Of one that takes ``told`` seconds or more nobody asks how much more."""
        asked = self.asked
        staleness = None if not generators else asked.staleness
        trainer = self._trained(self.fleet.total_accelerators - (0 if self.beside else generators))
        layout = trainer.step.parallelism
        shards = layout["tp"] * layout["pp"] * max(1, layout["ep"] // layout["tp"])
        steps = asked.samples.all / asked.batch * asked.algorithm.trained
        whole = ledger_of(trainer) * (steps * self._of_tokens(trainer))
        own, served, seen, stream = asked.framework, None, None, None
        if asked.algorithm.rollout:
            longest = told / own.generation if own.training * whole.seconds < told else 0.0
            served, seen, stream = self._generator(generators, staleness, longest)
        times = self._times(trainer, seen, stream)
        weights = 2.0 * self.model.parameter_count
        near = shards <= self.fleet.node.accelerators_per_node if not generators else self.fleet.count == 1
        near, ends = near and not self.beside, (self.fleet, self.beside or self.fleet)
        missing = weights * (1 - 1 / shards) if not generators else weights
        moved = max(case.transfer_time(datasheet_network(each), missing, near) for each in ends)
        ledger = None if served is None else served.ledger
        worked = Worked(times, ledger, whole, moved, staleness, bool(self.part.partial))
        return Way(asked, trainer, served, seen, worked.step(own), generators, staleness, worked)

    def _beside(self) -> Plan:
        """The plan on the fleet that only generates."""
        return self.plan.replacing(hardware={"on": self.part.generate_on, "fabric": None, "chip": None})

    def _hardware(self, count: int) -> dict[str, Any]:
        """So many of the fleet's accelerators, as a plan writes them."""
        return {} if count == self.fleet.total_accelerators else fleet_of(self.plan, count)

    def _trained(self, count: int) -> Trained:
        """The training case of a mini-batch of mean sequences on so many accelerators."""
        plan, asked, split = self.plan, self.asked, self.plan.parallelism
        tokens = asked.samples.prompt + asked.samples.lengths.mean
        piece = math.lcm(PIECE, 2 * (split.cp or 1) * (split.tp or 1))
        seq_len = math.ceil(tokens / piece) * piece
        layout: dict[str, Any] = {}
        if not split.automatic:
            layout = {"mode": "given", "zero": asked.framework.zero if split.zero is None else split.zero}
            layout["recompute"] = split.recompute or ("selective" if split.recomputed else "full")
            if split.micro_batch is None and split.micro_batches is None:
                layout["micro_batch"] = self._packed(count, seq_len)
        parts: dict[str, Any] = {"task": "training", "rl": None, "serving": None, "constraints": None}
        parts |= {"parallelism": layout, "hardware": self._hardware(count)}
        return trained(plan.replacing(**parts, workload={"batch_size": asked.batch, "seq_len": seq_len}))

    def _packed(self, count: int, seq_len: int) -> int:
        """Sequences of a micro-batch: as many of mean length as one of the longest has tokens, that divide a replica's."""
        split, asked = self.plan.parallelism, self.asked
        dp = max(1, count // ((split.tp or 1) * (split.pp or 1) * (split.cp or 1)))
        pack = max(1.0, (asked.samples.prompt + asked.samples.lengths.most) / seq_len)
        return max(each for each in divisors(max(1, asked.batch // dp)) if each <= pack)

    def _of_tokens(self, trainer: Trained) -> float:
        """Tokens of a mean sequence over those of the step, whose length is a round number."""
        return (self.asked.samples.prompt + self.asked.samples.lengths.mean) / trainer.options["seq_len"]

    def _times(self, trainer: Trained, seen: Rollout | None, stream: float | None) -> case.Times:
        asked = self.asked
        options = {**trainer.options, "activation_recomputation": "none"}
        plain = ledger_of(trainer._replace(step=DistributedModel().solve(trainer.model, trainer.fleet, **options)))
        scale = self._of_tokens(trainer) * asked.samples.all / asked.batch
        ranks = trainer.step.parallelism["dp"]
        uneven = imbalance(asked.samples.lengths, asked.samples.prompt, asked.batch, ranks) - 1
        forward = (1 + uneven) * scale * (plain.seconds - plain.exposed(*case.UPDATED)) / case.FORWARD
        base = ledger_of(trainer)
        work = (base.seconds - base.exposed(*case.UPDATED)) * scale * asked.algorithm.trained
        if seen is None:
            return case.Times(0.0, 0.0, 0.0, None, 0.0, uneven * work, forward, asked.passes)
        return case.Times(
            seen.seconds, seen.even, seen.reading, stream, asked.environment, uneven * work, forward, asked.passes
        )

    def _generator(self, generators: int, staleness: float | None, told: float) -> tuple[Served, Rollout, float | None]:
        """The fastest generator that fits, its rollout, and a stream's seconds for as many samples; at least, where they are more than those ``told``."""
        server, part = self._server(generators, staleness), self.part
        clients = max(1, round(self.asked.samples.all * (1 + (staleness or 0.0))))

        def at(layout: Any) -> Served:
            found = server.at(layout, clients)
            held = int(found.result.active_requests or 0)
            # A bound is no order: output grows with what is in flight until caches are full, and falls where they overflow.
            fewer = [server.at(layout, held)] if staleness and 0 < held < clients else []
            return max((found, *fewer), key=lambda each: each.requests)

        tried = [at(layout) for layout in server.layouts()]
        if not any(each.result.feasible for each in tried) and part.generator_tp is None and part.generator_pp is None:
            tried += [at(layout) for layout in server.staged()]
        best: tuple[float, Served, Rollout, float | None] | None = None
        refused: InputError | None = None
        # Most output first, so that few others need to be played.
        for served in sorted(tried, key=lambda each: -each.requests):
            if served.result.feasible:
                longest = math.inf if best is None else best[2].seconds
                try:
                    found = self._rolled(served, staleness or 0.0, longest, told)
                except InputError as error:
                    # Weights fit and the longest response does not.
                    refused = refused or error
                    continue
                best = found if best is None or found[0] < best[0] else best
        if best is None and refused is not None:
            raise refused
        if best is None:
            return min(tried, key=lambda each: each.result.memory_utilization), Rollout(0.0, 0.0, 0.0, 0.0, True), None
        return best[1:]

    def _rolled(
        self, served: Served, staleness: float, longest: float, told: float
    ) -> tuple[float, Served, Rollout, float | None]:
        """What ranks a generator, with what it gives. A step is no shorter than its rollout, nor that than its stream or its share of the batches in flight."""
        samples = self.asked.samples
        stream = samples.all / served.requests if staleness else math.inf
        if stream < told:
            told = math.inf if self.part.partial else told * (1 + staleness)
        seen = rollout(served.result.named("machine"), served.result.named("clients"), samples, min(longest, told))
        if not staleness:
            return seen.seconds, served, seen, None
        whole = case.stale_rollout(seen.seconds, stream, staleness, bool(self.part.partial))
        return whole, served, seen, stream

    def _server(self, generators: int, staleness: float | None) -> Server:
        """The serving case of generators: all samples at once, without a front end."""
        plan, asked, own = self.plan, self.asked, self.asked.framework
        part, given = self.part, plan.serving
        lengths = asked.samples.lengths
        serving = {
            "prompt_tokens": asked.samples.prompt,
            "output_tokens": max(1, round(lengths.mean)),
            "length_cv": lengths.seen_cv,
            "offline": True,
            "memory_fraction": (given and given.memory_fraction) or own.memory[0 if staleness is None else 1],
            "max_num_seqs": (given and given.max_num_seqs) or own.slots,
        }
        degrees = {"tp": part.generator_tp, "pp": part.generator_pp, "ep": part.generator_ep}
        shared = self._hardware(generators or self.fleet.total_accelerators) if self.beside is None else {}
        hard = (plan.replacing(hardware=shared) if self.beside is None else self._beside()).hardware
        named = {name: value for name, value in hard if name not in _OF_TRAINERS}
        work = {name: getattr(plan.workload, name) for name in ("model", "precision", "dimensions")}
        work |= {"precision": part.generator_precision} if part.generator_precision else {}
        kept = {name: getattr(given, name) for name in ("engine", "cache_precision", "chunk_tokens")} if given else {}
        parts = {"workload": work, "hardware": named, "parallelism": degrees, "serving": serving | kept}
        held = {
            name: {k: v for k, v in part.items() if v is not None} if isinstance(part, dict) else part
            for name, part in parts.items()
        }
        return server_of(Plan.model_validate({"task": "serving", **held}))


_OF_TRAINERS = (
    *("stack", "launcher", "congestion", "straggler"),
    *("oversubscription", "rails", "sites", "wan_bandwidth", "wan_round_trip"),
)
"""Keys of the hardware that a generator has no use for."""

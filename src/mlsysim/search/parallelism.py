"""ParallelismOptimizer: the layout of a training job that uses the fleet best.

Every combination of tensor, pipeline, data, context and expert parallelism, virtual stages, schedule, micro-batches, ZeRO
stage and recomputation that divides the fleet, the heads and the batch is evaluated with the terms of wall 14 and the
memory of wall 2. What does not fit is rejected by name of the wall, never silently. Ties are broken towards less tensor
parallelism, fewer stages, lower ZeRO stage and less recomputation: the simplest of equals.

With NumPy, layouts are evaluated by the thousand at either fidelity (:mod:`mlsysim.search.training`); without it, one by one
with the same kernels, and with the same answer. Overlap of communication is no axis: a step that hides more is never slower,
so the best is where it is allowed, and ``sensitivity`` says what it is worth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import gcd, lcm
from typing import Any

from mlsysim.cases.assumptions import Assumptions
from mlsysim.errors import InputError
from mlsysim.physics.pipeline import SCHEDULES
from mlsysim.search import layouts
from mlsysim.search.kinds import asked_of
from mlsysim.search.layout_times import SETTINGS, LayoutTimes
from mlsysim.search.layouts import PASSED, RECOMPUTE, RankedLayouts, split_of
from mlsysim.search.steps import best_by_value, neighbours, step
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.systems.types import Fleet
from mlsysim.timing.engines import device_memory
from mlsysim.timing.launchers import launcher, launcher_names
from mlsysim.timing.stacks import stack, stack_names
from mlsysim.units.text import bytes_text
from mlsysim.walls.base import Resolver
from mlsysim.walls.binding import Binding, LazyBinding
from mlsysim.walls.explanation import written
from mlsysim.walls.fleet.communication import DistributedModel, DistributedResult
from mlsysim.walls.fleet.step_inputs import stack_name
from mlsysim.walls.inputs import declared
from mlsysim.walls.result import Rate, Result, Time

_KEPT = 10
_DOUBLINGS = 12
_NEAR = 0.05
_BETWEEN, _NODE = 8, 8
"""Share of a batch within which another one is near it."""
_MEMORY = "Wall 2 (Memory)"
_OWN = ("model", "fleet", "batch_size", "precision", "efficiency", "overlap_comm")
_AS_INPUT = {name: f"{name}_size" for name in ("tp", "pp", "ep", "cp")} | {"recompute": "activation_recomputation"}
"""What a step calls those settings of a layout that have another name there."""
_SEARCHED = tuple(name for name in SETTINGS if name != "dp")


_INPUTS = declared(f"""
    model
    fleet | fleet | the fleet: a Fleet or the name of a cluster in the zoo
    batch_size | whole [1, 1e9] | sequences (or samples) per step
    precision, efficiency or calibrated
    max_tp? | whole [1, 65536] | largest tensor-parallel degree | | the accelerators of a node
    max_pp = 64 | whole [1, 4096] | largest number of stages
    max_cp = 1 | whole [1, 4096] | largest context-parallel degree
    max_ep = 64 | whole [1, 65536] | largest expert-parallel degree
    max_v_stages = 8 | whole [1, 128] | most virtual stages per device
    max_zero_stage = 3 | whole [0, 3] | highest ZeRO stage
    recompute | object | recomputation modes to try, such as ['none', 'selective'] | | none, selective, full
    schedule? | one of {", ".join(SCHEDULES)}, all | pipeline schedule, or 'all' to try each | | 1f1b, interleaved with virtual stages
    launcher? | one of {", ".join(launcher_names())} | trainer that has to run the layout | | any
    optimizer_offload | object | fractions of the optimizer state on the host to try, such as [0, 0.5, 1] | | 0: all of it on the devices
    fixed? | object | settings that every layout has, such as {{'tp': 8}}
    compare_to? | object | a layout to rank among the others, such as {{'tp': 8, 'pp': 16}}
""")
_INPUTS |= {
    name: replace(_INPUTS[name], default=tried)
    for name, tried in {"recompute": RECOMPUTE, "optimizer_offload": (0.0,)}.items()
}


class ParallelismResult(Result):
    """The best layout, what came next and what was rejected.

    ``sensitivity`` has for each setting the step up and down that is worth most when all other settings may follow, as a
    fraction of the best MFU. ``ties`` counts the layouts with the MFU of the best (to nine digits), itself included. The best of many predictions is
    on average predicted too well: ``near`` are the layouts behind it by no more than predictions of layouts of one run scatter (4 %), any of which
    may be the fastest, and ``simplest`` is the one of them with fewest moving parts.
    """

    objective_value: float
    best_config: dict[str, Any]
    best_mfu: float
    best_throughput: Rate
    best_step_time: Time
    total_searched: int
    search_space_size: int
    rejected: dict[str, int]
    top_candidates: tuple[dict[str, Any], ...]
    ties: int = 1
    near: int = 1
    simplest: dict[str, Any] | None = None
    runner_up: dict[str, Any] | None = None
    runner_up_behind_fraction: float | None = None
    sensitivity: dict[str, Any]
    compared: dict[str, Any] | None = None

    def undecided(self) -> str:
        """What predictions cannot tell from the best, in words; nothing where there is no other."""
        if self.near == 1 or self.simplest is None:
            return ""
        simplest, best = self.simplest, self.best_config
        behind = 1 - simplest["mfu"] / self.best_mfu
        own = f"{simplest['v_stages']} chunk{'s' * (simplest['v_stages'] > 1)} a stage"
        told = [own] if simplest["v_stages"] > 1 else []
        if _label(simplest) == _label(best):
            told = [own] if simplest["v_stages"] != best["v_stages"] else []
            told += [f"recompute {simplest['recompute']}"] if simplest["recompute"] != best["recompute"] else []
            told += [f"ZeRO {simplest['zero_stage']}"] if simplest["zero_stage"] != best["zero_stage"] else []
            count = simplest["microbatch_count"]
            told += [f"{count:,} micro-batch{'es' * (count > 1)}"] if count != best["microbatch_count"] else []
        beside = f" with {', '.join(told)}" if told else ""
        other = f", the simplest of them {_label(simplest)}{beside} ({behind:.1%} behind)" if behind > 0 else ""
        return f"; {self.near:,} are within {layouts.SCATTER:.0%}, too close for predictions to rank{other}"


class ParallelismOptimizer(Resolver[ParallelismResult]):
    """Search layouts for the highest model FLOP utilisation that fits into memory."""

    tier = "optimizer"
    walls = (14,)
    result = ParallelismResult
    inputs = (
        _INPUTS
        | {name: DistributedModel.inputs[name] for name in PASSED if name not in _OWN}
        | {"overlap_comm": replace(DistributedModel.inputs["overlap_comm"], default=True)}
    )
    equations = written(r"""
        best_mfu: max over layouts of MFU, memory <= capacity
            \max_c \mathrm{MFU}(c)\ \text{s.t.}\ M(c) \le C
    """)
    known_fallacies = (
        "The layout with the least communication wins: it has to fit first.",
        "A published layout is optimal: it is near the best of many that differ by a few per cent.",
        "The best that a search finds is as fast as predicted: among many near ties it picks the one whose error flatters it most.",
    )

    def _solve(self, x: Any, assumed: Assumptions) -> ParallelismResult:
        """Evaluate every layout that divides and keep the best that fit."""
        if x.compare_to is not None and not isinstance(x.compare_to, dict):
            raise InputError(
                f"compare_to is a table of degrees such as {{'tp': 8, 'pp': 16}}, got {type(x.compare_to).__name__}.",
                field="compare_to",
            )
        modes, fractions = layouts.recompute_modes(x.recompute), layouts.offload_fractions(x.optimizer_offload)
        chip = x.fleet.node.accelerator
        # What was given, and at first order the defaults of the search.
        calibrated = isinstance(x.efficiency, str)
        names = [name for name in PASSED if name in (*_OWN[:5], "seq_len") or name in assumed.given or not calibrated]
        shared = {name: getattr(x, name) for name in names if getattr(x, name) is not None}
        divided, refused = Counter[str](), Counter[str]()
        found = list(layouts.splits(x, divided))
        offered = tuple(mode for mode in modes if "recompute" in assumed.given or mode in _offered(x))
        table, searched, miss = layouts.evaluate(shared, found, offered or modes, fractions, x.launcher, refused)
        rejected = {_MEMORY: searched - len(table)} | dict(refused)
        rejected |= {f"{words} (splits)": n for words, n in divided.items()}
        if 0 < len(offered) < len(modes):
            lacking = ", ".join(mode for mode in modes if mode not in offered)
            rejected[f"recompute {lacking}: not in {stack_name(x)}"] = (
                searched // len(offered) * (len(modes) - len(offered))
            )
        if refused and miss is None:
            causes = ", ".join(f"{n:,} {words.partition(':')[0]}" for words, n in refused.most_common(3))
            text = f"{launcher(x.launcher).title} runs none of the {refused.total():,} layouts of this plan: {causes}."
            raise InputError(text, field="launcher")
        if miss is None:
            raise InputError(_nothing_divides(x, divided))
        if not len(table):
            enough = _least_fleet(x, shared, offered or modes, fractions)
            lacks, least = _lacking(x, searched, miss), _least_that_fits(x, enough)
            told = {"lacks": lacks, "least": least, "nearest": miss.config, "fleet": enough and enough[::2]}
            raise InputError(f"{lacks} {least}", fits=False, **told)
        best, ranks = table.row(0), table.splits()
        near, simplest = table.near()
        second = next((place for split, place in ranks.items() if split != split_of(best)), None)
        runner_up, behind, gap = None, None, ""
        if second is not None:
            runner_up = table.row(second)
            behind = 1 - runner_up["mfu"] / best["mfu"]
            gap = f"; the next split, {_label(runner_up)}, is {behind:.1%} behind"
        sentence = f"{_label(best)} is the best of {len(table):,} layouts that fit{gap}; memory rejected {rejected[_MEMORY]:,}."
        fastest = _step(shared, best)
        # What the software of the best step does itself is no default of the search.
        for name in assumed.keys() & set(PASSED) - shared.keys():
            del assumed[name]
        assumed.learn(each for each in fastest.assumed if each.name not in _AS_INPUT.values())
        return ParallelismResult.of(
            assumed,
            binding=LazyBinding(lambda: _bound(fastest, sentence)),
            objective_value=best["mfu"],
            best_config=best,
            best_mfu=best["mfu"],
            best_throughput=x.batch_size / best["step_time_s"],
            best_step_time=best["step_time_s"],
            total_searched=searched,
            search_space_size=searched,
            rejected=rejected,
            top_candidates=tuple(table.row(place) for place in range(min(_KEPT, len(table)))),
            ties=table.ties(),
            near=near,
            simplest=simplest,
            runner_up=runner_up,
            runner_up_behind_fraction=behind,
            sensitivity=_sensitivity(x, shared, table, best),
            compared=table.rank(x.compare_to) if x.compare_to else None,
            cited={"model": x.model, "hardware": chip},
        )


def _step(shared: Mapping[str, Any], layout: Mapping[str, Any]) -> DistributedResult:
    """The step of a layout that the search has found."""
    names = [name for name in SETTINGS if name in layout and name != "dp" and (name != "schedule" or layout["pp"] > 1)]
    named = {_AS_INPUT.get(name, name): layout[name] for name in names}
    return DistributedModel().solve(**asked_of(DistributedModel, DistributedModel.inputs, {**shared, **named}))


def _bound(step: DistributedResult, sentence: str) -> Binding:
    """What binds the best layout, after what the search found."""
    own = step.binding
    return Binding(own.wall, own.name, own.margin, f"{sentence} {own.sentence}")


def _offered(x: Any) -> tuple[str, ...]:
    """Recomputation modes that the software has."""
    known = isinstance(x.efficiency, str) and stack_name(x) in stack_names()
    return stack(stack_name(x)).modes if known else RECOMPUTE


def _where(x: Any) -> str:
    """The model, the fleet, and what every layout was to have."""
    return f"{x.model.name} on {x.fleet.total_accelerators:,} x {x.fleet.node.accelerator.name}{_held(x)}"


def _held(x: Any) -> str:
    """What every layout was to have."""
    said = {"microbatch_count": "micro-batches", "micro_batch": "micro-batches of"}
    said |= {"v_stages": "virtual stages", "zero_stage": "ZeRO"}
    return " with " + ", ".join(f"{said.get(n, n.upper())} {v}" for n, v in x.fixed.items()) if x.fixed else ""


def _nothing_divides(x: Any, divided: Counter[str]) -> str:
    """What keeps every split from dividing."""
    if not x.fixed and x.zero_shard is None:
        return f"No layout of {x.model.name} divides: {layouts.why_none(x)}"
    causes = "; ".join(f"{n} because {words}" for words, n in divided.most_common(3)) or "none has these settings"
    size = (x.fixed or {}).get("micro_batch", 1)
    if x.batch_size % size:
        # Of the batches near it, the one that most degrees of the fleet divide.
        near = range(max(1, x.batch_size // size // 2), 2 * (x.batch_size // size) + 2)
        most = max(near, key=lambda n: (gcd(n, x.fleet.total_accelerators), -abs(n * size - x.batch_size))) * size
        causes = f"micro-batches of {size} do not divide the batch of {x.batch_size:,}; use a batch of {most:,}"
    return f"No split of {_where(x)} works: {causes}."


def _lacking(x: Any, searched: int, miss: layouts.Miss) -> str:
    """What the nearest of the layouts lacks."""
    capacity, how = device_memory(x.fleet.node.accelerator, isinstance(x.efficiency, str)), miss.config
    needed = miss.needed * 1e9
    tried = "the only layout" if searched == 1 else f"none of {searched:,} layouts"
    return (
        f"Does not fit: {tried} of {_where(x)} {'does not' if searched == 1 else 'does'}; {'it' if searched == 1 else 'the nearest'}, "
        f"{_label(how)} with {_spared(how)}, {how['microbatch_count']:,} micro-batch{'es' * (how['microbatch_count'] > 1)}, "
        f"needs {bytes_text(needed)} of {bytes_text(capacity)}, {bytes_text(needed - capacity)} too much."
    )


def _spared(how: dict[str, Any]) -> str:
    return f"ZeRO {how['zero_stage']}, recompute {how['recompute']}"


def _least_that_fits(x: Any, least: tuple[int, dict[str, Any], int] | None) -> str:
    """The least fleet that would do, and how it is split."""
    if least is not None:
        count, how, batch = least
        other = "" if batch == x.batch_size else f", and a batch of {batch:,} ({x.batch_size:,} does not divide)"
        return f"The smallest fleet that would hold it{_held(x)} is {count:,} x {x.fleet.node.accelerator.name}, as {_label(how)} with {_spared(how)}{other}."
    most = 3 * x.fleet.total_accelerators << _DOUBLINGS - 2
    return f"No layout{_held(x)} on up to {most:,} of them divides the batch of {x.batch_size:,} and fits."


def _least_fleet(
    x: Any, shared: dict[str, Any], modes: tuple[str, ...], fractions: tuple[float, ...]
) -> tuple[int, dict[str, Any], int] | None:
    """The least fleet of the same nodes on which some layout fits, that layout and the batch: the same, or the nearest of which every replica has a
    whole share; where none of any fleet divides it the next power of two. Fleets are 2, 3, 4, 6, 8, 12 ... times as large, then up to eight
    sizes of whole nodes between the one that fits and the one before."""
    wanted, own, node = x.batch_size, x.fleet.count, x.fleet.total_accelerators // x.fleet.count

    def tried(counts: Iterable[int]) -> list[tuple[int, int]]:
        each = [(n, batch) for n in counts for batch in (wanted, round(wanted / (n * node)) * n * node)]
        return [one for one in each if abs(one[1] - wanted) <= _NEAR * wanted]

    def first(tries: Iterable[tuple[int, int]]) -> tuple[int, dict[str, Any], int] | None:
        for count, batch in dict.fromkeys(tries):
            fleet = _grown(x.fleet, count)
            if fleet is None:
                continue
            groups = list(layouts.splits(x.but(fleet=fleet, batch_size=batch)))
            # Whole replicas share most and need least with the highest stage and the smallest micro-batches.
            groups = [
                replace(
                    each, zeros=each.zeros if x.launcher else each.zeros[-1:], micro_batches=each.micro_batches[-1:]
                )
                for each in groups
            ]
            asked = {**shared, "fleet": fleet, "batch_size": batch}
            table = layouts.evaluate(asked, groups, modes[-1:], fractions, x.launcher)[0]
            if len(table):
                return count, table.row(0), batch
        return None

    counts = [own * part << power - 1 for power in range(1, _DOUBLINGS) for part in (2, 3)]
    found = first([*tried(counts), *((n, 1 << (wanted - 1).bit_length()) for n in counts)])
    if found is not None:
        before = max((n for n in (own, *counts) if n < found[0]), default=own)
        whole = lcm(node, _NODE) // node
        between = range(
            (before // whole + 1) * whole, found[0], whole * max(1, (found[0] - before) // whole // _BETWEEN)
        )
        found = first(tried(between)) or found
    return found if found is None else (found[0] * node, *found[1:])


def _grown(fleet: Fleet, count: int) -> Fleet | None:
    """So many nodes; more chips than a part of a usual node has are in whole ones, or None where they do not fill these."""
    key, total = fleet.node.accelerator.metadata.key, fleet.total_accelerators
    part = key and fleet.count == 1 and total < _NODE and parse_fleet(f"{total}x{key}").one.node == fleet.node
    if not part:
        return fleet.model_copy(update={"count": count})
    filled = parse_fleet(f"{_NODE}x{key}").one.node.holding(count * total)
    return parse_fleet(f"{count * total}x{key}").one if filled else None


def _sensitivity(x: Any, shared: dict[str, Any], table: RankedLayouts, best: dict[str, Any]) -> dict[str, Any]:
    """What the next value of each setting is worth, with all the others free, and what overlap is."""
    found: dict[str, Any] = {}
    orders = {"recompute": RECOMPUTE, "schedule": SCHEDULES}
    for name in _SEARCHED:
        firsts = best_by_value(table.columns[name])
        order = orders.get(name, sorted(firsts))
        places = {order.index(value): index for value, index in firsts.items()}
        entry: dict[str, Any] = {"at": best[name]}
        for direction, place in neighbours(order.index(best[name]), places).items():
            mfu = table.columns["mfu"][places[place]]
            entry[direction] = step(order[place], mfu, best["mfu"], larger=True)
        if len(entry) > 1:
            found[name] = entry
    other = LayoutTimes({**shared, "overlap_comm": not x.overlap_comm}, bool(best["optimizer_offload"])).of(best)
    mfu = None if other is None else other[0]
    found["overlap_comm"] = {
        "at": x.overlap_comm,
        "down" if x.overlap_comm else "up": step(not x.overlap_comm, mfu, best["mfu"], larger=True),
    }
    return found


def _label(config: dict[str, Any]) -> str:
    extra = "".join(f" {name.upper()}{config[name]}" for name in ("ep", "cp") if config[name] > 1)
    return f"TP{config['tp']} PP{config['pp']} DP{config['dp']}{extra}"

"""Serving engines: what each adds to its kernels and how it schedules, read from ``data/software/engines.toml``.

``engine("vLLM")`` gives one; its kernels are the chip's profile under ``"serving." + Engine.kernels``
(:func:`mlsysim.timing.profile.profile`), its messages :func:`engine_network`.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field

from mlsysim.errors import InputError, ZooFileError, unknown_name
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.precision import format_of
from mlsysim.timing.collectives import collective_constants, measured_network
from mlsysim.timing.network import Reduction, Tabled
from mlsysim.timing.profile import profile, software_file
from mlsysim.timing.stacks import stack
from mlsysim.units.fields import Capacity, Record
from mlsysim.units.registry import Q_, to_si
from mlsysim.zoo.constants import constant
from mlsysim.zoo.files import entries
from mlsysim.zoo.provenance import Source
from mlsysim.zoo.store import user_folder


@cache
def _seconds(value: str | float) -> float:
    return to_si(Q_(value), "s") if isinstance(value, str) else value


Span = Annotated[float, BeforeValidator(_seconds)]
"""A time as a file gives it, in seconds."""


ANY = "any"
"""What a model that was not measured on an engine has of those that were."""


class Seen(Record):
    """An architecture that was measured on an engine, or it with weights of one format (or :data:`ANY` other): factors on kernels of its prompts and of its answers (these with
    the engine's own time), one on what the host launches beside prompts, and the runs behind them."""

    name: str
    prompts: float = Field(gt=0)
    answers: float = Field(gt=0)
    launches: float = Field(default=1.0, gt=0)
    rows: int


class Small(Record):
    """What an engine is set to, where nobody says, on devices of less than so much ``memory``, and on some ``chips``."""

    memory: Capacity
    chips: tuple[str, ...] = ()
    token_budget: int = Field(gt=0)
    offline_budget: int = Field(gt=0)
    prefill_budget: int = Field(gt=0)
    max_num_seqs: int = Field(gt=0)

    def holds(self, chip: HardwareNode) -> bool:
        """Whether a chip is one of those."""
        named = any(name.lower() in (chip.metadata.key or chip.name).lower() for name in self.chips)
        return named or to_si(chip.memory.capacity, "byte") < to_si(self.memory, "byte")


class Engine(Record):
    """A serving engine; times in seconds. What each means is said at the top of ``data/software/engines.toml``."""

    name: str
    like: str | None = None
    """The shipped engine that a user's own constants are of."""
    year: int
    policy: Literal["mixed", "prefill_first"]
    kernels: str
    step: Span
    per_sequence: Span
    drafted_token: Span = 0.0
    small_kernels: float = Field(ge=0)
    quantised_kernels: float = Field(default=0.0, ge=0)
    host_operator: Span
    waited_operator: Span
    answer_operator: Span = 0.0
    prompt_operators: float = Field(default=0.0, ge=0)
    answer_operators: float = Field(default=0.0, ge=0)
    attended_row: Span = 0.0
    front_end: Span
    tokenise: Span = 0.0
    steps_ahead: float = Field(default=0.0, ge=0)
    hand_over: Span
    expert_block: Span
    cold_start: Span
    gather_steps: int = Field(ge=0)
    reduce_scale: float = Field(default=1.0, gt=0)
    product_scale: float = Field(default=1.0, gt=0)
    prompt_scale: float = Field(default=1.0, gt=0)
    context_scale: float = Field(default=1.0, gt=0)
    experts_bf16: float = Field(default=1.0, gt=0)
    experts_fp8: float = Field(default=1.0, gt=0)
    experts_nvfp4: float = Field(default=1.0, gt=0)
    experts_mxfp4: float = Field(default=1.0, gt=0)
    experts_int4: float = Field(default=1.0, gt=0)
    block_scaled: bool = True
    cuts_prompts: bool = True
    reserves: bool = False
    windows: bool = True
    grouped: bool = True
    masked_share: float = Field(default=1.0, gt=0, le=1)
    window_share: float = Field(default=0.0, ge=0, le=1)
    dense_short: bool = True
    halves: bool = False
    gathers: bool = False
    scatters: bool = False
    overlaps_prompts: bool = False
    graphs: tuple[int, ...] = ()
    block_tokens: int = Field(default=16, gt=0)
    token_budget: int = Field(gt=0)
    offline_budget: int | None = Field(default=None, gt=0)
    prefill_budget: int = Field(gt=0)
    max_num_seqs: int | None = Field(default=None, gt=0)
    small: Small | None = None
    state_ratio: float = Field(default=0.0, ge=0)
    states_kept: int = Field(default=1, gt=0)
    memory_utilisation: float = Field(gt=0, le=1)
    memory_rule: Literal["all", "free"] = "all"
    source: Source
    fit_error_pct: float | None = None
    vendors: tuple[str, ...] = ()
    first_on: tuple[str, ...] = Field(
        default=(), description="vendors and families of chips that it is the usual engine of"
    )
    aliases: tuple[str, ...] = ()
    models: tuple[Seen, ...] = ()
    chips: tuple[str, ...] = Field(default=(), description="chips that runs of it were fitted on")

    @property
    def spoken(self) -> str:
        """Its name as people write it."""
        return self.name.replace("llama_cpp", "llama.cpp").replace("T_LLM", "T-LLM").replace("_", " ")

    def on(self, chip: HardwareNode, offline: bool = False, prefixes: bool = True) -> Self:
        """As it is set on a chip where nobody says; ``offline`` without a server in front, without ``prefixes`` with no cache of them."""
        own = self.small if self.small is not None and self.small.holds(chip) else self
        set_to = {name: getattr(own, name) for name in ("token_budget", "prefill_budget", "max_num_seqs")}
        if not prefixes:
            set_to["states_kept"] = 1
        if offline and own.offline_budget is not None:
            set_to["token_budget"] = own.offline_budget
        return self.model_copy(update=set_to)

    def seen(self, model: TransformerWorkload, precision: str) -> Seen | None:
        """What is known of a model from runs of it on this engine: in its format, or else of the model."""
        known = {each.name: each for each in self.models}
        return known.get(seen_as(model, precision), known.get(architecture(model))) if known else None

    def measured(self, model: TransformerWorkload, precision: str) -> bool:
        """Whether runs of a model in a format were measured on this engine."""
        return any(each.name == seen_as(model, precision) for each in self.models)

    def others(self, precision: str) -> Seen | None:
        """What is expected of a model that was not measured on this engine: of one in its format, where others were measured in it."""
        known = {each.name: each for each in self.models}
        return known.get(f"{ANY} {format_class(precision)}", known.get(ANY))

    def factors(self, model: TransformerWorkload, precision: str) -> tuple[float, float, float] | None:
        """Factors on kernels of the model's prompts and of its answers, and on launches; None where no model was measured."""
        found = self.seen(model, precision) or self.others(precision)
        return None if found is None else (found.prompts, found.answers, found.launches)


def architecture(model: TransformerWorkload) -> str:
    """Layers, width and size of a model: checkpoints of one architecture are one model to an engine, whatever they are called."""
    return f"{model.stack.layers}x{model.stack.hidden} {model.parameter_count / 1e9:.3g}B"


def format_class(precision: str) -> str:
    """A format of weights as runs tell it apart: those of 16 bits and more are one, and so are those of 8 bits that are multiplied alike, whatever
    shares a scale."""
    weights = format_of(precision)
    if not weights.narrow:
        return "bf16"
    return weights.measured if weights.weight_only or weights.bits < 8 else weights.arithmetic[0]


def seen_as(model: TransformerWorkload, precision: str) -> str:
    """An architecture with weights of a format: an engine has other kernels for each, and launches others around them."""
    return f"{architecture(model)} {format_class(precision)}"


@cache
def serving_table(name: str) -> dict[str, Any]:
    """One table of ``data/software/serving.toml``."""
    return software_file("serving")[name]


def engine_names() -> tuple[str, ...]:
    """Engines that have constants."""
    return tuple(entries("mlsysim.data", "software/engines.toml"))


DEFAULT_ENGINE, _OWN = "vLLM", "H200"
"""What serves where nothing is said, but on chips that it does not run on."""


def default_engine(chip: HardwareNode) -> str:
    """The engine of a chip where nothing is said: one that runs there."""
    kind = f"{chip.vendor} {chip.family}"
    return next((key for key, row in _tables(user_folder()).items() if kind in row.get("first_on", ())), DEFAULT_ENGINE)


ENGINES = engine_names()
"""The engines of ``data/software/engines.toml``: an entry there is all that a further one needs."""


def _tables(own: str) -> dict[str, Any]:
    """Engines by name: those that ship, and the user's own, each of them like one of those."""
    return software_file("engines") | _of_user(own)


@cache
def _of_user(own: str) -> dict[str, Any]:
    return {name: row for _, name, row in _files_of_user(own)}


def _files_of_user(own: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Files of the user's own engines, with the name and the table of each."""
    for path in sorted(Path(own).glob("engines/*.toml")) if own else ():
        try:
            read = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ZooFileError(f"{path}: {error}.", file=str(path), entry="", reason=str(error)) from None
        for name, row in read.items():
            why = "mlsysim comes with an engine of that name; choose another" if name in ENGINES else ""
            if why or not isinstance(row, dict) or not isinstance(row.get("like"), str):
                why = why or 'an engine of your own is a table with the engine that it is like, such as like = "vLLM"'
                raise ZooFileError(f"{path}, entry {name!r}: {why}.", file=str(path), entry=name, reason=why)
            yield str(path), name, row


def engine_problems() -> list[tuple[str, str]]:
    """The user's own engines that cannot be read, each with a sentence."""
    own, found = user_folder(), []
    try:
        names = [name for _, name, _ in _files_of_user(own)]
    except ZooFileError as error:
        return [(error.entry, str(error))]
    for name in names:
        try:
            engine(name)
        except InputError as error:
            found.append((name, str(error)))
    return found


def _key(name: str) -> str | None:
    table, folded = _tables(user_folder()), _folded(name)
    return next((k for k, row in table.items() if folded in {_folded(n) for n in (k, *row.get("aliases", ()))}), None)


def is_engine(name: str) -> bool:
    """Whether a name is that of a serving engine."""
    return _key(name) is not None


def engine(name: str) -> Engine:
    """The engine of that name; raises with the nearest one."""
    return _engine(name, user_folder())


@cache
def _engine(name: str, own: str, before: tuple[str, ...] = ()) -> Engine:
    table, key = _tables(own), _key(name)
    if key is None:
        raise unknown_name("serving engine", name, table, f"use one of {', '.join(sorted(table, key=str.lower))}.")
    if key in before:
        raise InputError(f"The engine {key!r} is like itself; write like = with the name of one that ships.")
    if "like" in table[key]:
        row = dict(table[key])
        base = _engine(row["like"], own, (*before, key))
        if key not in ENGINES and "fit_error_pct" not in row:
            row["chips"] = ()  # runs of the other engine are none of it
        if "models" in row:
            row["models"] = tuple(Seen(name=name, **seen) for name, seen in row["models"].items())
        if "launched_as" in row:
            each = _launch(row.pop("launched_as"), own)
            row |= {"answer_operator": each, "host_operator": max(each, base.host_operator)}
        return Engine(**{**dict(base), "aliases": (), **row, "name": key, "like": base.like or base.name})
    fitted = dict(software_file("engine_constants").get(key, {}))
    for about in ("spread", "loose"):
        fitted.pop(about, None)
    models = tuple(Seen(name=name, **seen) for name, seen in fitted.pop("models", {}).items())
    return Engine(name=key, models=models, **{**table[key], **fitted})


def _launch(name: str, own: str) -> float:
    """Host time of an operator as an engine has it, or a training stack: so many times what starting one from PyTorch takes."""
    if is_engine(name) and "launched_as" not in _tables(own)[name]:
        return _engine(name, own).host_operator
    return stack(name).host * profile(Hardware.get(_OWN)).memory_bound.times[2]


def _folded(name: str) -> str:
    return re.sub(r"[-_. ]", "", name.lower())


def chip_class(chip: HardwareNode) -> str:
    """The generation whose serving kernels were measured, or one that is taken for it; "other" for all the rest."""
    name = f"generation_{(chip.generation or '').replace(' ', '_')}"
    known = serving_table("profile")["serving"].get(name)
    return "other" if known is None else known.get("like", name).removeprefix("generation_")


def strangeness(chip: HardwareNode) -> str:
    """What is not known of a chip that no run was on, as intervals call it: a ``chip`` of a generation with kernel tables, ``kernels`` of another, a ``cpu``."""
    if chip.family == "cpu":
        return "cpu"
    return "chip" if chip_class(chip) in serving_table("measured")["kernels"] else "kernels"


def offered_memory(chip: HardwareNode) -> float:
    """Memory that the driver offers, over the datasheet's: as read off the chip of that name, else as its profile has it."""
    own, key = profile(chip, "serving"), chip.metadata.key
    if own.driver_memory is None or key is None or key not in Hardware:
        return own.usable_memory
    return to_si(own.driver_memory, "byte") / to_si(Hardware.get(key).memory.capacity, "byte")


def device_memory(chip: HardwareNode, calibrated: bool = True) -> float:
    """Bytes that training, serving and a pass have on an accelerator: of the datasheet at first order; calibrated, what the driver offers
    where that is more."""
    return to_si(chip.memory.capacity, "byte") * (max(1.0, offered_memory(chip)) if calibrated else 1.0)


_NODE = 8
"""Chips of a node."""


def engine_network(chip: HardwareNode, scale: float = 1.0, port: float | None = None) -> Tabled:
    """What messages between chips reach inside an engine; ``port`` is the line rate of what each has of the fabric (bytes a second), that of the
    runs which the shares were read off where None."""
    port = to_si(constant("infiniband_ndr_bandwidth").quantity, "byte/s") if port is None else port
    link, sums = chip.link, serving_table("all_reduce")
    stated = chip.interconnect.bandwidth if chip.interconnect is not None else profile(chip).collective.unlinked
    two_way = 2 * to_si(stated, "byte/s")
    near = host = _reduction(sums["host"], two_way)
    domain = 1
    if link is not None and chip.metadata.key not in serving_table("unbridged")["chips"]:
        two_way, domain = to_si(link.bandwidth_total, "byte/s"), link.domain or _NODE
        near = _reduction(sums.get(chip_class(chip), sums["other"]), two_way)
    shares, hop = collective_constants(), to_si(profile(chip, "serving").collective.fabric_start, "s")
    # Where no links join a node, a ring through it has the pace that sums over the host were measured at.
    around = 2 * (1 - 1 / _NODE) * host.rate(_NODE) / shares["ring"]["efficiency"]
    inside = two_way / 2 if domain >= _NODE else around
    return Tabled(
        link=serving_table("exchange")["link_share"] * (two_way / 2),
        link_latency=table_seconds("exchange", "start"),
        fabric=serving_table("exchange")["network_share"] * port,
        fabric_latency=table_seconds("exchange", "network_start"),
        domain=domain,
        near=near,
        host=host,
        far=measured_network(chip, max(domain, _NODE), link=inside, fabric=shares["fabric"]["share"] * port, hop=hop),
        node=_NODE,
        pools=serving_table("cache_transfer")["share"] * port,
        scale=scale,
    )


def _reduction(table: Mapping[str, Any], two_way: float) -> Reduction:
    rates = {int(n): share * two_way for n, share in table["share"].items()}
    return Reduction(_seconds(table["start"]), _seconds(table["per_rank"]), rates)


def table_seconds(name: str, field: str) -> float:
    """A time of ``data/software/serving.toml`` in seconds."""
    return _seconds(serving_table(name)[field])

"""Options made from the keys of a plan: a command that answers plans takes each key as an option, under any of its names.

The options of a command are made when it is parsed or helped, so that ``mlsysim --help`` need not know plans at all. A command
declares what is its own; what it declares is not made again.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand

from mlsysim.cli.options import is_plan_file
from mlsysim.errors import InputError, MLSysError

if TYPE_CHECKING:
    from mlsysim.plans.plan import Plan
    from mlsysim.plans.schema import Leaf

_GIVEN = "mlsysim.plan"
_PREFIX = "plan_"
_SHORT = {
    "workload.batch_size": "-b", "workload.seq_len": "-s", "workload.precision": "-p", "hardware.efficiency": "-e",
}  # fmt: skip
_PANELS = {
    "": "The plan", "workload": "What runs", "workload.dimensions": "Dimensions of the model, if not the zoo's",
    "hardware": "What it runs on",
    "hardware.chip": "Other figures of the chip", "parallelism": "How it is split",
    "serving": "Traffic, engine and limits", "rl": "Post-training", "ops": "Where, how long, for how much", "constraints": "What must hold",
}  # fmt: skip
_LAYOUT = "--layout"


def _leaves() -> Mapping[str, Leaf]:
    """The keys of a plan, known once a command needs them."""
    from mlsysim.plans.plan import Plan

    return Plan.leaves()


def option(key: str) -> str:
    """How the command line writes a key of a plan."""
    return "--" + _leaves()[key].flat.replace("_", "-")


def as_an_option(leaf: Leaf, value: Any) -> str:
    """A setting as a shell reads it: ``--zero 3``, ``--no-overlap``, ``--price 'Google Cloud'``."""
    if isinstance(value, bool):
        return option(leaf.key) if value else f"--no-{leaf.flat.replace('_', '-')}"
    return option(leaf.key) if value is None else f"{option(leaf.key)} {shlex.quote(str(value))}"


def in_options(error: MLSysError) -> str:
    """The sentence of an error; of one that an answer to a plan ended in, settings as options."""
    if not error.details.get("of_a_plan"):
        return str(error)
    from mlsysim.plans.schema import spoken

    return spoken(error.message, as_an_option, _leaves())


class PlanCommand(TyperCommand):
    """A command with the options of a plan beside its own."""

    task: ClassVar[str | None] = None
    keys: ClassVar[tuple[str, ...]] = ()
    _made: list[Any] | None = None

    def get_params(self, ctx: Any) -> list[Any]:
        """Own parameters, then those of the plan."""
        own = super().get_params(ctx)
        if self._made is None:
            self._made = _options(self._offers(own))
        return [*own, *self._made]

    def _offers(self, own: list[Any]) -> dict[str, Offer]:
        return _offered(self.task, self.keys, frozenset("--" + opt.lstrip("-") for param in own for opt in param.opts))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Other names of options become theirs, and what is given of the plan is put aside."""
        own = super().get_params(ctx)
        offers = self._offers(own)
        args = _in_our_words(args, own, offers, self.task)
        self._made = _options(_given(args, own, offers))
        args = self._as_one_word(ctx, own, self._with_the_model(ctx, own, args))
        rest: list[str] = super().parse_args(ctx, args)
        held = [name for name in ctx.params if name.startswith(_PREFIX)]
        given = {name.removeprefix(_PREFIX): ctx.params.pop(name) for name in held}
        ctx.meta[_GIVEN] = {name: value for name, value in given.items() if value not in (None, [], ())}
        return rest

    def _with_the_model(self, ctx: Any, own: list[Any], args: list[str]) -> list[str]:
        """Arguments with ``--model X`` as the word X, where that is what the command lacks."""
        place = next((i for i, arg in enumerate(args) if arg.partition("=")[0] == "--model"), None)
        if place is None:
            return args
        _, mark, value = args[place].partition("=")
        first = [*args[:place], *([value] if mark else []), *args[place + 1 :]]
        words = [each for each in own if each.param_type_name == "argument" and each.required]
        named = next((each.name for each in words if "MODEL" in each.metavar or "PLAN" in each.metavar), None)
        if named in (None, "model"):
            return args if named is None else first
        found = self.make_parser(ctx).parse_args(list(args))[0].get(named)
        if isinstance(found, tuple) and "=" in found[0]:
            # Keys with values that begin a sweep are no plan.
            return [value or args[place + 1], *args[:place], *args[place + (1 if mark else 2) :]]
        return args if found else first

    def _as_one_word(self, ctx: Any, own: list[Any], args: list[str]) -> list[str]:
        """Arguments with MODEL FLEET as the word MODEL@FLEET, where a command takes that."""
        names = [each for each in own if each.param_type_name == "argument"]
        place = next((i for i, each in enumerate(names) if "MODEL@FLEET" in (each.metavar or "")), None)
        if place is None or "--on" in args:
            return args
        found, more, _ = self.make_parser(ctx).parse_args(list(args))
        words = [word for word in (*(found.get(each.name) for each in names), *more) if isinstance(word, str)]
        match words[place:]:
            case [model, fleet, *_] if "@" not in model and not is_plan_file(model) and is_hardware(fleet):
                at = args.index(model)
                args = [*args[:at], f"{model}@{fleet}", *args[at + 1 :]]
                args.remove(fleet)
        return args


def plan_command(for_task: str | None = None, *only: str) -> type[PlanCommand]:
    """The class of a command that takes plans of a task, or any; or just some keys of them."""
    return type("PlanCommand", (PlanCommand,), {"task": for_task, "keys": only})


class Offer(NamedTuple):
    """An option that a command takes: what it is written as, and what makes typer's annotation of it."""

    flags: list[str]
    hint: Callable[[], Any]


@cache
def _offered(task: str | None, keys: tuple[str, ...], own: frozenset[str]) -> dict[str, Offer]:
    """Options for the keys of a plan that a command takes, by name, but for those that it has of its own."""
    from mlsysim.plans.schema import SAID

    leaves = [leaf for key, leaf in _leaves().items() if not keys or key in keys]
    offered = leaves if task is None else [leaf for leaf in leaves if task in leaf.tasks and leaf.key not in SAID]
    short = _SHORT if task != "serving" else {**_SHORT, "serving.prompt_tokens": "-s"}
    offers = {leaf.flat: _offer(leaf, short.get(leaf.key), own) for leaf in offered}
    if not keys:
        words = "auto, or such as tp=8,pp=4,zero=1,recompute=selective, or TP8PP4, DEP8"
        shown: dict[str, Any] = {"help": words, "rich_help_panel": _PANELS["parallelism"], "show_default": False}
        offers["layout"] = Offer([_LAYOUT], lambda: Annotated[str | None, typer.Option(_LAYOUT, **shown)])
    return {_PREFIX + name: offer for name, offer in offers.items() if "--" + name.replace("_", "-") not in own}


def _given(args: list[str], own: list[Any], offers: dict[str, Offer]) -> dict[str, Offer]:
    """The options that arguments name, since typer takes a millisecond for each; all where one is not known, which typer then says."""
    names = {flag: name for name, offer in offers.items() for flag in offer.flags}
    known = {opt for param in own for opt in (*param.opts, *param.secondary_opts)} - {"--help"}
    found: dict[str, Offer] = {}
    for arg in args:
        flag = arg.partition("=")[0] if arg.startswith("--") else arg[:2]
        if flag in names:
            found[names[flag]] = offers[names[flag]]
        elif flag.startswith("-") and flag not in known:
            return offers
    return found


def _options(offers: dict[str, Offer]) -> list[Any]:
    """Parameters, made by typer from a function that nobody calls."""
    kind = inspect.Parameter.KEYWORD_ONLY
    hints = {name: offer.hint() for name, offer in offers.items()}
    parameters = [inspect.Parameter(name, kind, default=None, annotation=hint) for name, hint in hints.items()]

    def nobody(**given: Any) -> None:
        pass

    nobody.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    nobody.__annotations__ = hints
    app = typer.Typer(add_completion=False)
    app.command()(nobody)
    found = typer.main.get_command(app).params
    return [param for param in found if str(param.name).startswith(_PREFIX)]


def _offer(leaf: Leaf, letter: str | None, own: frozenset[str]) -> Offer:
    name = leaf.flat.replace("_", "-")
    flags = [f"--{name}", f"--no-{name}"] if leaf.type is bool else [f"--{name}"]
    short = [letter] if letter and "-" + letter not in own else []
    return Offer([*short, *flags], lambda: _annotation(leaf, *short, "/".join(flags)))


def _annotation(leaf: Leaf, *names: str) -> Any:
    """The typer option of a key: its names, kind, meaning and other names."""
    words = leaf.meaning
    if leaf.quantity is not None:
        words += f", such as '{leaf.quantity.example}'"
    if leaf.choices:
        words += f": {', '.join(leaf.choices)}" if not words.startswith(leaf.choices[0]) else ""
    others = ["--" + other.replace("_", "-") for other in leaf.names[1:3]]
    words += f" (also {', '.join(others)})" if others else ""
    kind: Any = list[str] if leaf.key == "constraints.assert" else bool if leaf.type is bool else str
    # Numbers are read by the plan, which takes 8k and 40% too.
    shown: dict[str, Any] = (
        {"metavar": {int: "INTEGER", float: "FLOAT"}.get(leaf.type)} if leaf.type in (int, float) else {}
    )
    shown |= {"help": words, "rich_help_panel": _PANELS.get(leaf.part, leaf.part), "show_default": False}
    return Annotated[kind | None, typer.Option(*names, **shown)]


def _in_our_words(args: list[str], own: list[Any], offers: dict[str, Offer], task: str | None) -> list[str]:
    """Arguments with other names of options, such as --tp_size or --parallelism.tp, as the options that they mean; tp_size=8 too, but where keys
    with values are what a command sweeps."""
    from mlsysim.plans.schema import key_named

    known = {opt for param in own for opt in (*param.opts, *param.secondary_opts)}
    known |= {flag for offer in offers.values() for flag in offer.flags}
    sweeps = any("=" in (each.metavar or "") for each in own if each.param_type_name == "argument")
    found: list[str] = []
    for place, arg in enumerate(args):
        if arg == "--":
            return found + args[place:]
        name, mark, value = arg.partition("=")
        flag = name.startswith("--") and name not in known
        behind = place and args[place - 1].startswith("-") and "=" not in args[place - 1]
        if flag or (mark and value and name.isidentifier() and not behind and not sweeps):
            key = key_named(name.removeprefix("--"), _leaves(), task)
            meant = None if key is None else option(key)
            if meant in known:
                arg = f"{meant}{mark}{value}"
        found.append(arg)
    return found


# --- from what is given to plans ----------------------------------------------------------------------------------


def settings_of(context: typer.Context, **more: Any) -> dict[str, Any]:
    """What the command line gives of a plan, by name."""
    return dict(context.meta.get(_GIVEN, {})) | {name: value for name, value in more.items() if value is not None}


def plan_of(context: typer.Context, **more: Any) -> Plan:
    """The plan that the options of a command make."""
    from mlsysim.plans.plan import Plan

    return _made(Plan.model_validate, settings_of(context, **more))


def changed(context: typer.Context, plan: Plan, **more: Any) -> Plan:
    """A plan with what the command line gives in place of its own."""
    return _made(plan.with_settings, settings_of(context, **more))


def _made(make: Callable[[dict[str, Any]], Plan], given: dict[str, Any]) -> Plan:
    """A plan, errors about its keys in the words of the command line."""
    from mlsysim.plans.schema import in_words

    try:
        return make(given)
    except InputError as error:
        said = InputError(str(error).replace("The 'layout' field", _LAYOUT), **error.details)
        raise in_words(said, lambda leaf: option(leaf.key), _leaves()) from None


def load(path: str) -> Plan:
    """The plan of a file."""
    from mlsysim.plans.files import load_plan

    return load_plan(path)


def named_plan(context: typer.Context, text: str, task: str | None = None) -> Plan:
    """The plan that a target means: a plan file, or MODEL@FLEET (or a model with --on) and a task; with what the options change."""
    if is_plan_file(text):
        return changed(context, load(text))
    model, mark, fleet = text.partition("@")
    given = context.meta.get(_GIVEN, {})
    if not mark and "model" in given and "on" not in given and is_hardware(text):
        return plan_of(context, task=given.get("task", task), on=text)
    if not mark and "on" not in given:
        raise InputError(f"{text[:60]!r} is {_lacks(text)}.")
    return plan_of(context, task=given.get("task", task), model=model, on=given.get("on", fleet))


def _lacks(text: str) -> str:
    """What a target lacks that is no plan: of a model the hardware, of hardware the model."""
    from mlsysim.models.registry import Models

    if Models.has(text):
        return f"a model; on which hardware? Write such as {text}@8xH100"
    if is_hardware(text):
        return f"hardware; for which model? Write such as Llama3_8B@{text}"
    return "neither a plan file nor MODEL@FLEET, such as Llama3_70B@512xH100"


def is_hardware(text: str) -> bool:
    """Whether a word is a chip or a fleet."""
    from mlsysim.systems.fleet_text import parse_fleet

    try:
        parse_fleet(text)
    except InputError:
        return False
    return True

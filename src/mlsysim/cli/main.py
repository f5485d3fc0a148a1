"""``mlsysim``: the commands. Exit codes: 0 ok, 1 bad input, 2 does not fit, 3 an assertion failed, 130 it was stopped."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer

from mlsysim import __version__, vocabulary
from mlsysim.cli.lean import import_pint
from mlsysim.cli.output import print_json
from mlsysim.cli.plan_options import in_options, is_hardware, plan_command
from mlsysim.errors import MLSysError, did_you_mean, either, nearest
from mlsysim.vocabulary import meant_for, valued
from mlsysim.zoo.writing import OF_THE_SYSTEM, not_written

_SIZES = ("workload.batch_size", "workload.seq_len", "workload.precision", "workload.tokens")
_PLANS = ("audit", "compare", "sensitivity", "explain", "report")
_LISTED: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "eval": ("plans.evaluate", ("",)),
    "train": ("plans.train", ("training",)),
    "serve": ("plans.serve", ("serving",)),
    "rl": ("plans.rl", ("rl",)),
    "plan": ("plans.least", ("",)),
    **{name: (f"plans.{name}", ("",)) for name in _PLANS},
    "plot": ("plot.plot", ("",)),
    "export": ("launch.export", ("",)),
    "review": ("launch.review", ("",)),
    "sweep": ("sweep.sweep", ("",)),
    "synthesize": ("optimizers.synthesize", ("", *_SIZES)),
    "zoo": ("zoo.zoo", None),
    "walls": ("zoo.walls", None),
    "import": ("zoo.import_", None),
    "scenarios": ("zoo.scenarios", None),
    "collectives": ("collectives.collectives", None),
    "schema": ("zoo.schema", None),
    "doctor": ("doctor.doctor", None),
    **{name: (f"measurements.{name}", None) for name in ("validate", "calibrate", "verify")},
    "api": ("servers.api", None),
    "mcp": ("servers.mcp", None),
    "optimize": ("optimizers.optimize", None),
    "labs": ("labs.labs", None),
}
"""The commands in the order of the help: where each is, and the task (any where none is said) and keys of the plans that it takes, if it takes any."""


def _commands(*names: str) -> typer.Typer:
    """The program with some of its commands, which alone are imported."""
    app = typer.Typer(
        name="mlsysim",
        help="Plan machine-learning systems: will it fit, how fast, what does it cost, what binds?",
        no_args_is_help=True,
        add_completion=len(names) > 1,
        pretty_exceptions_enable=False,
    )
    app.callback()(commands)
    for name in names:
        place, plan = _LISTED[name]
        module, _, own = place.partition(".")
        found = getattr(import_module(f"mlsysim.cli.{module}"), own)
        if isinstance(found, typer.Typer):
            app.add_typer(found)
        else:
            app.command(name, cls=None if plan is None else plan_command(plan[0] or None, *plan[1:]))(found)
    return app


def __getattr__(name: str) -> Any:
    """``app``: the program with all of its commands."""
    if name != "app":
        raise AttributeError(name)
    globals()["app"] = _commands(*_LISTED)
    return globals()["app"]


def _version(asked: bool) -> None:
    if asked:
        print(f"mlsysim {__version__}")
        raise typer.Exit


def commands(
    context: typer.Context,
    output: Annotated[str | None, typer.Option("-o", "--output", help="text, json, markdown or csv")] = None,
    version: Annotated[
        bool, typer.Option("--version", help="print the version", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Plan machine-learning systems: will it fit, how fast, what does it cost, what binds?"""
    context.obj = {"output": output}


def main() -> None:
    """Run a command; bad input is one sentence on stderr and exit code 1, no layout that fits one and 2."""
    warnings.showwarning = _note
    # The interpreter looks for garbage three times when it ends, for as long as some answers take, and finds none either.
    atexit.register(_keep_garbage)
    # A command multiplies no large matrices: threads that would, one for each core, take longer to start than NumPy to import.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Pydantic would look through every package that is installed for plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Schedulers of jobs stop a command as people do: it says what is lost, and what is kept.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    if sys.argv[1:2] in (["eval"], ["serve"], ["train"]):
        import_pint()
    try:
        # The options of other commands than the one that is named need not be made.
        named = [word for word in sys.argv[1:2] if word in _LISTED]
        command = typer.main.get_command(_commands(*(named or _LISTED)))
        # Typer ends without a word where it is stopped.
        command.__dict__["invoke"] = _stoppable(command.invoke)
        code = command(standalone_mode=False, prog_name="mlsysim")
        sys.stdout.flush()
    except MLSysError as error:
        # What does not fit is an answer, not bad input.
        fits = error.details.get("fits") is not False
        if not fits and {"--json", "json", "--output=json"} & {*sys.argv}:
            print_json({"feasible": False, "headline": str(error)})
        _end(in_options(error), 1 if fits else 2)
    except typer.Exit as stop:
        raise SystemExit(stop.exit_code) from None
    except (KeyboardInterrupt, typer.Abort) as stop:
        # A play that is stopped says what is lost.
        _end(str(stop.__cause__ or stop) or "stopped.", 130)
    except (BrokenPipeError, SystemExit) as stop:
        # Consoles and the parser of commands end with 1 where a pipe is closed.
        if not isinstance(stop, BrokenPipeError) and not isinstance(stop.__context__, BrokenPipeError):
            raise
        # Whoever read our output has enough of it.
        _write_no_more()
        raise SystemExit(0) from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno in OF_THE_SYSTEM:
            if error.filename is None:
                _write_no_more()
            _end(str(not_written(error.filename, error)))
        # Usage errors of the command line itself carry a message for the user.
        message = getattr(error, "format_message", None)
        if message is not None:
            # Without a command the help has been shown, and there is nothing to complain about.
            _end(_of_usage(error, message())) if message().strip() else sys.exit(0)
        if os.environ.get(_TRACEBACK):
            raise
        _end(
            f"this is a mistake in mlsysim itself ({type(error).__name__}: {error}); please report it with the command, and "
            f"{_TRACEBACK}=1 shows where."
        )
    raise SystemExit(code if isinstance(code, int) else 0)


def run() -> None:
    """:func:`main` as a process of its own. It ends with what was registered for its end, and is not taken apart object by object after that, which
    takes as long as a twentieth of an answer; processes, threads and databases are left to Python."""
    try:
        main()
    except SystemExit as stop:
        threads = sys.modules.get("threading")
        others = {"multiprocessing", "duckdb"} & sys.modules.keys() or (threads and threads.active_count() > 1)
        if others or not isinstance(stop.code, int):
            raise
        atexit._run_exitfuncs()
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            raise stop from None
        os._exit(stop.code)


_VALUES = {
    "--lora-rank": "--lora-rank 16",
    "--batch-size": "--batch-size 64",
    "--chip": "--chip H100",
    "--on": "--on 512xH100",
    "--qps": "--qps 5",
    "--tokens": "--tokens 2T",
    "--deadline": "--deadline 30d",
    "-o": "-o json",
    "--offload": "--offload 1, a share of the optimizer's state",
}
_COMMANDS = {"training": "train", "serving": "serve", "inference": "eval", "rl": "rl"}


def _belongs(name: str) -> str:
    """What an option that is a key of a plan is for, and which command takes it; nothing of others."""
    from mlsysim.plans.plan import Plan
    from mlsysim.plans.schema import key_named, tasks_text

    known = Plan.leaves()
    key = key_named(name, known)
    tasks = known[key].tasks if key is not None else ()
    return f"{tasks_text(*tasks)} ({either(f'`mlsysim {_COMMANDS[task]}`' for task in tasks)})" if tasks else ""


def _example(error: Exception) -> str:
    """The first example in the help of the command that was asked for."""
    return _of_help(getattr(getattr(error, "ctx", None), "command", None))


def _of_help(command: Any) -> str:
    told = getattr(command, "help", None) or ""
    return next((line.strip() for line in told.splitlines() if line.strip().startswith("mlsysim ")), "")


def _of_usage(error: Exception, said: str) -> str:
    """What the parser of commands says, with what would have been right."""
    name = str(getattr(error, "option_name", None) or "")
    context: Any = getattr(error, "ctx", None)
    if name and "requires an argument" in said:
        return f"{name} needs a value after it, such as {_VALUES.get(name, 'those that --help shows')}."
    if "unable to parse" in said:
        option, kind = said.split("'")[1], "a whole number" if "integer" in said else "a number"
        return f"{option} takes {kind}, and what was given is none."
    if name:
        near = getattr(error, "possibilities", None) or ()
        instead = _with_value(name, _instead(name.replace("_", "-")))
        if name in ("--config", "--plan", "--file", "--config-file", "--plan-file"):
            instead = "the file alone, as in `mlsysim eval plan.toml`, or its keys as options"
        if not instead and (owner := _belongs(name)):
            command = getattr(getattr(error, "ctx", None), "info_name", None)
            own = meant_for(name, next((task for task, each in _COMMANDS.items() if each == command), ""))
            if command == "synthesize" and name in ("--slo", "--tpot"):
                own = "latency 20ms, the time of a pass"
            return f"There is no option {name} here: it belongs to {owner}{f'; write --{own}' if own else ''}."
        hint = (
            f"write {instead}."
            if instead
            else did_you_mean(nearest(name, near) or near)
            if near
            else "--help lists them."
        )
        return f"There is no option {name}; {hint}"
    if said.startswith("Missing argument") and (example := _example(error)):
        return f"{said.rstrip('.')}, as in `{example}`."
    if said.startswith("No such command"):
        return _no_command(error, said)
    if said.startswith("Got unexpected extra argument"):
        words = said.partition("(s) (")[2].rstrip(")") or said.partition("(")[2].rstrip(")")
        hint = f" (as in `{example}`)" if (example := _example(error)) else ""
        if (whole := _joined(error, words)) is not None:
            return f"The model and its hardware are one word here: {whole}."
        if getattr(getattr(error, "ctx", None), "info_name", None) == "explain":
            return _of_a_plan(words)
        if (number := str(getattr(getattr(error, "ctx", None), "params", {}).get("hardware"))).isdigit():
            return f"A fleet is one word: {number[:12]}x{words[:60]}."
        if "on" in sys.argv[2:-1]:
            fleet = [word for word in sys.argv[sys.argv.index("on", 2) + 1 :] if word not in ("a", "an", "the", "one")]
            return f"The fleet is an option: --on {(fleet or ['H100'])[0][:60]}, with its dashes."
        if getattr(getattr(error, "ctx", None), "info_name", None) == "compare":
            one, between = (str(context.params.get(name)) for name in ("first", "second"))
            if between.rstrip(".") in ("vs", "versus", "and", "with", "to", "against"):
                chips = " --model Llama3_8B" if is_hardware(one) else ""
                return f"compare takes two plans without {between!r} between them: `mlsysim compare {one[:60]} {words[:60]}{chips}`."
            if " " not in words and is_hardware(between) and is_hardware(words):
                return f"Each is MODEL@FLEET: `mlsysim compare {one[:60]}@{between[:60]} {one[:60]}@{words[:60]}`."
            return f"{words[:60]!r} is one too many: compare takes two, each MODEL@FLEET; `mlsysim sweep MODEL@FLEET on=A,B,C` takes any number."
        takes = [each for each in context.command.params if each.param_type_name == "argument"]
        spaced = "; a name with a space in it stands in quotes" if takes else ""
        return f"{words[:60]!r} is more than the command takes{hint}{spaced}."
    return said


def _of_a_plan(words: str) -> str:
    """How a metric of a plan is explained."""
    first = next((word for word in sys.argv[2:] if not word.startswith("-")), "mfu")
    words = next(
        (words.removeprefix(f"{each} ") for each in ("on", "of", "for") if words.startswith(f"{each} ")), words
    )
    metric, plan = (words, first) if any(sign in first for sign in "@:./") else (first, words)
    return f"The plan of a metric stands after --of, as in `mlsysim explain {metric[:40]} --of {plan[:60]}`."


def _instead(option: str) -> str:
    """What says here what an option of other programs says; nothing where that is not known."""
    key, example = vocabulary.MEANT.get(option.removeprefix("--").replace("-", "_"), ("", ""))
    return str(vocabulary.WRITTEN.get(option, f"--{key.replace('_', '-')} {example}" if key else ""))


def _with_value(name: str, example: str) -> str:
    """What would have been right, with the value that was given where it can stand for the example's."""
    given = sys.argv[sys.argv.index(name) + 1 :][:1] if name in sys.argv else []
    option, _, value = example.partition(" ")
    return f"{option} {valued(value, given[0])}" if value and given and not given[0].startswith("-") else example


def _joined(error: Exception, word: str) -> str | None:
    """MODEL@FLEET of a command that takes it, where the model alone is given and the hardware follows."""
    context: Any = getattr(error, "ctx", None)
    takes = [each.name for each in context.command.params if "MODEL@FLEET" in (each.metavar or "")]
    given = [context.params.get(name) for name in takes]
    if not takes or " " in word:
        return None
    from mlsysim.models.registry import Models

    return next((f"{model}@{word}" for model in given if isinstance(model, str) and Models.has(model)), None)


def _no_command(error: Exception, said: str) -> str:
    """What is said of a word that is no command, or none of a group such as optimize."""
    context: Any = getattr(error, "ctx", None)
    group, parent = getattr(context, "info_name", None), getattr(context, "parent", None)
    word = said.partition("'")[2].partition("'")[0]
    if group == "labs" and _is_lab(word):
        return f"`mlsysim labs` takes what to do first, as in `mlsysim labs show {word}`."
    if parent is not None and hasattr(context.command, "commands") and not said.endswith("?"):
        example = next(filter(None, (_of_help(each) for each in context.command.commands.values())), "")
        return f"`mlsysim {group}` takes {either(context.command.commands)} first, as in `{example}`."
    if word in vocabulary.ASKED:
        return f"No such command {word!r}: {vocabulary.ASKED[word]}."
    return said if said.endswith("?") else f"{said} `mlsysim --help` lists the commands."


def _is_lab(word: str) -> bool:
    from mlsysim.labs.lab import labs

    return word in {name for each in labs() for name in (each.id, str(each.number))}


def _stoppable(invoke: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def invoked(context: Any) -> Any:
        try:
            return invoke(context)
        except KeyboardInterrupt as stop:
            raise typer.Abort from stop

    return invoked


def _keep_garbage() -> None:
    # DuckDB lists every object of its own that is left over.
    if "duckdb" not in sys.modules:
        gc.freeze()


def _write_no_more() -> None:
    """Python would complain once more when it flushes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_TRACEBACK = "MLSYSIM_TRACEBACK"


def _end(sentence: str, code: int = 1) -> NoReturn:
    print(f"mlsysim: {_line(sentence)}", file=sys.stderr)
    raise SystemExit(code) from None


def _line(text: str) -> str:
    """A text in one line, without characters that a terminal would obey."""
    return " ".join("".join(ch if ch.isprintable() else " " for ch in text).split())


def _note(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as a line for the user, without the place in the code."""
    print(f"mlsysim: note: {_line(str(message))}", file=sys.stderr)

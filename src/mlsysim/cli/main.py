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

from mlsysim import __version__
from mlsysim.cli.lean import import_pint
from mlsysim.cli.output import print_json
from mlsysim.cli.plan_options import in_options, plan_command
from mlsysim.errors import MLSysError
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
            from mlsysim.cli.usage import of_usage

            # Without a command the help has been shown, and there is nothing to complain about.
            _end(of_usage(error, message())) if message().strip() else sys.exit(0)
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

"""``mlsysim``: the commands. Exit codes: 0 ok, 1 bad input, 2 does not fit, 3 an assertion failed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mlsysim.cli import plans, zoo
from mlsysim.cli.calibrate import calibrate
from mlsysim.cli.doctor import doctor
from mlsysim.cli.labs import labs
from mlsysim.cli.optimizers import optimize, synthesize
from mlsysim.cli.sweep import sweep
from mlsysim.cli.validate import validate
from mlsysim.cli.verify import verify
from mlsysim.errors import MLSysError

__all__ = ["app", "main"]

app = typer.Typer(
    name="mlsysim",
    help="Plan machine-learning systems: will it fit, how fast, what does it cost, what binds?",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.command("eval")(plans.evaluate)
app.command()(plans.train)
app.command()(plans.serve)
app.command()(plans.plan)
app.command()(plans.audit)
app.command()(plans.compare)
app.command()(plans.sensitivity)
app.command()(plans.explain)
app.add_typer(optimize)
app.command()(synthesize)
app.command()(zoo.zoo)
app.command()(zoo.walls)
app.command("import")(zoo.import_)
app.command()(zoo.schema)
app.command()(doctor)
app.command()(validate)
app.command()(calibrate)
app.command()(verify)
app.command()(sweep)
app.add_typer(labs)


@app.callback()
def commands(
    context: typer.Context,
    output: Annotated[str | None, typer.Option("-o", "--output", help="text, json, markdown or csv")] = None,
) -> None:
    """Plan machine-learning systems: will it fit, how fast, what does it cost, what binds?"""
    context.obj = {"output": output}


def main() -> None:
    """Run a command; bad input is one sentence on stderr and exit code 1."""
    try:
        code = app(standalone_mode=False)
    except MLSysError as error:
        print(f"mlsysim: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except typer.Exit as stop:
        raise SystemExit(stop.exit_code) from None
    except Exception as error:
        # Usage errors of the command line itself carry a message for the user.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        print(f"mlsysim: {message()}", file=sys.stderr)
        raise SystemExit(1) from None
    raise SystemExit(code if isinstance(code, int) else 0)

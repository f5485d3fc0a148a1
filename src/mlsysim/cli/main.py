"""``mlsysim``: the commands. Exit codes: 0 ok, 1 bad input, 2 does not fit, 3 an assertion failed."""

from __future__ import annotations

import sys

import typer

from mlsysim.cli.calibrate import calibrate
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
app.command()(validate)
app.command()(calibrate)
app.command()(verify)
app.command()(sweep)


@app.callback()
def commands() -> None:
    """Plan machine-learning systems: will it fit, how fast, what does it cost, what binds?"""


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

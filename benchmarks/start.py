"""CPU time of whole commands, beside what importing the libraries under them takes in the same minute.

    python benchmarks/start.py [--rounds 7] [--python ~/core/bin/python]

A machine that others use makes everything slower alike, so that the ratio to the bare imports says more than the seconds. The fastest of the rounds
counts. What is measured is the installation of the interpreter: give one where nothing but ``pip install .`` was done.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile

COMMANDS = {
    "--help": (0.3, ["--help"]),
    "eval": (0.5, ["eval", "Llama3_8B", "H100"]),
    "serve": (0.8, ["serve", "Llama3_8B", "--on", "1xH100"]),
    "train": (0.8, ["train", "Llama3_70B", "--on", "512xH100", "--tokens", "2T"]),
}
"""Seconds of user and system time on a machine without other work, and the arguments."""
BARE = ["-c", "import pint, pydantic, typer, rich"]


def seconds(command: list[str], folder: str) -> float:
    """User and system time of a process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--python", default=sys.executable)
    asked = parser.parse_args()
    print(f"{'':8} {'seconds':>8} {'at most':>8} {'bare':>8} {'ratio':>8}   (load {os.getloadavg()[0]:.1f})")
    with tempfile.TemporaryDirectory() as folder:
        for name, (limit, arguments) in COMMANDS.items():
            command = [asked.python, "-m", "mlsysim", *arguments]
            seconds(command, folder)
            pairs = [(seconds(command, folder), seconds([asked.python, *BARE], folder)) for _ in range(asked.rounds)]
            ours, bare = (min(column) for column in zip(*pairs, strict=True))
            print(f"{name:8} {ours:8.3f} {limit:8.1f} {bare:8.3f} {ours / bare:8.2f}")


if __name__ == "__main__":
    main()

"""``python -m mlsysim``."""

from mlsysim.cli.main import run

run()

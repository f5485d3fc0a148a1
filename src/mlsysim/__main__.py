"""``python -m mlsysim``."""

from mlsysim.cli.main import main

main()

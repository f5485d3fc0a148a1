"""``python -m mlsysim.calibrate FOLDER``: see :mod:`mlsysim.calibrate.parts`."""

from __future__ import annotations

import sys

from mlsysim.calibrate.parts import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

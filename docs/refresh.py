"""Write what the pages' blocks print today into the pages: ``python docs/refresh.py [PAGE ...]``.

All pages without an argument. Look at the difference before you keep it: a number that moved has a reason.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from sitetools.blocks import rewritten
from sitetools.commands import folder_for_commands

ROOT = Path(__file__).resolve().parents[1]


def main(names: list[str]) -> int:
    """Rewrite pages; the number of blocks that need a person."""
    os.environ["MLSYSIM_ZOO"] = ""
    pages = [Path(name).resolve() for name in names] or sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    complaints = 0
    for page in pages:
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as parent:
            new, left = rewritten(text, str(page.relative_to(ROOT)), folder_for_commands(Path(parent)))
        if new != text:
            page.write_text(new, encoding="utf-8")
            print(f"rewrote {page.relative_to(ROOT)}")
        print("\n".join(left), end="\n" if left else "")
        complaints += len(left)
    return complaints


if __name__ == "__main__":
    raise SystemExit(1 if main(sys.argv[1:]) else 0)

"""Build the documentation: ``python docs/build.py [--labs FOLDER] [--only-pages]``.

First the pages as plain Markdown with MathML and figures (``build/docs``), then the site (``site``). With ``--only-pages`` the first step alone, for another
generator.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sitetools.build import ROOT, build_site
from sitetools.pages import write_pages


def main() -> None:
    """Build what the options say."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    options.add_argument("--labs", type=Path, help="folder that `mlsysim labs build` wrote")
    options.add_argument("--only-pages", action="store_true", help="write the Markdown and stop")
    given = options.parse_args()
    pages = ROOT / "build" / "docs"
    if given.only_pages:
        write_pages(pages, given.labs is not None)
    else:
        build_site(ROOT / "site", given.labs, pages)


if __name__ == "__main__":
    main()

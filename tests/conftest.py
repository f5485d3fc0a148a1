"""Settings of the whole suite: no deadlines, since a loaded machine is not a defect, no entries of the user's own zoo, interrupts heard, the same examples in every run,
models that a test adds gone after it, and garbage looked for as seldom as the commands do."""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

os.environ["MLSYSIM_ZOO"] = ""
# A shell starts what runs in the background deaf to interrupts, and its children inherit that; tests of interrupts need ears.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("suite", deadline=None, max_examples=50, derandomize=True)
settings.load_profile("suite")

gc.set_threshold(100_000)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: looking through it again and again finds no garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def only_the_zoo():
    """A plan file or a dropped configuration adds models for as long as the program runs; the next test knows none of them."""
    registry = sys.modules.get("mlsysim.models.registry")
    before = dict(registry.Models._store.added) if registry else {}
    yield
    registry = sys.modules.get("mlsysim.models.registry")
    if registry and (store := registry.Models._store).added.keys() != before.keys():
        store.added, store._added_aliases, store._folded = before, {}, None


@pytest.fixture(scope="session")
def documentation_folder(tmp_path_factory) -> Path:
    """The built documentation, with a page in the place of the labs; built once for all workers of a test run."""
    import fcntl

    from sitetools.build import MISSING, build_site, installed

    if not installed():
        if os.environ.get("MLSYSIM_REQUIRE_DOCS") == "1":
            pytest.fail(f"{MISSING}, and MLSYSIM_REQUIRE_DOCS=1", pytrace=False)
        pytest.skip(MISSING)
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder, labs = shared / "documentation", shared / "labs-of-documentation"
    with (shared / "documentation.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "labs").is_dir():
            labs.mkdir(exist_ok=True)
            (labs / "index.html").write_text("<!doctype html><title>labs</title>", encoding="utf-8")
            build_site(folder, labs)
    return folder

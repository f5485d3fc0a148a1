"""The site as a folder: what is in it, twice the same, and never over something else."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tomllib
import urllib.error
import urllib.request
import zipfile
from importlib.resources import files
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mlsysim.cli.main import app
from mlsysim.errors import InputError
from mlsysim.labs import build as building
from mlsysim.labs import bytecode, gallery, package
from mlsysim.labs.build import build
from mlsysim.labs.codes import derived_key
from mlsysim.labs.fetch import Pin
from mlsysim.labs.gallery import address as address_of
from mlsysim.labs.serve import in_background, site_server
from mlsysim.zoo.files import shipped_files

FEW = ("keyword-spotting-microcontroller", "resnet50-training-a100")
"""Scenarios that are answered in a moment."""
INFO = {"abi_version": "2026_0", "python": "3.14.2"}


def tarball(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as package:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            package.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    return out.getvalue()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache that holds everything a small lock file asks for."""
    lock = json.dumps({"info": INFO, "packages": {"numpy": {}}}).encode()
    library = zipped({"json/__init__.py": b"pass", "pdb.py": b"pass"})
    members = {
        "package/pyodide.mjs": b"runtime",
        "package/python_stdlib.zip": library,
        "package/pyodide-lock.json": lock,
    }
    package = tarball({**members, "package/unused": b"x"})
    runtime = Pin(
        "pyodide", "1.0", "MPL-2.0", "https://example.com", "pyodide-1.0.tgz",
        sha512=base64.b64encode(hashlib.sha512(package).digest()).decode(),
        members={"package/pyodide.mjs": "pyodide.js", "package/python_stdlib.zip": "python_stdlib.zip"},
    )  # fmt: skip
    pint = zipped({"pint/__init__.py": b"pass", "pint-2.0.dist-info/licenses/LICENSE": b"Be kind."})
    wheel = Pin("pint", "2.0", "BSD", "https://example.com", "pint-2.0.whl", sha256=hashlib.sha256(pint).hexdigest())
    folder = tmp_path / "cache"
    (folder / "labs").mkdir(parents=True)
    (folder / "labs" / runtime.filename).write_bytes(package)
    (folder / "labs" / wheel.filename).write_bytes(pint)
    monkeypatch.setattr(building, "pins", lambda: [runtime, wheel])
    few = {name: path for name, path in shipped_files("scenario").items() if name in FEW}
    monkeypatch.setattr(gallery, "shipped_files", lambda kind: few)
    return folder


def unpacked(content: bytes) -> dict[str, bytes]:
    """As the worker reads it."""
    bare = gzip.decompress(content)
    at = 4 + int.from_bytes(bare[:4], "little")
    found = {}
    for name, size in json.loads(bare[4:at]):
        found[name] = bare[at : at + size]
        at += size
    assert at == len(bare)
    return found


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_two_builds_have_the_same_bytes(cache, tmp_path):
    build(tmp_path / "one", cache)
    build(tmp_path / "two", cache)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_the_folder_holds_pages_runtime_modules_and_manifest(cache, tmp_path):
    told: list[str] = []
    site = build(tmp_path / "site", cache, told.append)
    made = tree(tmp_path / "site")
    assert site.files == len(made) and site.bytes == sum(map(len, made.values()))
    assert {"index.html", "worker.js", "engine.js", "licences.txt", "manifest.json"} <= set(made)
    assert made["pyodide/pyodide.js"] == b"runtime" and "package/unused" not in str(made.keys())
    assert json.loads(made["pyodide/pyodide-lock.json"]) == {"info": INFO, "packages": {}}
    assert "pint 2.0: BSD" in made["licences.txt"].decode() and "Be kind." in made["licences.txt"].decode()
    assert any("pyodide 1.0" in line for line in told)
    manifest = json.loads(made["manifest.json"])
    assert set(manifest["files"]) == set(made) - {"manifest.json"}
    for name, listed in manifest["files"].items():
        assert listed == {"bytes": len(made[name]), "sha256": hashlib.sha256(made[name]).hexdigest()}
    modules = unpacked(made["engine.bin"])
    assert modules["pint/__init__.py"] == b"pass" and "mlsysim/labs/bridge.py" in modules
    library = package.members(gzip.decompress(made["pyodide/python_stdlib.bin"]))
    assert library == {"json/__init__.py": b"pass"}, "no debugger in a page"
    lists = json.loads(gzip.decompress(made["lists.json.gz"]))
    assert {"models", "chips", "regions", "fabrics"} <= set(lists) and lists["models"][0]["key"]


def test_a_new_build_replaces_an_old_one_and_nothing_else(cache, tmp_path, monkeypatch):
    folder = tmp_path / "site"
    build(folder, cache)
    first = tree(folder)
    (folder / "mine.txt").write_text("kept")
    pages = building._pages()
    monkeypatch.setattr(building, "_pages", lambda cards: {name: pages[name] for name in pages if name != "style.css"})
    build(folder, cache)
    assert not (folder / "style.css").exists() and (folder / "mine.txt").read_text() == "kept"
    monkeypatch.undo()
    assert set(tree(folder)) == set(first) - {"style.css"} | {"mine.txt"}


@pytest.mark.parametrize(
    ("files_there", "sentence"),
    [
        ({"thesis.txt": "years"}, "is not empty and holds no site of ours"),
        ({"manifest.json": '{"name": "another program"}'}, "is not empty and holds no site of ours"),
        ({"manifest.json": '{"files": {"../thesis.txt": {}}}'}, "names files outside of it"),
    ],
)
def test_a_folder_with_other_things_is_refused(cache, tmp_path, files_there, sentence):
    folder = tmp_path / "work"
    folder.mkdir()
    for name, text in files_there.items():
        (folder / name).write_text(text)
    with pytest.raises(InputError, match=re.escape(str(folder)) + f".*{sentence}|{sentence}"):
        build(folder, cache)
    assert tree(folder) == {name: text.encode() for name, text in files_there.items()}


def test_a_file_is_no_folder(cache, tmp_path):
    (tmp_path / "site").write_text("x")
    with pytest.raises(InputError, match="is a file"):
        build(tmp_path / "site", cache)


def test_the_document_holds_every_view_and_card(cache, tmp_path):
    build(tmp_path / "site", cache)
    document = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<!-- (view|gallery)", document) and not (tmp_path / "site" / "views").exists()
    names = re.findall(r'(?<![\w-])id="([^"]+)"', re.sub(r"<svg.*?</svg>", "", document, flags=re.S))
    assert len(names) == len(set(names)), "views share one document"
    assert re.findall(r'data-scenario="([^"]+)"', document) == sorted(FEW, reverse=True)
    for name in FEW:
        told = json.loads(gzip.decompress((tmp_path / "site" / "gallery" / f"{name}.json.gz").read_bytes()))
        assert told["answer"]["headline"] and address_of(told["plan"]) in html.unescape(document)


def test_pages_name_no_other_host():
    for path in (Path(str(files("mlsysim.labs"))) / "site").rglob("*"):
        if path.suffix in (".html", ".js", ".css"):
            found = set(re.findall(r"""(?:https?:)?//[\w.-]+\.\w+""", path.read_text(encoding="utf-8")))
            assert found <= {"http://www.w3.org"}, path.name


def test_the_command_builds_and_says_what_it_built(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("MLSYSIM_CACHE", str(cache))
    done = CliRunner().invoke(app, ["labs", "build", str(tmp_path / "site")])
    assert done.exit_code == 0, done.output
    made = tree(tmp_path / "site")
    assert f"{len(made)} files, {sum(map(len, made.values())) / 1e6:.1f} MB" in done.output


# --- the modules --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ours():
    return package.our_files()


def test_what_a_page_cannot_use_is_left_out(ours):
    for part in ("/cli/", "__pycache__", "/labs/site/", "/labs/build.py", "/labs/bytecode", "/calibrate/data/"):
        assert not [name for name in ours if part in name]
    for name in ("mlsysim/units/units.txt", "mlsysim/labs/bridge.py", "mlsysim/hardware/data/nvidia.toml"):
        assert name in ours
    wheel = zipped(
        {"pint/a.py": b"", "pint/testsuite/b.py": b"", "pint-2.dist-info/METADATA": b"Name: pint\n\nLong.\n"}
    )
    assert package.their_files(wheel) == {"pint/a.py": b"", "pint-2.dist-info/METADATA": b"Name: pint\n"}


def test_tables_that_an_answer_reads_whole_are_parsed_when_the_site_is_built(ours):
    parsed = [name for name in ours if name.startswith("mlsysim/data/") and name.endswith(".json")]
    assert {"mlsysim/data/metrics.json", "mlsysim/data/software/training.json"} < set(parsed)
    for name in parsed:
        assert json.loads(ours[name]) == tomllib.loads(ours[f"{name[:-4]}toml"].decode())


def test_archives_tell_no_time():
    with zipfile.ZipFile(io.BytesIO(package.archive({"b": b"2", "a": b"1"}))) as found:
        assert found.namelist() == ["a", "b"]
        assert {entry.date_time for entry in found.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_sources_stay_where_nothing_compiles(tmp_path, monkeypatch):
    monkeypatch.setattr(bytecode.shutil, "which", lambda name: None)
    given = {bytecode.SITE: {"a.py": b"x = 1\n"}}
    assert bytecode.with_bytecode(given, dict.fromkeys(bytecode.NEEDED, b""), tmp_path) == given


def test_bytecode_takes_the_place_of_sources_and_is_kept(tmp_path, monkeypatch):
    asked = []

    def compiled(node, script, sources, runtime):
        asked.append(sorted(sources))
        return {path: b"code of " + text for path, text in sources.items()}

    monkeypatch.setattr(bytecode.shutil, "which", lambda name: "/usr/bin/node")
    monkeypatch.setattr(bytecode, "_compiled", compiled)
    runtime = dict.fromkeys(bytecode.NEEDED, b"1")
    given = {bytecode.SITE: {"a/b.py": b"one", "a/c.toml": b"two", "mlsysim/walls/node/x.py": b"CARDS"}}
    first = bytecode.with_bytecode(given, runtime, tmp_path)
    beside = "mlsysim/walls/node/__pycache__/x.cpython-314.pyc"
    expected = {
        "a/b.pyc": b"code of one",
        "a/c.toml": b"two",
        "mlsysim/walls/node/x.py": b"CARDS",
        beside: b"code of CARDS",
    }
    assert first == {bytecode.SITE: expected}, "cards of walls are read off their sources"
    given[bytecode.SITE]["a/b.py"] = b"three"
    assert bytecode.with_bytecode(given, runtime, tmp_path)[bytecode.SITE]["a/b.pyc"] == b"code of three"
    bytecode.with_bytecode(given, runtime, tmp_path)
    assert [len(each) for each in asked] == [2, 1], "what is known is not compiled again"
    bytecode.with_bytecode(given, runtime | {"pyodide.js": b"2"}, tmp_path)
    assert len(asked[-1]) == 2, "another runtime has another bytecode"


def test_a_compiler_that_fails_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(bytecode.shutil, "which", lambda name: sys.executable)  # which cannot read the script
    with pytest.raises(InputError, match=r"Node\.js could not compile the modules of the site"):
        bytecode.with_bytecode({bytecode.SITE: {"a.py": b""}}, dict.fromkeys(bytecode.NEEDED, b""), tmp_path)


def test_the_modules_compute_without_what_the_browser_lacks(ours, tmp_path):
    for name, content in ours.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    script = """
import importlib.abc, sys
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numpy", "typer", "rich", "torch"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Blocked())
sys.path.insert(0, sys.argv[1])
import mlsysim
assert mlsysim.__file__.startswith(sys.argv[1]), mlsysim.__file__
from mlsysim.labs.bridge import call
print(call("explore", '{"plan": {"workload": {"model": "Llama3_8B"}, "hardware": {"on": "8xH100"}, "parallelism": {"tp": 8}, "task": "training"}}'))
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)["value"]
    assert answer["feasible"] and set(answer["charts"]) == {"roofline", "memory", "scorecard"}


# --- labs open ----------------------------------------------------------------------------------------------------


@pytest.fixture
def address(cache, tmp_path):
    build(tmp_path / "site", cache)
    (tmp_path / "secret.txt").write_text("x")
    with in_background(site_server(tmp_path / "site")) as address:
        yield address


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("", "text/html; charset=utf-8"),
        ("worker.js", "text/javascript; charset=utf-8"),
        ("manifest.json", "application/json"),
    ],
)
def test_files_are_served_with_the_types_that_browsers_want(address, name, kind):
    with urllib.request.urlopen(address + name) as response:
        assert response.headers["Content-Type"] == kind and response.headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize("name", ["gallery/", "../secret.txt", "%2e%2e/secret.txt", "nothing.html"])
def test_no_listing_and_nothing_from_outside(address, name):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(address + name)
    assert caught.value.code == 404
    caught.value.close()


def test_the_command_serves_until_it_is_stopped(cache, tmp_path):
    build(tmp_path / "site", cache)
    command = [sys.executable, "-m", "mlsysim", "labs", "open", str(tmp_path / "site"), "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as run:
        try:
            address = run.stdout.readline().split()[0]
            with urllib.request.urlopen(address) as response:
                assert b"<title>mlsysim" in response.read()
            run.send_signal(signal.SIGINT)
            assert run.wait(60) == 0
        finally:
            run.kill()


def test_a_folder_without_a_site_is_not_served(tmp_path):
    with pytest.raises(InputError, match="holds no site; build one with `mlsysim labs build"):
        site_server(tmp_path)


def test_a_port_in_use_or_out_of_range_is_a_sentence(address, tmp_path):
    with pytest.raises(InputError, match="cannot be used"):
        site_server(tmp_path / "site", int(address.rstrip("/").rpartition(":")[2]))
    with pytest.raises(InputError, match="0 to 65535"):
        site_server(tmp_path / "site", 70_000)


def test_the_list_of_labs_carries_the_mark_of_a_key_and_not_the_key(cache, tmp_path):
    build(tmp_path / "plain", cache)
    build(tmp_path / "keyed", cache, key="a secret of mine")
    plain, keyed = (json.loads((tmp_path / name / "labs.json").read_text()) for name in ("plain", "keyed"))
    assert plain["labs"] == keyed["labs"] and len(plain["labs"]) >= 16
    assert plain["key"] == "" and keyed["key"] == derived_key("a secret of mine")
    assert all(
        b"a secret of mine" not in path.read_bytes() for path in (tmp_path / "keyed").rglob("*") if path.is_file()
    )

"""Pinned files: from the registry of the environment once, from the cache after that, and never with another hash."""

from __future__ import annotations

import base64
import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mlsysim.errors import InputError
from mlsysim.labs import fetch as fetching
from mlsysim.labs.fetch import Pin, cache_folder, fetch, pins
from mlsysim.labs.serve import in_background


@pytest.fixture
def registry(monkeypatch):
    """A loopback registry: ``registry.pages`` by path; it remembers what was asked, with which authorization."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            server.asked.append((self.path, self.headers.get("Authorization")))
            content = server.pages.get(self.path)
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *args):
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with in_background(server) as address:
        server.pages, server.asked = {}, []
        server.root = address.removeprefix("http://").rstrip("/")
        monkeypatch.setenv("npm_config_registry", f"http://{server.root}/npm/")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://{server.root}/simple")
        monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
        yield server


def wheel_pin(content: bytes, name: str = "thing") -> Pin:
    digest = hashlib.sha256(content).hexdigest()
    return Pin(name, "1.0", "MIT", "https://example.com", f"{name}-1.0-py3-none-any.whl", sha256=digest)


def npm_pin(content: bytes) -> Pin:
    digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
    return Pin("thing", "1.0", "MIT", "https://example.com", "thing-1.0.tgz", sha512=digest)


def test_an_npm_package_is_fetched_once(registry, tmp_path):
    registry.pages["/npm/thing/-/thing-1.0.tgz"] = b"tarball"
    for _ in range(2):
        assert fetch(npm_pin(b"tarball"), tmp_path) == b"tarball"
    assert len(registry.asked) == 1


def test_a_wheel_is_found_on_the_page_of_its_project(registry, tmp_path):
    page = b'<a href="thing-0.9-py3-none-any.whl">x</a><a href="../../files/thing-1.0-py3-none-any.whl#sha256=0">y</a>'
    registry.pages["/simple/thing/"] = page
    registry.pages["/files/thing-1.0-py3-none-any.whl"] = b"wheel"
    assert fetch(wheel_pin(b"wheel"), tmp_path) == b"wheel"
    registry.pages.clear()
    assert fetch(wheel_pin(b"wheel"), tmp_path) == b"wheel"


def test_a_second_index_is_asked_when_the_first_has_nothing(registry, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"http://{registry.root}/empty http://{registry.root}/more/")
    registry.pages["/simple/thing/"] = b"<a href='other.whl'>x</a>"
    registry.pages["/more/thing/"] = b"<a href='thing-1.0-py3-none-any.whl'>x</a>"
    registry.pages["/more/thing/thing-1.0-py3-none-any.whl"] = b"wheel"
    assert fetch(wheel_pin(b"wheel"), tmp_path) == b"wheel"


def test_a_password_goes_into_the_header_and_never_into_a_message(registry, tmp_path, monkeypatch):
    monkeypatch.setenv("npm_config_registry", f"http://me:p%40ss@{registry.root}/npm")
    with pytest.raises(InputError) as caught:
        fetch(npm_pin(b"tarball"), tmp_path)
    assert "p%40ss" not in str(caught.value) and "p@ss" not in str(caught.value)
    assert registry.asked[0][1] == "Basic " + base64.b64encode(b"me:p@ss").decode()


@pytest.mark.parametrize("pin", [wheel_pin(b"right"), npm_pin(b"right")])
def test_other_bytes_are_refused_and_not_kept(registry, tmp_path, pin):
    registry.pages["/npm/thing/-/thing-1.0.tgz"] = b"wrong"
    registry.pages["/simple/thing/"] = b"<a href='thing-1.0-py3-none-any.whl'>x</a>"
    registry.pages["/simple/thing/thing-1.0-py3-none-any.whl"] = b"wrong"
    with pytest.raises(InputError, match="another hash than the lock file says"):
        fetch(pin, tmp_path)
    assert list(tmp_path.rglob("*.*")) == []


def test_a_damaged_copy_in_the_cache_is_fetched_anew(registry, tmp_path):
    registry.pages["/npm/thing/-/thing-1.0.tgz"] = b"tarball"
    kept = tmp_path / "labs" / "thing-1.0.tgz"
    kept.parent.mkdir()
    kept.write_bytes(b"half")
    assert fetch(npm_pin(b"tarball"), tmp_path) == b"tarball"
    assert kept.read_bytes() == b"tarball"


def test_without_a_network_the_sentence_names_file_and_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    with pytest.raises(InputError, match=r"thing-1\.0\.tgz is not in .*labs and could not be fetched .*refused"):
        fetch(npm_pin(b"tarball"), tmp_path)


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"MLSYSIM_CACHE": "/here", "XDG_CACHE_HOME": "/there"}, Path("/here")),
        ({"XDG_CACHE_HOME": "/x"}, Path("/x/mlsysim")),
    ],
)
def test_the_cache_is_where_the_environment_says(environment, folder):
    assert cache_folder(environment) == folder


def test_the_lock_file_is_whole():
    locked = {pin.name: pin for pin in pins()}
    assert locked["pyodide"].from_npm and len(base64.b64decode(locked["pyodide"].sha512)) == 64
    for pin in locked.values():
        assert pin.version in pin.filename and pin.license and pin.url.startswith("https://")
        assert pin.from_npm or len(bytes.fromhex(pin.sha256)) == 32
    assert {"pint", "pydantic", "pydantic-core"} <= set(locked)
    assert "wasm32" in locked["pydantic-core"].filename
    assert fetching.NPM.startswith("https://") and fetching.PYPI.startswith("https://")

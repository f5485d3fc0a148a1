"""What a site needs from outside: pinned files of the npm registry and of PyPI, kept in a cache.

``lock.toml`` names each file and its hash, so that it does not matter which mirror delivers it. The registries are those
of the environment (``npm_config_registry``, ``PIP_INDEX_URL``, ``PIP_EXTRA_INDEX_URL``, ``PIP_CERT``), else the public
ones. A file that is in the cache with the right hash is never asked for again, so that a second build needs no network.

References: the npm registry's tarball address, ``<registry>/<name>/-/<file>``; the simple repository API of Python
package indexes (https://packaging.python.org/en/latest/specifications/simple-repository-api/), whose HTML form every
index serves.
"""

from __future__ import annotations

import base64
import hashlib
import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from mlsysim.errors import InputError
from mlsysim.units.records import dataclass
from mlsysim.zoo.files import shipped
from mlsysim.zoo.writing import write_whole

NPM = "https://registry.npmjs.org/"
PYPI = "https://pypi.org/simple/"
NPM_VARIABLES = ("npm_config_registry", "NPM_CONFIG_REGISTRY")
TIMEOUT_SECONDS = 60
TRIES = 3


@dataclass(frozen=True)
class Pin:
    """One file from outside. ``sha512`` (npm) is base64 as in npm's own lock files, ``sha256`` (PyPI) is hexadecimal."""

    name: str
    version: str
    license: str
    url: str
    filename: str
    sha256: str = ""
    sha512: str = ""
    members: dict[str, str] = field(default_factory=dict)

    @property
    def from_npm(self) -> bool:
        return bool(self.sha512)

    def matches(self, content: bytes) -> bool:
        """Whether these are the bytes that the lock file means."""
        if self.from_npm:
            return base64.b64encode(hashlib.sha512(content).digest()).decode() == self.sha512
        return hashlib.sha256(content).hexdigest() == self.sha256


def pins() -> list[Pin]:
    """Everything in ``lock.toml``, in its order."""
    table = shipped("mlsysim.labs", "lock.toml")
    return [Pin(name=name, **entry) for name, entry in table.items()]


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where downloads are kept: ``MLSYSIM_CACHE``, else the user's cache folder as the platform has it."""
    known = os.environ if environment is None else environment
    if known.get("MLSYSIM_CACHE"):
        return Path(known["MLSYSIM_CACHE"])
    if sys.platform == "win32" and known.get("LOCALAPPDATA"):
        return Path(known["LOCALAPPDATA"], "mlsysim", "cache")
    usual = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return Path(known.get("XDG_CACHE_HOME") or usual, "mlsysim")


def fetch(pin: Pin, cache: Path | None = None) -> bytes:
    """The bytes of a pinned file: from the cache, else from its registry; anything with another hash is refused."""
    kept = (cache_folder() if cache is None else cache) / "labs" / pin.filename
    if kept.is_file() and pin.matches(content := kept.read_bytes()):
        return content
    found = []
    for source in _sources(pin):
        try:
            content = _download(source) if pin.from_npm else _from_index(source, pin)
        except OSError as error:
            found.append(f"{_without_password(source)}: {getattr(error, 'reason', None) or error}")
            continue
        if pin.matches(content):
            write_whole(kept, content, folders=True)
            return content
        found.append(f"{_without_password(source)}: the bytes have another hash than the lock file says")
    raise InputError(
        f"{pin.filename} is not in {kept.parent} and could not be fetched ({'; '.join(found)}): run this once with a "
        f"network, or put the file there."
    )


def _sources(pin: Pin) -> list[str]:
    """Where to look, in order: the tarball of the npm registry, or the project's page of each Python index."""
    if pin.from_npm:
        registry = next((os.environ[name] for name in NPM_VARIABLES if os.environ.get(name)), NPM)
        return [f"{registry.rstrip('/')}/{pin.name}/-/{pin.filename}"]
    indexes = [os.environ.get("PIP_INDEX_URL") or PYPI, *os.environ.get("PIP_EXTRA_INDEX_URL", "").split()]
    return [f"{index.rstrip('/')}/{pin.name}/" for index in indexes]


class _Links(HTMLParser):
    """The targets of all links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.targets += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _from_index(page: str, pin: Pin) -> bytes:
    links = _Links()
    links.feed(_download(page).decode("utf-8", "replace"))
    for target in links.targets:
        address = urljoin(page, target).partition("#")[0]
        if unquote(urlsplit(address).path).rpartition("/")[2] == pin.filename:
            return _download(address)
    raise FileNotFoundError(f"the page has no {pin.filename}")


def _download(address: str) -> bytes:
    """The body at an address; a name and password in it are sent as HTTP asks. A passing fault is tried again."""
    parts = urlsplit(address)
    request = urllib.request.Request(_without_password(address), headers={"Accept": "text/html, */*;q=0.1"})
    if parts.username is not None:
        account = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", "Basic " + base64.b64encode(account.encode()).decode())
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT") or None)
    for tries_left in reversed(range(TRIES)):
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=context) as response:
                return response.read()
        except OSError as error:
            if not tries_left or (isinstance(error, urllib.error.HTTPError) and error.code < 500):
                raise
    raise AssertionError("unreachable")


def _without_password(address: str) -> str:
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

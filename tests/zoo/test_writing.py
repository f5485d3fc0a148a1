"""A full disk, a read-only one and a folder that is not ours are named; what stood there before stays."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mlsysim.errors import InputError
from mlsysim.zoo.writing import write_whole


@pytest.mark.parametrize("content", ["ä\n", b"\xc3\xa4\n", lambda beside: beside.write_text("ä\n", encoding="utf-8")])
@pytest.mark.parametrize("lasting", [False, True])
def test_what_is_written(tmp_path, content, lasting):
    path = write_whole(tmp_path / "new" / "file", content, folders=True, lasting=lasting)
    assert path.read_bytes() == b"\xc3\xa4\n"
    assert [each.name for each in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "no space left on device; free some, or write to another disk."),
        (errno.EDQUOT, "disk quota exceeded; free some, or write to another disk."),
        (errno.EROFS, "read-only file system; write to another place."),
        (errno.EACCES, "permission denied."),
    ],
)
def test_what_the_system_refuses(tmp_path, monkeypatch, number, words):
    path = tmp_path / "file"
    path.write_text("before")

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(InputError) as caught:
        write_whole(path, "after", field="output")
    assert str(caught.value) == f"{str(path)!r} cannot be written: {words}" and caught.value.field == "output"
    assert path.read_text() == "before" and [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("form", ["npz", "parquet"])
def test_points_of_a_sweep_on_a_full_disk(form):
    numpy = pytest.importorskip("numpy")
    if form == "parquet":
        pytest.importorskip("duckdb")
    from mlsysim.search.store import _write

    with pytest.raises(OSError, match="No space left on device") as caught:
        _write(form, Path("/dev/full"), {"point": numpy.arange(100_000)})
    assert caught.value.errno == errno.ENOSPC

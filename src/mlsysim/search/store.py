"""Every evaluated point of a sweep in a folder, a file for each part: Parquet through DuckDB, or NumPy's ``.npz``.

    sweep(space, points="run/points")
    for columns in parts("run/points"): ...          # a part at a time, in the order of the points
    read("run/points")["mfu"]                        # all of it
    duckdb.sql("select * from 'run/points/*.parquet' where feasible order by mfu desc limit 10")

A row is a design that the constraints allow: its number (``point``), the inputs on axes in the units of the space's
document, ``feasible`` (walls and ``subject_to`` together), ``wall`` (what rejects it, 0 where no wall does) and every
output of the kind. What is not known is NULL in Parquet and not a number in arrays. Layouts that do not divide are no
designs and have no row, so that there are as many rows as the result has points; a part without rows is an empty file
``part-00000012.empty``. Parts are written whole or not at all by the process that computes them, and computing a part twice gives the same rows.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np

from mlsysim.errors import InputError, unknown_name
from mlsysim.search.folder import PartFolder
from mlsysim.search.kinds import kind_named
from mlsysim.search.space import Columns, Space
from mlsysim.zoo.writing import OF_THE_SYSTEM, write_whole

FORMATS = ("parquet", "npz")
LARGEST_PART = 2**18
"""Points of a part before constraints: what a process holds while it writes, some 100 MB."""

_MARKS = ("valid", "feasible", "wall")
_ROW_GROUP = 2**16


def chosen_format(name: str | None = None) -> str:
    """The format of that name; without a name Parquet where DuckDB is installed, else ``npz``."""
    if name is None:
        return "parquet" if find_spec("duckdb") is not None else "npz"
    if name not in FORMATS:
        raise unknown_name("format of points", name, FORMATS, "use " + " or ".join(FORMATS) + ".")
    if name == "parquet":
        _duckdb()
    return name


class PointStore(PartFolder):
    """The points of one sweep."""

    manifest, noun, holds, beneath = "points.json", "store of points", "points of a sweep", "points"

    def __init__(self, folder: str | Path, space: Space, part_size: int, form: str | None = None) -> None:
        """Open the folder of this space, or start one; ``form`` is ``parquet`` or ``npz``."""
        there = (Path(folder) / self.manifest).exists()
        recorded = self.read_manifest(Path(folder)).get("points") if there else None
        if there and (recorded not in FORMATS or form not in (None, recorded)):
            raise InputError(f"The points in {str(folder)!r} are {recorded}, not {form}; name another folder.")
        self.form = chosen_format(recorded or form)
        self.suffix = "." + self.form
        super().__init__(folder, space, part_size)

    def _mine(self) -> dict[str, Any]:
        return {**super()._mine(), "points": self.form}

    @classmethod
    def seen_by_worker(cls, folder: str, space: Space) -> Self:
        """The store, as a worker finds it; a worker on a machine without the folder says so."""
        if not (Path(folder) / cls.manifest).exists():
            raise InputError(
                f"A worker does not see the folder {folder!r}; points are written by the workers, so that it must be on a "
                "file system that they all share."
            )
        return cls(folder, space, cls.read_manifest(Path(folder))["part_size"])

    def has(self, part: int) -> bool:
        return self.path(part).exists() or self.path(part).with_suffix(".empty").exists()

    def fingerprint(self, part: int) -> str | None:
        """The hash of a part's file, so that one that was cut short or changed is computed again; None where there is none."""
        if not self.has(part):
            return None
        path = self.path(part)
        with (path if path.exists() else path.with_suffix(".empty")).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def save(self, part: int, columns: dict[str, Any]) -> None:
        if columns:
            write_whole(self.path(part), lambda beside: _write(self.form, beside, columns), lasting=True)
        else:
            write_whole(self.path(part).with_suffix(".empty"), Path.touch, lasting=True)

    def load(self, part: int) -> dict[str, Any]:
        path = self.path(part)
        try:
            return _read(self.form, path)
        except InputError:
            raise
        except Exception as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise self.refused(path, f"it is cut short or damaged ({why})") from None


class Rows:
    """Collects the rows of one part."""

    def __init__(self, space: Space) -> None:
        self.names = [name for name in kind_named(space.kind).outputs if name not in _MARKS]
        self.tiles: list[dict[str, Any]] = []

    def add(self, indices: Any, columns: Columns, outputs: dict[str, Any], feasible: Any) -> None:
        """A tile of points, what was computed for them, and which of them are feasible."""
        valid = np.broadcast_to(outputs.get("valid", True), indices.shape)
        every = bool(valid.all())

        def rows(values: Any) -> Any:
            full = np.broadcast_to(np.asarray(values), indices.shape)
            return full if every else full[valid]

        names = self.names or [name for name in outputs if name not in _MARKS]
        tile = {"point": rows(indices), **{name: rows(values) for name, values in columns.items()}}
        tile |= {"feasible": rows(feasible), "wall": rows(outputs["wall"]).astype(np.int16)}
        # An output that the data cannot give for this tile is unknown in all of its rows.
        tile |= {name: rows(outputs.get(name, np.nan)) for name in names}
        if tile["point"].size:
            self.tiles.append(tile)

    def columns(self) -> dict[str, Any]:
        """The rows so far; nothing where there are none."""
        return _joined(self.tiles)


def _joined(tables: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]} if tables else {}


def parts(folder: str | Path, *, partial: bool = False) -> Iterator[dict[str, Any]]:
    """The columns of each part in a folder, in the order of the points; ``partial`` allows parts to be missing."""
    store = PointStore.existing(folder)
    if not partial and (missing := store.count - sum(map(store.has, range(store.count)))):
        raise InputError(
            f"The points in {str(folder)!r} are not complete ({missing:,} of {store.count:,} parts are missing); go on "
            "with the sweep, or read what is there with partial=True."
        )
    for part in store.parts():
        yield store.load(part)


def read(folder: str | Path, *, partial: bool = False) -> dict[str, Any]:
    """All points in a folder as one array for each column; takes the memory of all of them."""
    return _joined(list(parts(folder, partial=partial)))


def row_bytes(folder: Path, form: str, columns: dict[str, Any]) -> float:
    """Bytes that a row takes in a format, tried out on some."""
    if not columns:
        return 0.0
    path = folder / "sample"
    _write(form, path, columns)
    return path.stat().st_size / len(columns["point"])


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise InputError(
            "Parquet needs the package 'duckdb': install mlsysim with its extra, mlsysim[parquet], or use npz."
        ) from None
    return duckdb


def _write(form: str, path: Path, columns: dict[str, Any]) -> None:
    if form == "npz":
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, **columns)
        return
    duckdb = _duckdb()
    with duckdb.connect(":memory:", config={"threads": 1}) as database:
        database.register("rows", columns)
        options = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROW_GROUP}"
        try:
            database.execute(f"COPY (SELECT * FROM rows) TO {_quoted(path)} ({options})")
        except duckdb.IOException as error:
            number = next((one for one in OF_THE_SYSTEM if os.strerror(one) in str(error)), errno.EIO)
            raise OSError(number, os.strerror(number)) from None


def _read(form: str, path: Path) -> dict[str, Any]:
    if form == "npz":
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    with _duckdb().connect(":memory:", config={"threads": 1}) as database:
        found = database.execute(f"SELECT * FROM read_parquet({_quoted(path)}) ORDER BY point").fetchnumpy()
    columns = {}
    for name, values in found.items():
        if isinstance(values, np.ma.MaskedArray):
            values = values.filled(np.nan)
        columns[name] = values.astype(str) if values.dtype.kind == "O" else values
    return columns


def parquet_of(folder: Path, target: Path, title: Callable[[str], str]) -> int:
    """Write the Parquet parts of a folder as one file with other titles of columns; returns how many rows it has."""
    source = f"read_parquet({_quoted(folder / 'part-*.parquet')})"
    if not any(folder.glob("part-*.parquet")):
        raise InputError("No design satisfies the constraints, so there are no points to write.")
    with _duckdb().connect(":memory:", config={"threads": 1}) as database:
        names = [row[0] for row in database.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()]
        chosen = ", ".join(f'"{name}" AS "{title(name)}"' for name in names)
        query = f"SELECT {chosen} FROM {source} ORDER BY point"
        write_whole(
            target,
            lambda beside: database.execute(f"COPY ({query}) TO {_quoted(beside)} (FORMAT parquet, COMPRESSION zstd)"),
        )
        return int(database.execute(f"SELECT count(*) FROM {source}").fetchall()[0][0])


def parquet_of_text(text: str, target: Path) -> None:
    """Write a table that is CSV as Parquet."""
    with TemporaryDirectory() as folder, _duckdb().connect(":memory:", config={"threads": 1}) as database:
        source = Path(folder) / "rows.csv"
        source.write_text(text, encoding="utf-8")
        query = f"SELECT * FROM read_csv({_quoted(source)}, header = true)"
        write_whole(target, lambda beside: database.execute(f"COPY ({query}) TO {_quoted(beside)} (FORMAT parquet)"))


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"

"""Where parts are computed does not change the result, whatever dies on the way."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mlsysim.errors import InputError, MLSysError
from mlsysim.search import executors
from mlsysim.search.executors import dask_executor, in_executor, in_pool, in_process, local_cluster
from mlsysim.search.space import Space
from mlsysim.search.sweep import sweep

PARTS = [(number, 10 * number, 10 * number + 10) for number in range(12)]
SPACE = """
kind = "node"
name = "many"
minimize = "latency_s"
pareto = ["latency_s", "price_usd"]
constraints = ["peak <= 800 * bandwidth"]
[fixed]
model = "Llama3_8B"
[axes]
peak = {range = [100, 2000], count = 40, unit = "TFLOP/s"}
bandwidth = {range = [1, 4], count = 40, unit = "TB/s"}
capacity = {range = [10, 100], count = 16, unit = "GB"}
price = {range = [1000, 20000], count = 60, unit = "USD"}
"""


def total(part: int, start: int, stop: int) -> int:
    return sum(range(start, stop))


def die(part: int, start: int, stop: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def refuse(part: int, start: int, stop: int) -> int:
    raise InputError(f"part {part} is bad.")


WANTED = {number: total(number, start, stop) for number, start, stop in PARTS}


def test_parts_come_back_from_everywhere():
    assert dict(in_process(total, PARTS)) == WANTED
    assert dict(in_pool(total, PARTS, 2)) == WANTED
    with ThreadPoolExecutor(3) as pool:
        assert dict(in_executor(total, PARTS, pool, lambda: 3)) == WANTED


def test_parts_are_not_made_before_they_are_needed():
    made = []

    def endless() -> Any:
        for number in range(10**9):
            made.append(number)
            yield number, number, number + 1

    with ThreadPoolExecutor(2) as pool:
        run = in_executor(total, endless(), pool, lambda: 2)
        assert [next(run)[1] is not None for _ in range(3)] == [True] * 3
        run.close()
    assert len(made) < 12


def test_an_error_of_a_part_is_the_error_of_the_sweep():
    with pytest.raises(InputError, match="is bad"):
        list(in_pool(refuse, PARTS, 1))


def test_a_part_that_kills_its_worker_ends_with_a_sentence(monkeypatch):
    monkeypatch.setattr(executors, "_RETRIES", 1)
    with pytest.raises(MLSysError, match=r"died 2 times in a row on the same parts; with a checkpoint"):
        list(in_pool(die, PARTS[:1], 1))


class Dropping(Executor):
    """An executor whose cluster has gone."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.cancel()
        future.set_running_or_notify_cancel()
        return future


def test_an_executor_that_drops_parts_ends_with_a_sentence():
    with pytest.raises(MLSysError, match="dropped parts"):
        list(in_executor(total, PARTS, Dropping(), lambda: 1))


# --- Dask -------------------------------------------------------------------------------------------------------------


def space() -> Space:
    import tomllib

    return Space.from_dict(tomllib.loads(SPACE))


def same(found: Any) -> dict[str, Any]:
    return json.loads(json.dumps(found.to_dict(timings=False), allow_nan=False))


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return same(sweep(space()))


def test_a_lost_dask_worker_does_not_change_the_result(whole, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    # On a busy machine everybody is late: nobody is given up for that.
    monkeypatch.setattr(executors, "_CONNECT_S", 120.0)
    monkeypatch.setattr(executors, "_PATIENCE_S", 60.0)
    patient = {f"distributed.comm.timeouts.{what}": "120s" for what in ("connect", "tcp")}
    with (
        distributed.dask.config.set({**patient, "distributed.scheduler.worker-ttl": None}),
        local_cluster(2) as address,
    ):
        with distributed.Client(address, timeout=600, set_as_default=False) as client:
            processes = list(client.run(os.getpid).values())
        killed = []

        def kill(done: int, parts: int, reduction: Any) -> None:
            if done and not killed:
                killed.append(processes[0])
                os.kill(processes[0], signal.SIGKILL)

        found = sweep(space(), dask=address, checkpoint=tmp_path / "run", progress=kill)
        assert killed and found.complete and same(found) == whole
        # The same cluster goes on working, and an error comes back as what it is.
        with dask_executor(address) as (executor, width):
            assert width() >= 1
            with pytest.raises(InputError, match="is bad"):
                list(in_executor(refuse, PARTS, executor, width))


def test_dask_without_its_package_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"mlsysim\[dask\]"):
        sweep(space(), dask="tcp://127.0.0.1:1")


def test_bad_addresses(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(executors, "_CONNECT_S", 0.2)
    for address in ("tcp://127.0.0.1:1", "carrier://pigeon"):
        with pytest.raises(InputError, match="no Dask scheduler at"):
            sweep(space(), dask=address)
    with pytest.raises(InputError, match="whole number of workers"), local_cluster(0):
        pass


# --- the program is killed ----------------------------------------------------------------------------------------------

# The program, which stands still after two parts for as long as a file called "stand" is beside its space: it can neither be late nor done too early.
STANDING = """
import sys, time
from pathlib import Path
from mlsysim.cli.main import main
from mlsysim.search.folder import Checkpoint

save, saved = Checkpoint.save, []


def stands(self, part, *more):
    save(self, part, *more)
    saved.append(part)
    while len(saved) == 2 and Path(sys.argv[2]).with_name("stand").exists():
        time.sleep(0.01)


Checkpoint.save = stands
sys.exit(main())
"""


def start(folder: Path, *more: str) -> tuple[subprocess.Popen[str], Path]:
    file, run = folder / "many.toml", folder / "run"
    file.write_text(SPACE)
    arguments = [sys.executable, "-c", STANDING, "sweep", str(file), "--json", "--resume", str(run), *more]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True), run


def stopped(folder: Path, *more: str) -> tuple[subprocess.Popen[str], Path]:
    """A program that has finished two parts and stands."""
    (folder / "stand").touch()
    program, run = start(folder, *more)
    for _ in range(20_000):
        if run.exists() and len(list(run.glob("part-*.json"))) == 2:
            return program, run
        assert program.poll() is None, program.communicate()
        time.sleep(0.01)
    raise AssertionError("no part was finished")


def finished(program: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = program.communicate(timeout=600)
    assert program.returncode == 0, err
    return json.loads(out)


LEFT_OUT = ("seconds", "cpu_seconds", "points_per_second", "resumed_points", "explanation")


def without_timings(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in LEFT_OUT}


@pytest.mark.parametrize("more", [(), ("--workers", "2")])
def test_a_killed_program_goes_on(whole, tmp_path, more):
    program, run = stopped(tmp_path, *more)
    program.kill()
    program.communicate(timeout=600)
    assert program.returncode == -signal.SIGKILL and len(list(run.glob("part-*.json"))) == 2
    (tmp_path / "stand").unlink()
    again, _ = start(tmp_path, *more)
    document = finished(again)
    assert without_timings(document) == whole
    assert document["resumed_points"] > 0


def test_an_interrupted_program_prints_the_best_so_far_and_goes_on(whole, tmp_path):
    program, run = stopped(tmp_path, "--workers", "2")
    program.send_signal(signal.SIGINT)
    (tmp_path / "stand").unlink()
    out, err = program.communicate(timeout=600)
    early = json.loads(out)
    assert program.returncode == 130 and not early["complete"] and early["best"]
    assert (
        err.strip() == f"Interrupted: the finished parts are in {str(run)!r}, and the same command goes on from there."
    )
    again, _ = start(tmp_path)
    assert without_timings(finished(again)) == whole


def test_a_lost_scheduler_leaves_no_tracebacks_of_its_client(caplog):
    logger = logging.getLogger("distributed.client")
    with executors._without_tracebacks():
        logger.error("the first of many")
    assert not caplog.records
    logger.error("of somebody else")
    assert [record.message for record in caplog.records] == ["of somebody else"]

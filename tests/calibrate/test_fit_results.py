"""An engine from the requests of a benchmark: what was planted is found where the file tells it, and the engine can be asked for by name."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from mlsysim.calibrate.fit_results import (
    FEWEST,
    MOST,
    FittedEngine,
    Played,
    Service,
    fit_results,
    parts_of,
    service_of,
    write_engine,
)
from mlsysim.calibrate.questions import calibrated_plan
from mlsysim.errors import InputError
from mlsysim.simulate.replicas import kind_of
from mlsysim.simulate.requests import Measured
from mlsysim.simulate.settings import Settings
from mlsysim.simulate.traffic import Load, Spread
from mlsysim.timing.engines import engine

PLAN = calibrated_plan("serving", "Llama3_8B", "1xH200", serving={"engine": "vLLM", "chunk_tokens": 2048})
PLANTED = {"front_end": 9e-3, "step": 8e-4, "per_sequence": 2e-5, "waited_operator": 3e-6, "prompts": 1.1, "answers": 1.05}  # fmt: skip


class _All(Played):
    """Hands out what each request saw."""

    def statistics(self, ttfts, tpots):
        return [ttfts, tpots]


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    """Two runs as a log of requests, simulated with the planted constants."""
    path = tmp_path_factory.mktemp("results") / "log.csv"
    loads = {rate: Load(rate, Spread(900.0, 0.8), Spread(60.0, 0.5), count=200) for rate in (0.5, 12.0)}
    head = ["run", "arrival_s", "input_tokens", "output_tokens", "ttft_s", "tpot_s"]
    drawn = {rate: tuple(load.requests(1)) for rate, load in loads.items()}
    with path.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(head)
        table.writerows((rate, *request[:3], 1, 1) for rate, requests in drawn.items() for request in requests)
    service = service_of(PLAN, path)
    with path.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(head)
        for rate, requests in drawn.items():
            whole = _All(str(rate), requests, (Measured(1.0, 1.0),) * len(requests), 0, len(requests))
            for request, ttft, tpot in zip(requests, *service.play(whole, service.kind(PLANTED)), strict=True):
                table.writerow((rate, *request[:3], ttft, tpot))
    return path


@pytest.fixture(scope="module")
def fitted(log: Path) -> FittedEngine:
    return fit_results(log, service_of(PLAN, log))


def test_planted_constants_predict_runs_that_were_left_out(fitted: FittedEngine) -> None:
    found = fitted.to_dict()
    assert found["before"]["median_ape"] > 10 > 3 > found["after_left_out"]["median_ape"]
    # A single model does not tell a step's own time from a factor on it; the front end it does.
    assert fitted.constants["front_end"] == pytest.approx(PLANTED["front_end"], rel=0.35)


def test_the_engine_is_written_to_the_zoo_and_asked_for_by_name(
    fitted: FittedEngine, log: Path, tmp_path: Path, monkeypatch
) -> None:
    path = write_engine(fitted, "My_vLLM", tmp_path, log.name, "2026-11-16")
    assert path == tmp_path / "engines" / "My_vLLM.toml"
    monkeypatch.setenv("MLSYSIM_ZOO", str(tmp_path))
    own, base = engine("my-vllm"), engine("vLLM")
    assert (own.name, own.like) == ("My_vLLM", "vLLM")
    assert own.front_end == pytest.approx(fitted.constants["front_end"], rel=1e-4)
    assert (own.host_operator, own.token_budget) == (base.host_operator, base.token_budget)
    again = service_of(PLAN.model_copy(update={"serving": PLAN.serving.model_copy(update={"engine": "My_vLLM"})}), log)
    assert isinstance(again, Service)
    launches = service_of(PLAN, log).machine.writer.factors[2]
    assert again.machine.writer.factors == pytest.approx(
        [fitted.constants["prompts"], fitted.constants["answers"], launches], rel=1e-4
    )
    with pytest.raises(InputError, match="identifier"):
        write_engine(fitted, "my engine", tmp_path, log.name)


def test_a_file_that_says_too_little_is_refused(log: Path, tmp_path: Path) -> None:
    lines = log.read_text().splitlines()
    few = tmp_path / "few.csv"
    few.write_text("\n".join(lines[: FEWEST - 2]) + "\n")
    with pytest.raises(InputError, match="fewer than 20"):
        fit_results(few, service_of(PLAN, log))
    plain = tmp_path / "plain.csv"
    plain.write_text("arrival_s,input_tokens,output_tokens\n" + "\n".join(f"{n},10,10" for n in range(30)) + "\n")
    with pytest.raises(InputError, match="not how long they took"):
        fit_results(plain, service_of(PLAN, log))


def test_of_a_long_file_the_first_requests_of_each_run_are_fitted(log: Path, tmp_path: Path) -> None:
    head, *lines = log.read_text().splitlines()
    runs = [line.split(",", 1) for line in lines if line.startswith("0.5,")]
    whole = tmp_path / "long.csv"
    whole.write_text(
        "\n".join([head, *(f"{name},{rest}" for name in range(2 * MOST // len(runs)) for _, rest in runs)]) + "\n"
    )
    parts = parts_of(whole)
    assert len(parts) == 2 * MOST // len(runs) and all(each.last == len(each.requests) for each in parts)
    assert FEWEST * len(parts) <= sum(each.last for each in parts) <= MOST
    assert len(parts[0].values) == 6


def test_what_is_known_of_products_is_the_same_with_other_constants(log: Path) -> None:
    service, part = service_of(PLAN, log), parts_of(log)[1]
    fresh = kind_of(service.moved(PLANTED), service.traffic, Settings())
    assert service.play(part, service.kind(PLANTED)) == service.play(part, fresh)

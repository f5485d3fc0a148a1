"""Prompts on one pool of devices, answers on another: of any size and chip, also of the same."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim import serve
from mlsysim.cases.algebra import ledger_of
from mlsysim.cases.machines import drafting
from mlsysim.cases.pools import Pool
from mlsysim.hardware.registry import Hardware
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.search.serving import evaluate
from mlsysim.search.space import Space
from mlsysim.timing.power import chip_power
from mlsysim.units.registry import to_si
from mlsysim.walls.node.serving import ServingModel

FIDELITIES = (0.5, "calibrated")


def solved(fidelity, clients=128, model="Llama3_70B", **more):
    given = {"precision": "fp8", "tp_size": 4, "output_len": 256, "decode_hardware": "H100"} | more
    return ServingModel().solve(model, "H100", 1024, efficiency=fidelity, concurrency=clients, **given)


def rate(result) -> float:
    return to_si(result.output_tokens_per_sec, "1/s") / 256


def planned(decode_on, on="8xH100", **serving):
    part = {"prompt_tokens": 1024, "output_tokens": 256, "concurrency": 256, "decode_on": decode_on} | serving
    return evaluate_plainly(
        Plan.model_validate(
            {"workload": {"model": "Llama3_70B", "precision": "fp8"}, "hardware": {"on": on}, "serving": part}
        )
    )


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_a_pool_of_the_same_chip_is_a_pool(fidelity):
    """It has devices of its own, no prompt stalls an answer, and caches cross the network."""
    together, apart = solved(fidelity, decode_hardware=None), solved(fidelity)
    assert apart.devices == 2 * together.devices
    assert apart.kv_transfer_time is not None and to_si(apart.decode_stall_bound, "s") == 0
    assert apart.tpot < together.tpot


@pytest.mark.parametrize("fidelity", FIDELITIES)
@settings(max_examples=12)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 2000))
def test_both_pools_do_no_more_than_the_slower(fidelity, readers, writers, clients):
    result = solved(fidelity, clients, num_replicas=readers, decode_replicas=writers)
    pools = result.named("pools")
    assert rate(result) <= min(pools.reading, pools.writing) * 1.02


@pytest.mark.parametrize("serving", [{"qps": 2}, {"qps": 2, "prompt_tokens": 200, "output_tokens": 3000}])
def test_the_most_that_is_answered_is_what_the_slower_pool_does_by_itself(serving):
    answer = planned("8xH100", concurrency=None, **serving)
    said = next(line for line in answer.verdict if line.startswith("Each by itself"))
    most = f"{to_si(answer.value('most_requests_per_second'), '1/s'):.3g}"
    assert f"up to {most} requests a second" in said or f"up to {most}:" in said


def test_as_many_clients_as_have_places_fill_them():
    """21.7 answers a second that the decode pool "writes up to" stood beside 22.6 that were played: chance does not fill places of clients."""
    asked = {"concurrency": 200, "isl": 2000, "osl": 300, "tp": 1, "decode_on": "1xH100", "slo": "ttft_p99=3s"}
    answer = serve("Llama3_8B", "2xH100", **asked)
    said = next(line for line in answer.verdict if line.startswith("Each by itself"))
    most = float(said.partition("writes up to ")[2].partition(":")[0])
    assert to_si(answer.value("requests_per_second"), "1/s") <= most


def test_prefixes_are_found_by_readers_of_prompts_that_come_at_a_rate():
    assert planned("8xH100", concurrency=None, qps=2, prefix_hits=0.5).feasible


@pytest.mark.parametrize(("readers", "writers", "slower"), [(1, 8, "prefill"), (8, 1, "decode")])
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_more_of_the_slower_pool_is_more_and_of_the_other_is_not(fidelity, readers, writers, slower):
    many = {"num_replicas": readers, "decode_replicas": writers}
    base = solved(fidelity, 8000, **many)
    pools = base.named("pools")
    assert pools.slower == slower
    own, other = ("num_replicas", "decode_replicas") if slower == "prefill" else ("decode_replicas", "num_replicas")
    assert rate(solved(fidelity, 16000, **many | {own: 2})) == pytest.approx(2 * rate(base), rel=0.1)
    assert rate(solved(fidelity, 8000, **many | {other: 16})) == pytest.approx(rate(base), rel=0.05)


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_a_latent_cache_crosses_once_whatever_the_tensor_group(fidelity):
    """Each of the devices of a tensor group holds the same latent cache; one copy of it is sent."""
    given = {"model": "DeepSeek_V3", "decode_hardware": "H200", "clients": 8}
    sent = []
    for tp in (4, 8):
        ledger = solved(fidelity, tp_size=tp, ep_size=8, **given).ledger
        sent.append(sum(part.sent for part in ledger.parts if "hand-over" in part.name))
    # 61 layers of 576 numbers in 16 bits for each of 1,024 tokens.
    assert sent[0] == sent[1] == pytest.approx(61 * 576 * 2 * 1024)


def test_a_pool_of_any_size_and_chip():
    small, large = planned("4xH200"), planned("16xH200")
    assert small.feasible and large.feasible
    assert large.value("tokens_per_second") >= small.value("tokens_per_second")
    assert large.value("tco") > small.value("tco")
    assert any("pool is the slower" in line for line in small.verdict)


def test_a_chip_alone_is_as_many_as_read_prompts():
    assert planned("H100").value("tokens_per_second") == planned("8xH100").value("tokens_per_second")
    assert planned("1xH200").value("tokens_per_second") != planned("H200").value("tokens_per_second")


def test_the_best_share_of_a_fleet_is_no_worse_than_any():
    best = planned("auto")
    shares = [planned(f"{8 - readers}xH100", on=f"{readers}xH100") for readers in (2, 4, 6)]
    assert best.value("tokens_per_second") >= max(each.value("tokens_per_second") for each in shares if each.feasible)
    # Eight accelerators are paid for, not sixteen.
    assert best.value("tco").magnitude == pytest.approx(shares[1].value("tco").magnitude, rel=0.1)
    assert "the best of" in best.assumptions["decode_on"]


def test_clients_beyond_the_places_wait_in_later_rounds_however_long_the_first_took():
    """Prompts of the first round take most of an answer to read, so that its clients find places; those of later rounds do not."""

    def first_token(clients):
        serving = {"prompt_tokens": 2048, "output_tokens": 1024, "range_ratio": 0.8, "max_num_seqs": 256}
        work = {"workload": {"model": "Llama3_70B", "precision": "fp8"}, "hardware": {"on": "8xH100"}}
        pools = {"decode_on": "8xH100", "decode_tp": 8, "decode_replicas": 1, "concurrency": clients}
        answer = evaluate_plainly(Plan.model_validate(work | {"parallelism": {"tp": 8}, "serving": serving | pools}))
        return to_si(answer.value("ttft"), "s"), to_si(answer.value("tpot"), "s")

    (full, step), (over, _) = first_token(256), first_token(264)
    # One in 33 has no place: by Little's law so much of an answer, of which other prompts of the round take about half anyway.
    assert over - full > 0.25 * 0.9 * 1024 * step * 8 / 256


@pytest.mark.parametrize("model", ["Llama3_8B", "Mixtral_8x7B", "DeepSeek_V3"])
@pytest.mark.parametrize("cached", [0, 300])
def test_operations_of_a_request_are_those_of_its_parts(model, cached):
    """At first order those of one prompt and of the middle token of an answer, of which every token has as many on average."""
    result = ServingModel().solve(model, "H100", 1000, output_len=101, tp_size=8, cached_prefix_len=cached)
    machine, t = result.named("machine"), result.named("traffic")
    read = ledger_of(lambda a: machine.reading(t, t.new, a.tag)(t.prompt - t.new)).total("flop")
    wrote = ledger_of(lambda a: machine.writing(t, a.tag)(t.mean_context)).total("flop")
    own, both = machine.reader.model, Pool(1, 8)
    assert both.operations(own, t) == pytest.approx(8 * (read + t.mean_answer * wrote), rel=1e-9)
    power = chip_power(Hardware.get("H100"))
    done = both.activity(own, power, 1.0, "fp16", t, 3.0).operations
    assert done == pytest.approx(3.0 * both.operations(own, t) / 8, rel=1e-9)


def test_drafted_tokens_are_computed_and_weights_are_read_once_a_step():
    """Of four drafted tokens with 0.7 accepted a step gives 2.77: five are computed for them, and the draft model reads its own weights four times."""
    given = {"draft_model": "Llama3_8B", "num_speculative_tokens": 4, "draft_acceptance_rate": 0.7}
    result = ServingModel().solve("Llama3_70B", "H100", 64, output_len=64, tp_size=8, **given)
    machine, t = result.named("machine"), drafting(result.named("machine"), result.named("traffic"))
    power, own, draft = chip_power(Hardware.get("H100")), machine.writer.model, machine.draft.model
    found = Pool(1, 8, reads=False).activity(own, power, 1.0, "fp16", t, 1.0, draft=draft)
    plain = Pool(1, 8, reads=False).activity(own, power, 1.0, "fp16", result.named("traffic"), 1.0)
    gained = (1 - 0.7**5) / 0.3
    small = draft.parameter_count / own.parameter_count
    assert found.operations / plain.operations == pytest.approx((5 + 4 * small) / gained, rel=0.01)
    assert found.moved / plain.moved == pytest.approx((1 + 4 * small) / gained, rel=0.01)


@pytest.mark.parametrize("efficiency", [None, 0.5])
def test_replicas_without_a_client_wait(efficiency):
    """Two clients of eight replicas: two draw what two alone do, six what a device does that waits."""

    def asked(on):
        found = {"concurrency": 2, "prompt_tokens": 512, "output_tokens": 128}
        plan = {"workload": {"model": "Llama3_8B"}, "hardware": {"on": on}, "parallelism": {"tp": 1}, "serving": found}
        plan["hardware"] |= {} if efficiency is None else {"efficiency": efficiency}
        return evaluate_plainly(Plan.model_validate(plan))

    many, two = asked("8xH100"), asked("2xH100")
    at_work = to_si(two.value("accelerator_power"), "W")
    assert to_si(many.value("accelerator_power"), "W") == pytest.approx(at_work, rel=1e-9)
    waits = chip_power(Hardware.get("H100")).wait
    assert to_si(many.value("run_power"), "W") == pytest.approx((2 * at_work + 6 * waits) / 8, rel=1e-9)
    assert many.assumptions["idle_devices"].startswith("6 of the accelerators have no replica at work")


@pytest.mark.parametrize("efficiency", [None, 0.5])
def test_a_sweep_has_replicas_without_a_client_wait_too(efficiency):
    fixed = {"model": "Llama3_8B", "isl": 512, "osl": 128, "hardware": "H100", "concurrency": 2}
    fixed |= {} if efficiency is None else {"efficiency": efficiency}
    space = Space.from_dict({"kind": "serving", "fixed": fixed, "axes": {"replicas": [2, 8]}})
    two, eight = evaluate(space, space.decode(np.arange(2)))["kwh_per_mtoken"]
    assert two < eight < 2.5 * two


def test_accelerators_that_read_and_that_write_draw_what_each_pool_does():
    """The power of an accelerator is that of one pool; the answer says so, and the power of both is in the whole."""
    asked = {"isl": 512, "osl": 256, "qps": 5}
    both, one = serve("Llama3_8B", "1xH100", decode_on="1xH100", **asked), serve("Llama3_8B", "1xH100", **asked)
    said = both.assumptions["accelerator_power"]
    writes = float(re.search(r"draw ([\d,]+) W", said)[1].replace(",", ""))
    reads, node, whole = (to_si(both.value(name), "W") for name in ("accelerator_power", "node_power", "power"))
    assert "read prompts" in said and reads < 250 < 400 < writes < to_si(one.value("accelerator_power"), "W")
    assert whole == pytest.approx(2 * node + 1.21 * (writes - reads), rel=0.01)
    assert "accelerator_power" not in one.assumptions

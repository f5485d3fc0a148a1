"""One replica of one device is the single node: its iteration is the node's pass, at both fidelities."""

from __future__ import annotations

import math
import random

import pytest

from mlsysim.cases.ledger import STREAMED
from mlsysim.cases.request import ANSWER, FIRST, of_phase
from mlsysim.errors import MLSysError
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.units.registry import to_si
from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.walls.node.serving import ServingModel
from mlsysim.zoo.intervals import interval

CHIPS = ("H100", "A100", "H200", "B200", "MI300X", "TPUv5e", "L40S", "RTX_4090", "T4", "GB200")


def decoders() -> list[str]:
    found = []
    for key in Models.keys():  # noqa: SIM118
        model = Models.get(key)
        if isinstance(model, TransformerWorkload) and model.structure == "decoder" and model.has_dimensions:
            found.append(key)
    return random.Random(12).sample(found, 20)


@pytest.mark.parametrize("model", decoders())
def test_one_sequence_on_one_device_is_the_nodes_pass(model: str) -> None:
    """Where it fits; what does not is streamed from the host by the node, and rejected by the replica."""
    for chip in CHIPS:
        for context in (100, 8000):
            given = {"precision": "bf16", "efficiency": 0.4}
            try:
                served = ServingModel().solve(model, chip, context, 1, **given)
            except MLSysError:
                with pytest.raises(MLSysError):
                    SingleNodeModel().solve(model, chip, batch_size=1, seq_len=context, phase="decode", **given)
                continue
            if not served.feasible:
                continue
            for phase, time in (("decode", served.itl), ("prefill", served.ttft)):
                node = SingleNodeModel().solve(model, chip, batch_size=1, seq_len=context, phase=phase, **given)
                if node.feasible:
                    assert to_si(time, "s") == pytest.approx(to_si(node.latency, "s"), rel=1e-12), (chip, phase)
                    assert served.ledger is not None and node.ledger is not None


@pytest.mark.parametrize("model", decoders())
def test_an_engines_iteration_is_the_nodes_pass(model: str) -> None:
    """Calibrated, with the same software: seconds, their parts, what is held, and the interval."""
    for at, chip in enumerate(CHIPS):
        batch, context, name = ((1, 100, None), (16, 3000, "SGLang"), (64, 500, "TensorRT-LLM"))[at % 3]
        given = {"precision": "bf16", "efficiency": "calibrated"}
        node = {"batch_size": batch, "seq_len": context, **given, **({} if name is None else {"runtime": name})}
        engine = {} if name is None else {"engine": name}
        try:
            served = ServingModel().solve(model, chip, context, batch, **given, **engine)
        except MLSysError:
            with pytest.raises(MLSysError):
                SingleNodeModel().solve(model, chip, phase="decode", **node)
            continue
        held = ServingModel().solve(model, chip, context, batch, output_len=1, **given, **engine)
        for phase, time, band, words in (
            ("decode", served.itl, served.itl_interval, ANSWER),
            ("prefill", served.ttft, served.ttft_interval, FIRST),
        ):
            alone = SingleNodeModel().solve(model, chip, phase=phase, **node)
            memory = held if phase == "decode" else served
            assert to_si(alone.memory_footprint, "byte") == to_si(memory.memory_per_device, "byte")
            assert alone.feasible is memory.feasible
            assert served.ledger is not None and alone.ledger is not None
            # What does not fit is streamed from the host by the node, and rejected by the replica.
            streamed = alone.ledger.exposed(STREAMED)
            assert streamed == 0 or not alone.feasible
            assert to_si(alone.latency, "s") - streamed == pytest.approx(to_si(time, "s"), rel=1e-12), (chip, phase)
            if not streamed:
                assert [to_si(side, "s") for side in alone.interval] == pytest.approx([to_si(s, "s") for s in band])
            parts = [p for p in alone.ledger.parts if p.name != STREAMED]
            expected = {(p.name, p.resource): p.exposed for p in of_phase(served.ledger, words).parts}
            found = {(p.name, p.resource): p.exposed for p in parts}
            assert {k: v for k, v in found.items() if v} == pytest.approx({k: v for k, v in expected.items() if v})


def test_messages_between_nodes_widen_the_interval_by_their_part_of_a_token() -> None:
    given = {"efficiency": "calibrated", "fabric": "InfiniBand_NDR", "output_len": 100}
    two, one = (
        ServingModel().solve("DeepSeek_R1", chip, 1000, 1, tp_size=tp, **given)
        for chip, tp in (("H100", 16), ("H200", 8))
    )
    answer, network = of_phase(two.ledger, ANSWER), interval("collective network")
    wide, alone = (math.log(each.itl_interval[1] / each.itl) for each in (two, one))
    sent = answer.walls()[14] / answer.seconds * math.log(network.high)
    assert wide == pytest.approx(math.hypot(alone, sent), rel=1e-6) and wide > 1.3 * alone
    assert "several nodes" in two.assumptions["interval"] and "several nodes" not in one.assumptions["interval"]

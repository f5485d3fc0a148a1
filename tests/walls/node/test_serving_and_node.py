"""One replica of one device with one sequence is the single node's pass, at first order."""

from __future__ import annotations

import random

import pytest

from mlsysim.errors import MLSysError
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.units.registry import to_si
from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.walls.node.serving import ServingModel

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

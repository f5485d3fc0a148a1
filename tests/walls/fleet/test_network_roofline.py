"""Arithmetic against gradient synchronisation."""

from __future__ import annotations

import pytest

from mlsysim import Models, NetworkRooflineModel


def test_small_batches_wait_for_the_network() -> None:
    few = NetworkRooflineModel().solve("ResNet50", "Research_256", batch_size=1)
    many = NetworkRooflineModel().solve("ResNet50", "Research_256", batch_size=256)
    assert few.bottleneck == "Network" and few.binding.wall == 14
    assert many.bottleneck == "Compute" and many.mfu == pytest.approx(0.5, rel=0.01)


def test_intensity_is_operations_per_gradient_byte() -> None:
    answer = NetworkRooflineModel().solve("Llama3_8B", "Research_256", seq_len=1024)
    demand = Models.Llama3_8B.demand("training", batch_size=1, seq_len=1024)
    assert answer.arithmetic_intensity.to("flop/byte").magnitude == pytest.approx(
        demand.flops / (2 * Models.Llama3_8B.parameter_count)
    )

"""Weight-only formats: weights are expanded while matrix units multiply."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlsysim.hardware.registry import Hardware
from mlsysim.models.graph import Operator
from mlsysim.timing.operator_times import Execution, operator_time
from mlsysim.timing.profile import profile

# TensorRT-LLM 1.0 on an A100 SXM, int8 weights with 16-bit activations (aiconfigurator, gemm_perf): rows, columns, depth, microseconds.
# Rates of products were fitted on 16-bit rows alone, the expansion on none.
EXPANDED = [
    (4096, 8192, 8192, 2084.86),
    (8192, 8192, 7168, 3638.27),
    (2048, 10240, 12288, 1975.3),
    (32, 12288, 16384, 134.1),
]


@pytest.mark.parametrize(("m", "n", "k", "measured"), EXPANDED)
def test_int8_weights_of_an_a100_cost_no_arithmetic(m, n, k, measured):
    """The sum of arithmetic and expansion was a quarter above these at many rows."""
    chip = Hardware.get("A100")
    sizes = {"input_bytes": 2.0 * m * k, "output_bytes": 2.0 * m * n}
    op = Operator("product", "gemm", "layer", flops=2.0 * m * n * k, weight_bytes=1.0 * n * k, m=m, n=n, k=k, **sizes)
    own, how = profile(chip), Execution(sustained=False)
    narrow = operator_time(op, chip, own, "w8a16", how)
    wide = operator_time(replace(op, weight_bytes=2.0 * n * k), chip, own, "bf16", how)
    assert narrow * 1e6 == pytest.approx(measured, rel=0.12)
    assert narrow <= 1.01 * wide

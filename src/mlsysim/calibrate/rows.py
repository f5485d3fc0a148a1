"""A network given by layer rows, run row by row: each layer on a random input of its own size.

What a real network does between its layers (sums of branches, reshapes) is not run, and neither is it in the lowered graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.calibrate.device import Device
from mlsysim.errors import InputError
from mlsysim.models.layers import Layer
from mlsysim.models.vision import CNNWorkload


def run_rows(model: CNNWorkload, device: Device, dtype: Any, batch: int) -> Callable[[], Any]:
    """A function that runs every layer as often as it occurs."""
    calls = [(_layer(layer, model.name, device, dtype, batch), layer.count) for layer in model.network]

    def work() -> None:
        for call, count in calls:
            for _ in range(count):
                call()

    return work


def _layer(layer: Layer, name: str, device: Device, dtype: Any, batch: int) -> Callable[[], Any]:
    torch, functional = device.torch, device.torch.nn.functional

    def random(*shape: int) -> Any:
        made = torch.randn(*shape, device=device.kind).to(dtype) * 0.05
        return made.contiguous(memory_format=torch.channels_last) if made.dim() == 4 else made

    kernel, stride = layer.kernel, layer.stride
    height, width = layer.height * stride, layer.width * stride
    if layer.kind in ("conv", "dwconv"):
        depthwise = layer.kind == "dwconv"
        channels = layer.outputs if depthwise else layer.inputs
        groups = layer.outputs if depthwise else layer.groups
        x = random(batch, channels, height, width)
        weight = random(layer.outputs, channels // groups, *kernel)
        scale, shift = random(layer.outputs), random(layer.outputs)
        mean, spread = torch.zeros_like(scale), torch.ones_like(scale)
        padding = (kernel[0] // 2, kernel[1] // 2)

        def convolve() -> Any:
            y = functional.conv2d(x, weight, None, stride, padding, 1, groups)
            if layer.norm:
                y = functional.relu_(functional.batch_norm(y, mean, spread, scale, shift))
            return y

        return convolve
    if layer.kind == "linear":
        x, weight = random(batch * layer.positions, layer.inputs), random(layer.outputs, layer.inputs)
        return lambda: functional.linear(x, weight)
    if layer.kind == "attn":
        q = random(batch, layer.heads, layer.height, layer.outputs)
        k = random(batch, layer.heads, layer.width, layer.outputs)
        return lambda: functional.scaled_dot_product_attention(q, k, k)
    if layer.kind in ("norm", "pool", "upsample"):
        x = random(batch, layer.outputs, height, width)
        if layer.kind == "pool":
            return lambda: functional.max_pool2d(x, kernel, stride, (kernel[0] // 2, kernel[1] // 2))
        return lambda: functional.relu(x)
    raise InputError(f"verify does not run the {layer.kind!r} layers of {name}.")

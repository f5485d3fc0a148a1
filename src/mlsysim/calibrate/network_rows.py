"""Networks that are given by layer rows, with random weights, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.calibrate.device import Device
from mlsysim.errors import InputError
from mlsysim.models.layers import Layer
from mlsysim.models.vision import CNNWorkload

_DEEP = 16
"""Norms of a network whose rows do not show the skip connections that it has."""


class Rows:
    """A network given by layer rows: every occurrence of a layer with weights of its own, each on a random input of its row's size.

    Rows do not say what feeds what, so layers are run side by side. Where a deep network has skip connections, every third normed layer adds one,
    as in the counted operators. What else lies between layers (reshapes) is not run. Channels last.
    """

    kernel = ""

    def __init__(self, model: CNNWorkload, device: Device, dtype: Any, batch: int, training: bool) -> None:
        self.device, self.torch, self.dtype, self.training = device, device.torch, dtype, training
        self.functional = device.torch.nn.functional
        self.trained: list[Any] = []
        deep = sum(layer.count for layer in model.network if layer.norm) >= _DEEP
        self.calls: list[Callable[[], Any]] = []
        normed = 0
        for layer in model.network:
            inputs = self._inputs(layer, model.name, batch)
            for _ in range(layer.count):
                normed += layer.norm
                self.calls.append(self._layer(layer, inputs, deep and layer.norm and normed % 3 == 0))

    def forward(self) -> list[Any]:
        return [call() for call in self.calls]

    def _random(self, *shape: int) -> Any:
        made = self.torch.randn(*shape, device=self.device.kind).to(self.dtype) * 0.05
        return made.contiguous(memory_format=self.torch.channels_last) if made.dim() == 4 else made

    def _weight(self, *shape: int) -> Any:
        # Parameters stay in single precision where precision is mixed.
        self.trained.append(self._random(*shape).float())
        return self.trained[-1]

    def _inputs(self, layer: Layer, name: str, batch: int) -> list[Any]:
        if layer.kind == "attn":
            sizes: list[tuple[int, ...]] = [(batch, layer.heads, n, layer.outputs) for n in (layer.height, layer.width)]
        elif layer.kind == "linear":
            sizes = [(batch * layer.positions, layer.inputs)]
        elif layer.kind in ("conv", "dwconv", "norm", "pool", "upsample"):
            channels = layer.inputs if layer.kind == "conv" else layer.outputs
            sizes = [(batch, channels, layer.height * layer.stride, layer.width * layer.stride)]
        else:
            raise InputError(f"verify does not run the {layer.kind!r} layers of {name}.")
        made = [self._random(*size) for size in sizes]
        return [x.requires_grad_(self.training) for x in made]

    def _layer(self, layer: Layer, inputs: list[Any], skips: bool) -> Callable[[], Any]:
        functional, kernel, stride = self.functional, layer.kernel, layer.stride
        padding, x = (kernel[0] // 2, kernel[1] // 2), inputs[0]
        if layer.kind in ("conv", "dwconv"):
            groups = layer.outputs if layer.kind == "dwconv" else layer.groups
            weight = self._weight(layer.outputs, x.shape[1] // groups, *kernel)
            scale, shift = self._weight(layer.outputs), self._weight(layer.outputs)
            mean, spread = self.torch.zeros_like(scale), self.torch.ones_like(scale)
            skip = self._random(x.shape[0], layer.outputs, layer.height, layer.width) if skips else None

            def convolve() -> Any:
                y = functional.conv2d(x, weight, None, stride, padding, 1, groups)
                if not layer.norm:
                    return y
                y = functional.batch_norm(y, mean, spread, scale, shift, self.training)
                if skip is not None:
                    y = y + skip
                return functional.relu_(y)

            return convolve
        if layer.kind == "linear":
            weight = self._weight(layer.outputs, layer.inputs)
            return lambda: functional.linear(x, weight)
        if layer.kind == "attn":
            return lambda: functional.scaled_dot_product_attention(x, inputs[1], inputs[1])
        if layer.kind == "pool":
            return lambda: functional.max_pool2d(x, kernel, stride, padding)
        return lambda: functional.relu(x)

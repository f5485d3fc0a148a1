"""Convolutional networks with random weights, in PyTorch: as torchvision publishes them where it is installed and has them, else from layer rows."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from mlsysim.calibrate.device import Device
from mlsysim.errors import InputError
from mlsysim.models.layers import Layer
from mlsysim.models.registry import Models
from mlsysim.models.vision import CNNWorkload

_DEEP = 16
"""Norms of a network whose rows do not show the skip connections that it has."""


_SLOW_TO_FILL = ("googlenet", "inception_v3")
"""Networks that torchvision fills with truncated normal values, which takes longer than all passes, unless told not to."""


def convolutional(model: CNNWorkload, device: Device, dtype: Any, batch: int, training: bool) -> Published | Rows:
    """The network that its authors would recognise, or its layers side by side."""
    found = _published(model, device)
    if found is None:
        return Rows(model, device, dtype, batch, training)
    return Published(found.train(training), model, device, batch)


def _published(model: CNNWorkload, device: Device) -> Any:
    """Torchvision's network by one of the entry's names, if there is one."""
    try:
        library = import_module("torchvision.models")
    except ImportError:
        return None
    known = {_plain(name): name for name in library.list_models(module=library)}
    names = (model.metadata.key or model.name, *Models.aliases_of(model.metadata.key or model.name))
    name = next((known[plain] for plain in map(_plain, names) if plain in known), None)
    if name is None:
        return None
    with device.torch.device(device.kind):
        return library.get_model(name, weights=None, **({"init_weights": False} if name in _SLOW_TO_FILL else {}))


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


class Published:
    """A network of torchvision on random images, channels last, its parameters in single precision."""

    kernel = "torchvision's network"

    def __init__(self, network: Any, model: CNNWorkload, device: Device, batch: int) -> None:
        last = device.torch.channels_last
        self.network, self.trained = network.to(memory_format=last), list(network.parameters())
        images = device.torch.randn(batch, 3, model.image_size, model.image_size, device=device.kind)
        self.images = images.contiguous(memory_format=last)

    def forward(self) -> Any:
        scores = self.network(self.images)
        # Some have further heads in training.
        return scores[0] if isinstance(scores, tuple) else scores


class Rows:
    """A network given by layer rows: every occurrence of a layer with weights of its own, each on a random input of its row's size.

    Rows do not say what feeds what, so layers are run side by side. Where a deep network has skip connections, every third normed layer adds one,
    as in the counted operators. What else lies between layers (reshapes) is not run. Channels last.
    """

    kernel = "layers side by side"

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

"""The fastest attention that PyTorch offers here, found by trying.

Which kernel of ``scaled_dot_product_attention`` is fast depends on chip, version and shape: on Hopper cuDNN's is, elsewhere
FlashAttention. With grouped queries and one query per sequence, the query heads of a group can be taken as several queries
of one head, which reads keys and values once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from mlsysim.calibrate.device import Device

Attend = Callable[[Any, Any, Any], Any]

_BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION")


def fastest(
    device: Device, forms: dict[str, Attend], q: Any, k: Any, v: Any, backward: bool = False
) -> tuple[str, Attend]:
    """The quickest of several forms on these inputs, with its backward pass where asked; the default on a CPU."""
    if not device.gpu or len(forms) == 1:
        name = next(iter(forms))
        return name, forms[name]
    best: tuple[float, str] | None = None
    for name, form in forms.items():
        try:
            seconds = _tried(device, form, (q, k, v), backward)
        except RuntimeError:
            continue
        if best is None or seconds < best[0]:
            best = (seconds, name)
    name = best[1] if best else "default"
    return name, forms[name]


def _tried(device: Device, form: Attend, inputs: tuple[Any, Any, Any], backward: bool) -> float:
    torch = device.torch
    with warnings.catch_warnings():
        # A kernel that does not take these inputs warns about each reason before it raises.
        warnings.simplefilter("ignore")
        if not backward:
            with torch.no_grad():
                form(*inputs)
                device.synchronise()
                return device.time(partial(form, *inputs), 2e-3)[0]
        leaves = [x.detach().requires_grad_(True) for x in inputs]

        def both() -> None:
            out = form(*leaves)
            torch.autograd.grad(out, leaves, torch.ones_like(out))

        both()
        device.synchronise()
        return device.time(both, 5e-3, graph=False)[0]


def prefill_attention(device: Device, causal: bool, grouped: bool) -> dict[str, Attend]:
    """Forms of attention over a sequence: q of (batch, heads, length, size), k and v with their own heads."""
    functional = device.torch.nn.functional

    def default(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    return {"default": default, **_by_backend(device, default)}


def decode_attention(device: Device, group: int) -> dict[str, Attend]:
    """Forms of attention of one query per sequence on its cache; ``group`` query heads share a key head."""
    functional = device.torch.nn.functional

    def folded(q: Any, k: Any, v: Any) -> Any:
        batch, heads, _, size = q.shape
        together = q.reshape(batch, heads // group, group, size)
        return functional.scaled_dot_product_attention(together, k, v).reshape(batch, heads, 1, size)

    def plain(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, enable_gqa=group > 1)

    forms = {"default": folded, **_by_backend(device, folded)}
    if group > 1:
        forms |= {f"{name}, heads apart": form for name, form in _by_backend(device, plain).items()}
    return forms


def _by_backend(device: Device, form: Attend) -> dict[str, Attend]:
    if not device.gpu:
        return {}
    choices = import_module("torch.nn.attention")

    def through(backend: Any) -> Attend:
        def attend(q: Any, k: Any, v: Any) -> Any:
            with choices.sdpa_kernel(backend):
                return form(q, k, v)

        return attend

    backends = choices.SDPBackend
    return {name: through(getattr(backends, name)) for name in _BACKENDS if hasattr(backends, name)}

"""The fastest attention that PyTorch offers here, found by trying.

Which kernel of ``scaled_dot_product_attention`` is fast depends on chip, version and shape: on Hopper cuDNN's is, elsewhere
FlashAttention. With grouped queries and one query per sequence, the query heads of a group can be taken as several queries
of one head, which reads keys and values once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.calibrate.device import Device

__all__ = ["Attend", "decode_attention", "fastest", "prefill_attention"]

Attend = Callable[[Any, Any, Any], Any]

_BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION")


def fastest(device: Device, forms: dict[str, Attend], q: Any, k: Any, v: Any) -> tuple[str, Attend]:
    """The quickest of several forms on these inputs; the first where only one works or on a CPU."""
    if not device.gpu or len(forms) == 1:
        name = next(iter(forms))
        return name, forms[name]
    torch = device.torch
    best: tuple[float, str] | None = None
    for name, form in forms.items():
        try:
            with torch.no_grad():
                form(q, k, v)
                device.synchronise()
                seconds, _ = device.time(lambda form=form: form(q, k, v), 2e-3)  # type: ignore[misc]
        except RuntimeError:
            continue
        if best is None or seconds < best[0]:
            best = (seconds, name)
    name = best[1] if best else "default"
    return name, forms[name]


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
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def through(backend: Any) -> Attend:
        def attend(q: Any, k: Any, v: Any) -> Any:
            with sdpa_kernel(backend):
                return form(q, k, v)

        return attend

    return {name: through(getattr(SDPBackend, name)) for name in _BACKENDS if hasattr(SDPBackend, name)}

"""Bytes that sequences leave behind in memory, and bytes that optimizers keep per parameter."""

from __future__ import annotations

from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import ceil, minimum


@kernel("sequences [1, 1e4], tokens, elements_per_token, element: byte [0.5, 8] -> size: byte")
def cache_bytes(sequences: Any, tokens: Any, elements_per_token: Any, element: Any) -> Any:
    """A cache that grows by the same number of elements with each token of each sequence.

    For grouped-query attention ``elements_per_token`` is 2 L H_kv D (keys and values); for multi-head latent attention
    L (d_c + d_rope), the compressed latent and the shared rotary key.
    """
    return sequences * tokens * elements_per_token * element


@kernel("sequences [1, 1e4], tokens, page whole [1, 256], elements_per_token, element: byte [0.5, 8] -> size: byte")
def paged_cache_bytes(sequences: Any, tokens: Any, page: Any, elements_per_token: Any, element: Any) -> Any:
    """The same cache handed out in pages of ``page`` tokens: the last page of each sequence is partly empty."""
    return cache_bytes(sequences, ceil(tokens / page) * page, elements_per_token, element)


@kernel("new [1, 1e5], context [1, 1e5], window -> pairs")
def causal_pairs(new: Any, context: Any, window: Any) -> Any:
    """Query-key pairs when ``new`` tokens follow ``context`` cached ones and each sees at most ``window`` keys.

    Token p (counted from 1) sees min(p, W) keys, itself included. With T(x) the sum of min(p, W) over p = 1..x,
    T(x) = m (m + 1) / 2 + (x - m) W where m = min(x, W), and the answer is T(context + new) - T(context). Without a
    binding window this is new x context + new (new + 1) / 2: half of the square, as causality requires.
    """
    return _seen(context + new, window) - _seen(context, window)


def _seen(tokens: Any, window: Any) -> Any:
    ramp = minimum(tokens, window)
    return ramp * (ramp + 1) / 2 + (tokens - ramp) * window

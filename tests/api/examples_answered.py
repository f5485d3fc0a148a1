"""Answers to the examples of the operations, which several tests look at: each is computed once."""

from __future__ import annotations

from functools import cache

from mlsysim.api.service import OPERATIONS, Reply, call

__all__ = ["answered"]


@cache
def answered(name: str, words: str) -> Reply:
    """The reply to an example of an operation."""
    return call(name, OPERATIONS[name].examples[words])

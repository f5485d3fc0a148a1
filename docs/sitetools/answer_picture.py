"""The picture of the README: where the time of the first question's step goes, from the answer itself."""

from __future__ import annotations

import mlsysim
from mlsysim.plot.answers import time_of

QUESTION = {"model": "Llama3_70B", "on": "512xH100", "tokens": 2e12, "region": "Quebec"}


def answered() -> str:
    """The waterfall of that answer as SVG."""
    figure = time_of(mlsysim.train(**QUESTION), title="Llama 3.1 70B on 512 H100: where a step goes")  # type: ignore[arg-type]
    assert figure is not None
    return figure.svg(identity="answer") + "\n"

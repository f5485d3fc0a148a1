"""The picture of the README and of the first page: where the time of the first question's step goes, from the answer itself."""

from __future__ import annotations

import mlsysim
from mlsysim.plot.answers import time_of
from mlsysim.plot.figure import Figure

QUESTION = {"model": "Llama3_70B", "on": "512xH100", "tokens": 2e12, "region": "Quebec"}


def answer_figure() -> Figure:
    """The waterfall of that answer."""
    figure = time_of(mlsysim.train(**QUESTION), title="Llama 3.1 70B on 512 H100: where a step goes")  # type: ignore[arg-type]
    assert figure is not None
    return figure


def answered() -> str:
    """The same as SVG."""
    return answer_figure().svg(identity="answer") + "\n"

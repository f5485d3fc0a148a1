"""What the axes of charts of a sweep are called: keys of plans, inputs of spaces and outputs of their kinds, in words and with a unit.

An output that is a metric has the metric's label; the others have theirs here. What an expression ranks by is told as it was written.
"""

from __future__ import annotations

from mlsysim.plans.metrics import kinds
from mlsysim.zoo.files import shipped

WORDS: dict[str, dict[str, str]] = shipped("mlsysim.plot", "titles.toml")
_TASKS = {"training": "training", "serving": "serving"}


def title_of_key(name: str) -> str:
    """A key of a plan or an input of a space as a title.

    >>> title_of_key("tp_size"), title_of_key("batch_size")
    ('Tensor parallelism', 'Batch size')
    """
    keys = WORDS["keys"]
    words = keys.get(name.removesuffix("_size"), keys.get(name, name.replace("_", " ")))
    return words[:1].upper() + words[1:]


def title_of_output(kind: str, name: str) -> tuple[str, str]:
    """An output of a kind of space as a title, and the unit of its numbers.

    >>> title_of_output("serving", "ttft_s"), title_of_output("training", "kgco2e_per_run")
    (('Time to the first token', 's'), ('Carbon of the run', 'kgCO2e'))
    """
    amounts, scopes = WORDS["amounts"], WORDS["scopes"]
    amount, _, scope = name.partition("_per_")
    ending = amount if scope in scopes else name.rpartition("_")[2] if "_per_" not in name else ""
    unit, metric = WORDS["units"].get(ending, ""), kinds().get(WORDS["metrics"].get(name, name))
    if metric is not None:
        return metric.label_of(_TASKS.get(kind, "inference")), "percent" if metric.share else unit
    if amount in amounts and scope in scopes:
        return f"{amounts[amount]} of {scopes[scope]}", unit
    return WORDS["outputs"].get(name, name), unit

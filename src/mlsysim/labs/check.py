"""Whether a lab works for every student: each combination of parameters has every value, answer, text and chart."""

from __future__ import annotations

from mlsysim.errors import InputError
from mlsysim.labs.grading import grade, right_answer
from mlsysim.labs.lab import Lab
from mlsysim.labs.lab_charts import draw
from mlsysim.labs.scope import Scope, all_variants


def check_lab(lab: Lab, charts: bool = True) -> int:
    """The number of variants; raises one sentence for the first thing that is wrong."""
    scopes = [Scope(lab, parameters) for parameters in all_variants(lab)]
    for scope in scopes:
        for control in lab.controls:
            own = scope.parameters[control.parameter]
            if own not in control.values:
                raise InputError(f"The control {control.label!r} of {lab.id} lacks {own!r}, which some students get.")
        for name in lab.values:
            scope.shown(name)
        for text in (lab.introduction, lab.task, lab.explanation):
            scope.text(text)
        for question in lab.questions:
            scope.text(question.text)
            right = right_answer(scope, question)
            typed = right if question.is_choice else f"{right.magnitude:.12g} {question.unit}"
            if not grade(scope, question, typed).correct:
                raise InputError(f"The question {question.id!r} of {lab.id} refuses its own answer {typed!r}.")
    for chart in lab.charts if charts else ():
        draw(scopes[0], chart, 720)
    return len(scopes)

"""What must hold of every model."""

from __future__ import annotations

from mlsysim.models.base import Workload
from mlsysim.models.vision import RowWorkload
from mlsysim.zoo.registry import Check, has_sources

PARAMETER_TOLERANCE = 0.005
_FLOP_TOLERANCE = 0.01


def parameters_follow_from_dimensions(model: Workload) -> str | None:
    """The stated count agrees with what the dimensions give."""
    derived = model.derived_parameters
    if derived is None:
        return "has no dimensions to derive its parameters from"
    ratio = derived / model.parameter_count
    if abs(ratio - 1) <= PARAMETER_TOLERANCE:
        return None
    return f"dimensions give {derived:.5g} parameters, {ratio - 1:+.2%} from the stated {model.parameter_count:.5g}"


def active_is_at_most_all(model: Workload) -> str | None:
    """Active parameters do not exceed all parameters."""
    if model.active_parameter_count <= model.parameter_count * (1 + PARAMETER_TOLERANCE):
        return None
    return "has more active than total parameters"


def stated_operations_follow_from_rows(model: Workload) -> str | None:
    """Stated operations of a pass agree with what the layer rows give."""
    if not isinstance(model, RowWorkload) or not model.rows or model.inference_flops is None:
        return None
    stated = model.inference_flops.to("flop").magnitude
    ratio = model.flops_per_sample / stated
    if abs(ratio - 1) <= _FLOP_TOLERANCE:
        return None
    return f"rows give {model.flops_per_sample:.5g} flop, {ratio - 1:+.2%} from the stated {stated:.5g}"


CHECKS: tuple[Check, ...] = (
    has_sources, parameters_follow_from_dimensions, active_is_at_most_all,
    stated_operations_follow_from_rows,
)  # fmt: skip

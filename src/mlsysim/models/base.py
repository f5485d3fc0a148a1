"""What every workload has in common: a name, a stated size, and ``lower()``.

A new kind of workload subclasses :class:`Workload` and implements :meth:`Workload.lower`; every resolver then applies
to it. ``parameters`` is the published count and is what first-order equations use; ``derived_parameters`` is what the
dimensions give, as a check on both.
"""

import math
import warnings
from functools import cached_property
from typing import Any, ClassVar

from pydantic import Field, field_validator

from mlsysim.errors import DataWarning, InputError
from mlsysim.models.demand import Demand
from mlsysim.models.graph import ComputationGraph, Operator, sum_over
from mlsysim.models.passes import PHASES
from mlsysim.models.storage import stored
from mlsysim.physics.precision import bytes_per_element, precision_name
from mlsysim.units.fields import COPIED, ByteRate, Bytes, Count, Flops
from mlsysim.units.registry import Quantity, to_si
from mlsysim.zoo.provenance import Entry, Metadata

DISAGREEMENT = 0.02
"""A user's stated count may differ by this fraction from what the dimensions give before a warning says so."""
_KEPT_BY_NOBODY = ("relu", "elementwise", "residual", "copy", "softmax")
"""Operators whose output takes the place of an input that no gradient needs, or stays inside a fused attention."""
_READ_WIDE = ("group_norm", "layer_norm", "norm")
"""Norms that autocast computes in single precision; those of batches it does not."""


class Workload(Entry):
    """Demand: what is computed, without reference to any chip."""

    denoises: ClassVar[bool] = False
    """Whether a sample takes many passes, each of which removes some noise."""
    looks_up: ClassVar[bool] = False
    """Whether most of it are tables, of which a pass reads a few rows."""

    name: str
    architecture: str = "generic"
    metadata: Metadata = Field(default_factory=Metadata)
    parameters: Count | None = None
    model_size: Bytes | None = None
    inference_flops: Flops | None = None
    data_rate: ByteRate | None = None
    release_year: int | None = None
    native_format: str | None = Field(default=None, description="number format that its checkpoint is published in")
    caveats: tuple[str, ...] = Field(
        default=(), description="what every answer about it says, as what was not read of its files"
    )

    @field_validator("native_format")
    @classmethod
    def _known_format(cls, value: str | None) -> str | None:
        return None if value is None else precision_name(value)

    @cached_property
    def units(self) -> dict[tuple[Any, ...], Any]:
        """What was found once, of one sample or of the whole, by what was asked and how; filled as it is asked for."""
        return {}

    @property
    def routing_limit(self) -> tuple[int, int]:
        """Groups of experts, and how many of them a token chooses from."""
        return 1, 1

    @property
    def table_parameters(self) -> float:
        """Of tables that are looked up, which a training job spreads over its devices."""
        return 0.0

    @property
    def looked_up_parameters(self) -> float:
        """Of those, how many a sample reads."""
        return 0.0

    def distinct_share(self, samples: Any) -> Any:
        """Rows that are read at least once over those that so many samples look up."""
        return 1.0

    @property
    def pooled_elements(self) -> float:
        """What is left of them when the rows of each table are added up."""
        return 0.0

    @property
    def fixed_shape(self) -> bool:
        """Whether every sample costs the same, so that work is proportional to the batch."""
        return False

    @property
    def has_layers(self) -> bool:
        """Whether it says what it consists of, which calibrated times sum over; totals alone do not."""
        return True

    @property
    def parameter_count(self) -> float:
        """The stated number of parameters; falls back to the derived one."""
        if self.parameters is not None:
            return to_si(self.parameters, "count")
        derived = self.derived_parameters
        if derived is None:
            raise InputError(f"{self.name} states no parameters and has no dimensions to derive them from.")
        return derived

    @property
    def active_parameter_count(self) -> float:
        """Parameters that serve one token or sample; all of them unless experts are chosen."""
        return self.parameter_count

    @property
    def derived_parameters(self) -> float | None:
        """The number of parameters that the dimensions give, or None where they are not known."""
        return None

    def size_in_bytes(self, precision_bytes: Any = None, precision: str = "fp16") -> Any:
        """Bytes of the weights, at a precision or at a given number of bytes per parameter."""
        if self.model_size is not None and precision_bytes is None:
            return self.model_size.to("byte")
        each = stored(self, precision).mean if precision_bytes is None else element_bytes(precision_bytes, precision)
        return Quantity(self.parameter_count * each, "byte")

    def lower(self, phase: str | None = None, **sizes: Any) -> ComputationGraph:
        """The operators of one pass. Subclasses say which sizes they take."""
        raise InputError(f"{type(self).__name__} does not say how it lowers to operators; implement lower().")

    def _graph(
        self, operators: list[Operator], phase: str, batch_size: Any, element: float, **more: Any
    ) -> ComputationGraph:
        """The graph of a pass of these operators, its weights of ``element`` bytes each."""
        return ComputationGraph(
            name=self.name,
            parameter_count=self.parameter_count,
            weight_bytes=more.pop("weight_bytes", None) or Quantity(self.parameter_count * element, "byte"),
            layers=more.pop("layers", getattr(self, "layers", None)),
            operators=operators,
            phase=phase,
            batch_size=batch_size,
            **more,
        )

    def demand(
        self,
        phase: str,
        *,
        batch_size: Any = 1,
        seq_len: Any = None,
        context: Any = 0,
        precision: str = "fp16",
        cache_precision: str | None = None,
        recompute: str = "none",
        frozen: bool = False,
    ) -> Demand:
        """First-order totals of a pass: in closed form, or the sums over its operators."""
        formats = precision, cache_precision
        closed = self._closed_demand(phase, batch_size, seq_len, context, formats, recompute, frozen)
        if closed is not None:
            return closed
        options: dict[str, Any] = {"recompute": recompute} if phase == "training" and recompute != "none" else {}
        if not self.fixed_shape:
            options |= {} if seq_len is None else {"seq_len": seq_len}
            found = summed(self.lower(phase, batch_size=batch_size, precision=precision, **options), batch_size)
            return found.of_frozen() if frozen else found
        key, n = ("demand", phase, precision, recompute), batch_size
        if key not in self.units:
            self.units[key] = summed(self.lower(phase, batch_size=1, precision=precision, **options), 1)
        one = self.units[key].of_frozen() if frozen else self.units[key]
        moved = one.weight_bytes, one.activation_bytes * n
        return Demand(one.flops * n, one.hardware_flops * n, *moved, 0.0, n, one.forward * n, one.settled * n)

    def _closed_demand(
        self, phase: str, batch: Any, new: Any, context: Any, formats: tuple[str, str | None], again: Any, frozen: bool
    ) -> Demand | None:
        return None

    def working_bytes(self, batch_size: Any, precision: str = "fp16", seq_len: Any = None) -> Any:
        """Bytes that flow through the widest operator of a forward pass; every token of ``seq_len`` widens an encoder's alike."""
        key = ("working", precision)
        tokens: dict[str, Any] = {} if seq_len is None else {"seq_len": 1}
        if key not in self.units:
            ops = self.lower(batch_size=1, precision=precision, **tokens).operators
            self.units[key] = float(max((op.input_bytes + op.output_bytes for op in ops), default=0.0))
        return self.units[key] * batch_size * (1 if seq_len is None else seq_len)

    def saved_bytes(self, batch_size: Any, precision: str = "fp16") -> Any:
        """Bytes that a training step keeps for its backward pass: what the forward operators write, but for sums, copies, ReLU and scores.

        A ReLU writes over its input, of which nothing is needed but the result, and no gradient needs either input of a sum, so that
        one of them, the end of a branch, is kept by nobody. (Of a product with a gate both are, which is left out.) A copy is kept in place of
        what was copied, and a fused attention makes its probabilities again. Of a transformer's layer that leaves the 16 bits of 16 h a token
        (Korthikanti et al. 2022, table 2, without dropout).
        """
        key = ("saved", precision)
        if key not in self.units:
            kept = (op for op in self._trained_forward(precision) if op.name not in _KEPT_BY_NOBODY)
            self.units[key] = float(sum_over(kept, "output_bytes"))
        return self.units[key] * batch_size

    def normed_elements(self, batch_size: Any, wide: bool = False) -> Any:
        """Elements that norms of layers and groups read, or those that are in single precision (``wide``): what layers add up to, with positions,
        scales or biases that are, is read by norms of layers; those of groups stand behind convolutions, which write 16 bits."""
        key = "normed", wide
        if key not in self.units:
            normed = (op for op in self._trained_forward("fp16") if op.name in _READ_WIDE[wide:])
            self.units[key] = float(sum_over(normed, "input_bytes")) / bytes_per_element("fp16")
        return self.units[key] * batch_size

    def _trained_forward(self, precision: str) -> list[Operator]:
        """The operators of one sample's forward pass in training."""
        ops = self.lower("training", batch_size=1, precision=precision).operators
        return [op for op in ops if op.direction == "forward"]

    def _check_stated(self, context: Any) -> None:
        if context is COPIED or self.parameters is None or (derived := self.derived_parameters) is None:
            return
        stated = self.parameter_count
        if abs(derived - stated) > DISAGREEMENT * stated:
            warnings.warn(
                f"{self.name}: the dimensions give {derived / 1e9:.4g} B parameters, {derived / stated - 1:+.1%} from the stated {stated / 1e9:.4g} B; "
                "the stated count is used.",
                DataWarning,
                stacklevel=4,
            )


def summed(graph: ComputationGraph, samples: Any) -> Demand:
    """The totals of a graph."""
    if not graph.operators:
        weights = graph.weight_bytes.to("byte").magnitude
        third = graph.flops / 3 if graph.phase == "training" else 0.0
        return Demand(graph.flops, graph.flops, weights, 0.0, 0.0, samples, third, third)
    local = [op for op in graph.operators if not op.is_collective]
    moved = sum((op.input_bytes + op.output_bytes) * op.count for op in local)
    weights, cache = sum_over(local, "weight_bytes"), sum_over(local, "cache_bytes")
    tokens = samples if graph.tokens is None else graph.tokens
    passed = sum_over((op for op in local if op.direction == "forward"), "flops")
    settled = sum_over((op for op in local if op.settles), "flops")
    return Demand(graph.flops, graph.hardware_flops, weights, moved, cache, tokens, passed, settled)


def element_bytes(precision_bytes: Any, precision: str) -> float:
    """Bytes per parameter from a number, a quantity ("2 B") or a precision's name."""
    if precision_bytes is None:
        return bytes_per_element(precision)
    if isinstance(precision_bytes, str) and not precision_bytes[:1].isdigit():
        return bytes_per_element(precision_bytes)
    if isinstance(precision_bytes, (str, Quantity)):
        return float(Quantity(precision_bytes).to("byte").magnitude)
    return positive_number(precision_bytes, "precision_bytes")


def positive_number(value: Any, name: str, zero: bool = False) -> Any:
    """A finite number above zero (or at least zero); arrays pass unchecked."""
    if isinstance(value, (bool, str)) or value is None:
        raise InputError(f"{name!r} must be a number, got {value!r}.", field=name)
    if isinstance(value, (int, float)):
        if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
            least = "of at least" if zero else "above"
            raise InputError(f"{name!r} must be a finite number {least} 0, got {value!r}.", field=name)
    elif isinstance(value, Quantity):
        return positive_number(value.to("count").magnitude, name, zero)
    elif hasattr(value, "astype"):
        # As float64, so that products of small integer types do not wrap around.
        return value.astype(float) if value.shape else positive_number(value.item(), name, zero)
    else:
        raise InputError(f"{name!r} must be a number, got {type(value).__name__}.", field=name)
    return value


def whole_number(value: Any, name: str, zero: bool = False) -> Any:
    """A whole number above zero (or at least zero); arrays pass unchecked."""
    value = positive_number(value, name, zero)
    if isinstance(value, float) and value != int(value):
        raise InputError(f"{name!r} must be a whole number, got {value!r}.", field=name)
    return int(value) if isinstance(value, float) else value


def choose_phase(phase: str | None, default: str, allowed: tuple[str, ...], name: str) -> str:
    """The phase to lower; one clear sentence when the workload does not know it."""
    chosen = phase or default
    if chosen not in allowed:
        known = " or ".join(allowed)
        what = "is no phase" if chosen not in PHASES else "is not a phase of this kind of model"
        raise InputError(f"{chosen!r} {what}; {name} lowers for {known}.", phase=chosen, allowed=allowed)
    return chosen

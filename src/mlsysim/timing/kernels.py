"""The constants of kernels, in the one schema that chips and software share. See :mod:`mlsysim.timing.profile`."""

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field

from mlsysim.errors import InputError, unknown_name
from mlsysim.physics.precision import compute_precision
from mlsysim.units.fields import ByteRate, Bytes, FlopRate, QuantityField, Record, Seconds, Watts
from mlsysim.units.ops import minimum
from mlsysim.units.registry import to_si
from mlsysim.zoo.provenance import Source

REACH = 4096
"""Length (of a reduction, of a cache) at which the ``chain`` of a kernel is given."""

FULL_HEAD = 128
"""Width of a head that fills the matrix units."""
_NONE = "0 us"


class Products(Record):
    """Matrix products at one precision; see :func:`mlsysim.physics.operators.product_time`.

    ``rate_share`` is of the dense peak, in short bursts; ``rate`` what was measured instead on the chip as it is sold, at this very
    precision. ``chain`` is the time to walk a reduction of 4096 when there are too few tiles to fill the chip; it grows with the
    reduction to the power ``growth``. Inputs that must be converted to a narrower format first pay ``quantise_start`` and move
    their bytes (and ``quantise_row`` elements more for each row) at ``quantise_share`` of the bandwidth.
    """

    rate_share: float = Field(gt=0, le=1.2)
    memory_share: float = Field(gt=0, le=1)
    start: Seconds
    rate: FlopRate | None = None
    sustained: float | None = Field(
        default=None, gt=0, le=1, description="rate under the power cap over the burst rate"
    )
    chain: Seconds = Field(default=_NONE, validate_default=True)
    growth: float = Field(default=1.0, gt=0, le=2)
    corner: float = Field(default=4.0, ge=1, le=12, description="exponent of the norm over arithmetic and memory")
    quantise_share: float = Field(default=0.5, gt=0, le=1, description="bandwidth share of converting inputs")
    quantise_row: float = Field(default=0.0, ge=0)
    quantise_start: Seconds = Field(default=_NONE, validate_default=True)
    fit_error_pct: float | None = None
    points: int | None = None

    @cached_property
    def times(self) -> tuple[float, float, float]:
        """Seconds: start, chain, start of the conversion."""
        return to_si(self.start, "s"), to_si(self.chain, "s"), to_si(self.quantise_start, "s")

    @property
    def kept(self) -> float:
        """What of the burst rate long work keeps."""
        return 1.0 if self.sustained is None else self.sustained


class Attention(Record):
    """Fused attention. Rates are shares of the dense 16-bit peak, of causal operations; ``rate`` what was measured instead.

    ``flash2`` is the rate of FlashAttention 2 over that of the chip's best library, ``flash1`` of the first over the second, ``triton`` of the
    first as written in Triton. A cache
    in 8 bits is read at ``decode_fp8_share`` of the bandwidth (as one in 16 where not given); what it gains in arithmetic is
    ``fp8_gain`` over a prompt and ``latent_fp8_gain`` in latent attention.
    """

    rate_share: float = Field(gt=0, le=1)
    rate: FlopRate | None = None
    ramp_tokens: float = Field(ge=0)
    start: Seconds
    head_exponent: float = Field(ge=0, le=2, description="rate grows so with the head's size, up to 128")
    fp8_gain: float = Field(default=1.0, ge=1)
    backward_share: float = Field(gt=0, le=1, description="backward rate over forward rate")
    flash2: float = Field(gt=0, le=1)
    flash1: float = Field(gt=0, le=1)
    triton: float = Field(gt=0, le=1)
    unfused: float = Field(gt=0, le=1, description="products of scores that are not fused, over the rate of large ones")
    decode_memory_share: float = Field(gt=0, le=1)
    decode_fp8_share: float | None = Field(default=None, gt=0, le=1)
    decode_start: Seconds
    latent_memory_share: float = Field(gt=0, le=1)
    latent_rate_share: float = Field(gt=0, le=1)
    latent_fp8_gain: float | None = Field(default=None, ge=1)
    fit_error_pct: float | None = None
    points: int | None = None

    @cached_property
    def times(self) -> tuple[float, float]:
        """Seconds: start over a sequence, and of a decode."""
        return to_si(self.start, "s"), to_si(self.decode_start, "s")

    def head_share(self, width: Any) -> Any:
        """Rate of heads of a width over that of full ones."""
        return (minimum(width, FULL_HEAD) / FULL_HEAD) ** self.head_exponent

    def kernel_rate(self, kernel: str) -> float:
        """Rate of a library's kernel over that of the chip's best."""
        second = self.flash2
        rates = {"fa1": second * self.flash1, "triton": second * self.triton, "fa2": second}
        rates |= dict.fromkeys(("fused", "fa3", "cudnn"), 1.0)
        if kernel not in rates:
            raise unknown_name("attention kernel", kernel, rates)
        return rates[kernel]


class Experts(Record):
    """Products of many experts at once: shares of the dense peak, and of the bandwidth for weights and for routed activations.

    Shares of ``any`` format, and of PyTorch's grouped product (``torch``), are of what one product reaches. Groups of rows are uneven: ``ragged``
    rows of each, on average, fill up its last tile. Activations without a share of their own are moved with the weights.
    """

    rate_share: float = Field(gt=0, le=1.2)
    memory_share: float = Field(default=1.0, gt=0, le=1)
    activation_share: float | None = Field(default=None, gt=0, le=1)
    start: Seconds
    ragged: float = Field(default=0.0, ge=0)
    corner: float = Field(default=2.0, ge=1, le=12, description="exponent of the norm over arithmetic and memory")


class Scan(Record):
    """Recurrent layers: chunked arithmetic at a share of the 16-bit peak (``any``: of what products sustain), and their states."""

    rate_share: float = Field(gt=0, le=1)
    memory_share: float = Field(default=1.0, gt=0, le=1)


class ContextKernel(Record):
    """A serving engine's attention over a prompt, writing of the cache included."""

    start: Seconds
    rate_share: float = Field(gt=0, le=1.2, description="of the dense 16-bit peak, of causal operations")
    ramp_tokens: float = Field(ge=0)
    head_exponent: float = Field(ge=0, le=2)
    stream_share: float = Field(gt=0, le=1.2, description="bandwidth share of queries, keys, values and results")
    corner: float = Field(ge=1, le=12)
    fit_error_pct: float | None = None
    points: int | None = None


class DecodeKernel(Record):
    """A serving engine's attention of one query per sequence.

    ``memory_share`` may pass 1: part of what the measured kernels read stays on the chip. ``reuse`` is the exponent with which
    query heads that read the same keys one by one find them on the chip.
    """

    start: Seconds
    memory_share: float = Field(gt=0, le=1.6)
    row_time: Seconds
    chain: Seconds
    growth: float = Field(gt=0, le=1.5)
    reuse: float = Field(default=0.0, ge=0, le=1)
    fit_error_pct: float | None = None
    points: int | None = None


class EngineAttention(Record):
    """Attention kernels of one serving engine, by the format of arithmetic and cache ("bf16/fp8").

    Up to ``group_limit`` query heads share the reading of their keys (``grouped``); one head alone, or more than that, go one
    by one (``single``).
    """

    group_limit: int = Field(gt=0)
    context: dict[str, ContextKernel]
    single: dict[str, DecodeKernel]
    grouped: dict[str, DecodeKernel]


class Convolution(Record):
    """Convolutions: ``rate_share`` of the peak at the precision, bytes of input and output at ``memory_share``."""

    rate_share: float = Field(gt=0, le=1.2)
    memory_share: float = Field(gt=0, le=1)
    depthwise_share: float = Field(gt=0, le=1)
    start: Seconds
    fit_error_pct: float | None = None
    points: int | None = None

    @cached_property
    def seconds(self) -> float:
        """The start."""
        return to_si(self.start, "s")


class MemoryKernel(Record):
    """One memory-bound kernel, over the smallest number of bytes that it must move: a chain of small ones has a small share."""

    start: Seconds
    share: float = Field(gt=0, le=1)
    fit_error_pct: float | None = None
    points: int | None = None


class MemoryBound(Record):
    """Everything that only moves bytes; ``kernels`` that were measured by name ("rms_norm/eager")."""

    eager_share: float = Field(gt=0, le=1)
    fused_share: float = Field(gt=0, le=1)
    start: Seconds
    traffic: float = Field(default=1.0, gt=0, description="bytes moved over those counted, where neighbours are fused")
    optimizer_share: float = Field(gt=0, le=1)
    optimizer_share_16bit: float = Field(gt=0, le=1, description="with parameters and moments in 16 bits")
    gather_share: float = Field(gt=0, le=1)
    graph_launch: Seconds
    eager_launch: Seconds
    kernels: dict[str, MemoryKernel] = Field(default_factory=dict)
    fit_error_pct: float | None = None
    points: int | None = None

    @cached_property
    def times(self) -> tuple[float, float, float]:
        """Seconds: start, launch in a graph, launch by the host."""
        return to_si(self.start, "s"), to_si(self.graph_launch, "s"), to_si(self.eager_launch, "s")


class Collective(Record):
    """Communication inside the link domain; see :func:`mlsysim.physics.operators.link_time`."""

    start: Seconds
    step_share: float
    copy_share: float
    efficiency: float
    eager_share: float
    rendezvous: float
    in_switch_start: float | None = None
    in_switch_share: float | None = None
    fabric_start: Seconds
    unlinked: ByteRate = Field(description="in one direction, of chips that state no link")
    fit_error_pct: float | None = None


class Links(Record):
    """A chip in its usual cluster; what its links reach is in :mod:`mlsysim.timing.collectives`.

    ``adapter`` is the network of one accelerator; zero where the links themselves reach everywhere.
    """

    adapter: Annotated[Any, QuantityField("byte/s", "50 GB/s")]
    domain: int = Field(gt=0)


class Power(Record):
    """The power limit at which the rates of a software were measured."""

    full: Watts | None = None


class Unaligned(Record):
    """Products of 16-bit rows whose length is no multiple of 16 bytes, over those of aligned rows: rate of a forward and of a backward product,
    and bandwidth.

    Tensor memory access and 16-byte loads need aligned rows; the library falls back to kernels of older chips with loads of 4 bytes, or of 2.
    """

    forward: float = Field(gt=0, le=1)
    backward: float = Field(gt=0, le=1)
    memory: float = Field(gt=0, le=1)

    def slower(self, backward: int = 0) -> float:
        """Time of a forward product with so many backward ones, over that of aligned rows."""
        return (1 / self.forward + backward / self.backward) / (1 + backward)


_ALIGNED = Unaligned(forward=1, backward=1, memory=1)
_VECTOR = 16


class Profile(Record):
    """Constants of one chip, or of a class of chips."""

    name: str
    basis: Literal["measured", "generation", "family"]
    gemm: dict[str, Products]
    products: dict[str, Products] = Field(default_factory=dict)
    attention: Attention
    experts: dict[str, Experts]
    scans: dict[str, Scan] = Field(default_factory=dict)
    convolution: Convolution | None = None
    memory_bound: MemoryBound
    unaligned: dict[str, Unaligned] = Field(
        default_factory=dict, description="rows of multiples of four bytes, and of two"
    )
    collective: Collective
    links: Links | None = None
    power: Power = Field(default_factory=Power)
    engines: dict[str, EngineAttention] = Field(default_factory=dict)
    usable_memory: float = Field(default=1.0, gt=0, le=1, description="memory that the driver offers over capacity")
    driver_memory: Bytes | None = Field(default=None, description="the same as it was read off the chip as it is sold")
    rate_scale: float = Field(default=1.0, gt=0, le=1, description="rate under the power limit over that of the peers")
    passes_measured: bool = Field(
        default=False, description="whole passes were validated on this chip, not kernels alone"
    )
    stack: str = Field(default="", description="the training stack of several accelerators where nothing is said")
    stacks: tuple[str, ...] = Field(default=(), description="training stacks with measured runs on this chip")
    source: tuple[Source, ...] = ()
    prior: str = Field(default="", description="the shipped table that a user's own was fitted from")
    note: str = ""

    @property
    def measured(self) -> bool:
        return self.basis == "measured"

    @cached_property
    def product_constants(self) -> dict[tuple[Any, ...], Any]:
        """Constants of products by peak, precision and execution; filled as they are asked for."""
        return {}

    def rows_of(self, width: Any, element: float) -> Unaligned:
        """What rows of so many elements cost a product; as if aligned where that was not measured, or the width is not one number."""
        if element != 2 or not isinstance(width, (int, float)) or width % 1 or width * element % _VECTOR == 0:
            return _ALIGNED
        return self.unaligned.get("two" if width % 2 else "four", _ALIGNED)

    def gemm_for(self, precision: str) -> Products:
        """Constants at a precision; the nearest wider one where the precision itself was not fitted."""
        wanted = compute_precision(precision)
        for name in (wanted, *_WIDER.get(wanted, ()), "bf16"):
            if name in self.gemm:
                return self.gemm[name]
        raise InputError(f"the profile {self.name!r} has no constants for {precision}.")

    def product_for(self, precision: str, variant: str | None = None) -> Products:
        """Constants in the finer form; those of the roof where the precision was not measured shape by shape.

        ``variant`` names a way of scaling or storing that was measured apart: "block" (a scale for each block) or "weight"
        (narrow weights, 16-bit arithmetic).
        """
        wanted = compute_precision(precision)
        same = {"fp16": "bf16", "bf16": "fp16"}.get(wanted, wanted)
        for name in (f"{wanted}_{variant}", wanted, same):
            if name in self.products:
                return self.products[name]
        return self.gemm_for(precision)


_WIDER = {
    "fp16": ("bf16",), "bf16": ("fp16",), "int8": ("fp8",), "fp6": ("fp8",), "fp4": ("fp8",), "int4": ("fp4", "fp8"),
    "tf32": ("bf16",), "fp32": ("tf32",), "fp64": ("fp32",),
}  # fmt: skip

"""Kernels: the dimension proof over all of them, what the proof catches, and agreement of the three ways to run."""

from __future__ import annotations

import importlib
import math
import pkgutil
import random

import numpy as np
import pytest

import mlsysim
from mlsysim.errors import UnitError, UnknownNameError
from mlsysim.units.kernel import KERNELS, Arg, KernelProofError, Signature, evaluate, kernel, prove
from mlsysim.units.ops import ceil, maximum
from mlsysim.units.registry import Q_

POINTS = 1000


def _all_kernels() -> dict[str, Signature]:
    for module in pkgutil.walk_packages(mlsysim.__path__, "mlsysim."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return dict(KERNELS)


ALL = _all_kernels()


@pytest.fixture
def declare():
    """``@kernel``, with what it registers taken out again afterwards."""
    before = dict(KERNELS)
    yield kernel
    KERNELS.clear()
    KERNELS.update(before)


# --- over all kernels ---------------------------------------------------------------------------------------------


def test_kernels_were_found():
    assert {"mlsysim.physics.roofline.roofline_time", "mlsysim.physics.memory.causal_pairs"} <= set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_units_bind(name):
    prove(ALL[name])


@pytest.mark.parametrize("name", ALL)
def test_kernel_says_what_it_computes(name):
    assert (ALL[name].function.__doc__ or "").strip()


def _points(arg: Arg, generator: random.Random) -> list[float]:
    """Random values within the declared range, by order of magnitude where the range is positive."""
    if arg.low > 0:
        values = [
            math.exp(generator.uniform(math.log(arg.low), math.log(max(arg.high, arg.low)))) for _ in range(POINTS)
        ]
    else:
        values = [generator.uniform(arg.low, arg.high) for _ in range(POINTS)]
    values = [min(max(value, arg.low), arg.high) for value in values]
    return [float(round(value)) for value in values] if arg.whole else values


@pytest.mark.parametrize("name", ALL)
def test_arrays_and_floats_agree_over_the_declared_ranges(name):
    signature, generator = ALL[name], random.Random(name)
    points = {key: _points(arg, generator) for key, arg in signature.inputs.items()}
    together = signature.unpack(signature.function(**{key: np.array(values) for key, values in points.items()}))
    rows = zip(*points.values(), strict=True)
    one_by_one = [signature.unpack(signature.function(**dict(zip(points, row, strict=True)))) for row in rows]
    for output in signature.outputs:
        single = np.array([float(result[output]) for result in one_by_one])
        assert not np.isnan(single).any(), f"{output} is not a number within the declared ranges"
        assert np.broadcast_to(together[output], single.shape) == pytest.approx(single, rel=1e-12, abs=0)


@pytest.mark.parametrize("name", ALL)
def test_kernel_leaves_its_arrays_alone(name):
    signature, generator = ALL[name], random.Random(name)
    arrays = {key: np.array(_points(arg, generator)[:10]) for key, arg in signature.inputs.items()}
    for array in arrays.values():
        array.flags.writeable = False
    signature.function(**arrays)


# --- what the proof catches ---------------------------------------------------------------------------------------


def test_a_sound_kernel_passes(declare):
    @declare("moved: byte, bandwidth: byte/s -> time: s")
    def sound(moved, bandwidth):
        return moved / bandwidth

    prove(sound.signature)
    assert KERNELS[sound.signature.where] is sound.signature
    assert sound(6.0, 2.0) == 3.0


def test_a_dropped_factor_is_caught(declare):
    @declare("moved: byte, bandwidth: byte/s -> time: s")
    def dropped(moved, bandwidth):
        return moved

    with pytest.raises(KernelProofError, match="output 'time' is declared in 's' but comes out as B"):
        prove(dropped.signature)


def test_an_incoherent_unit_is_caught(declare):
    @declare("energy: kWh, factor [1, 2] -> heat: J")
    def incoherent(energy, factor):
        return energy * factor

    with pytest.raises(KernelProofError, match=r"'heat' is .* on numbers but .* the declared units are not coherent"):
        prove(incoherent.signature)


def test_a_vacuous_input_is_caught(declare):
    @declare("moved: byte, bandwidth: byte/s, unused: s -> time: s")
    def vacuous(moved, bandwidth, unused):
        return moved / bandwidth

    with pytest.raises(KernelProofError, match="a foreign unit on 'unused' goes unnoticed; the declaration is vacuous"):
        prove(vacuous.signature)


def test_an_input_stripped_of_its_unit_is_caught(declare):
    @declare("moved: byte, page: byte -> pages")
    def stripped(moved, page):
        return ceil(getattr(moved, "magnitude", moved) / getattr(page, "magnitude", page))

    with pytest.raises(KernelProofError, match="vacuous"):
        prove(stripped.signature)


def test_swapped_outputs_are_caught(declare):
    @declare("moved: byte, bandwidth: byte/s -> size: byte, time: s")
    def swapped(moved, bandwidth):
        return moved / bandwidth, moved * 1

    with pytest.raises(KernelProofError, match="output 'size' is declared in 'byte' but comes out as s"):
        prove(swapped.signature)


def test_a_literal_with_a_hidden_dimension_is_caught(declare):
    from pint import DimensionalityError

    @declare("work: s -> time: s")
    def hidden(work):
        return work + 5.0

    with pytest.raises((KernelProofError, DimensionalityError)):
        prove(hidden.signature)


def test_unlike_alternatives_are_caught(declare):
    from pint import DimensionalityError

    @declare("time: s, size: byte -> longest: s")
    def unlike(time, size):
        return maximum(time, size)

    with pytest.raises((KernelProofError, DimensionalityError)):
        prove(unlike.signature)


def test_missing_output_is_caught(declare):
    @declare("time: s -> one: s, two: s")
    def short(time):
        return (time,)

    with pytest.raises(ValueError, match="shorter"):
        prove(short.signature)


def test_declared_inputs_must_be_the_parameters(declare):
    @declare("a: s -> c: s")
    def wrong(b):
        return b

    with pytest.raises(TypeError, match=r"declared inputs \['a'\] are not its parameters \['b'\]"):
        prove(wrong.signature)


# --- the boundary -------------------------------------------------------------------------------------------------


@pytest.fixture
def travel(declare):
    @declare("distance: m, speed: m/s, laps -> time: s, total: m")
    def travel(distance, speed, laps):
        return distance / speed * laps, distance * laps

    return travel


def test_evaluate_takes_quantities_and_strings_and_gives_quantities(travel):
    result = evaluate(travel, distance="3 km", speed=Q_("10 m/s"), laps=2)
    assert result == {"time": Q_(600.0, "s"), "total": Q_(6000.0, "m")}
    assert f"{result['time'].units}" == "second"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"distance": "3 s"}, "travel: 'distance' must be in m, got '3 s'."),
        ({"distance": 3}, "travel: 'distance' must be in m, got 3."),
        ({"distance": "three"}, "travel: 'distance' must be in m, got 'three'."),
        ({"speed": Q_("1 GB/s")}, "travel: 'speed' must be in m/s, got "),
        ({"laps": "2 s"}, "travel: 'laps' must be in counts, got '2 s'."),
        ({"laps": True}, "travel: 'laps' must be in counts, got True."),
    ],
)
def test_evaluate_names_the_input_and_its_unit(travel, changes, sentence):
    inputs = {"distance": "3 km", "speed": "10 m/s", "laps": 2, **changes}
    with pytest.raises(UnitError) as caught:
        evaluate(travel, **inputs)
    assert str(caught.value).startswith(sentence)
    assert caught.value.field in changes


def test_evaluate_names_a_missing_input(travel):
    with pytest.raises(UnitError, match="travel needs 'laps' in counts"):
        evaluate(travel, distance="3 km", speed="10 m/s")


def test_evaluate_refuses_an_input_that_the_kernel_does_not_have(travel):
    with pytest.raises(UnknownNameError, match="There is no input of travel named 'lap'; did you mean 'laps'"):
        evaluate(travel, distance="3 km", speed="10 m/s", laps=2, lap=3)

"""A chip has one memory: training, serving, a pass, post-training and what ``explain`` shows of it."""

import pytest

import mlsysim
from mlsysim import Hardware
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.plan import Plan
from mlsysim.timing.engines import device_memory, offered_memory
from mlsysim.units.registry import to_si

CHIPS = ("H100", "H200", "B200", "GB200", "A100")
GIB_IN_GB = 2**30 / 1e9


def _answers(chip):
    yield mlsysim.train("Llama3_8B", on=f"8x{chip}", batch=64)
    yield mlsysim.serve("Llama3_8B", on=chip, concurrency=8, isl=500, osl=100)
    for model in ("Llama3_8B", "ResNet50"):
        yield evaluate(Plan(task="inference", workload={"model": model}, hardware={"name": chip}), change=False)


@pytest.mark.parametrize("chip", CHIPS)
def test_every_question_has_the_memory_that_the_driver_offers(chip):
    has = device_memory(Hardware[chip])
    for answer in _answers(chip):
        assert answer.memory.capacity == pytest.approx(has), answer.subject
        shown = str(answer.explain("memory_capacity"))
        assert ("the driver offers" in shown) == (offered_memory(Hardware[chip]) > 1), shown


def test_first_order_has_the_datasheet():
    assert device_memory(Hardware.H200, calibrated=False) == 141e9
    assert mlsysim.train("Llama3_8B", on="8xH200", batch=64, efficiency=0.4).memory.capacity == 141e9


def test_no_chip_offers_more_than_its_gigabytes_read_as_gibibytes():
    """A share read off one chip, whose datasheet counts in GiB, once gave others of its generation memory that they do not have."""
    for chip in Hardware:
        stated = chip.memory.capacity
        most = GIB_IN_GB if str(stated.units) == "gigabyte" else 1.0
        assert offered_memory(chip) <= most + 1e-4, chip.metadata.key
    # nvidia-smi shows 32,607 MiB.
    assert offered_memory(Hardware.RTX_5090) * to_si(Hardware.RTX_5090.memory.capacity, "MiB") == pytest.approx(
        32607, rel=2e-3
    )

"""Power of nodes in published training runs."""

from __future__ import annotations

import pytest

from mlsysim.calibrate.questions import Excluded, predicted
from mlsysim.calibrate.tables import TABLES
from mlsysim.calibrate.tables.energy import TRAINING, read_training


def row(**given):
    known = dict.fromkeys(TRAINING, "") | {
        "id": "EN007",
        "source": "mlperf-power-4.0-smc-ac-power",
        "model": "GPT3_175B",
        "gpu": "H100-80GB",
        "n_gpus": "512",
        "n_nodes": "64",
        "mean_node_w": "6850",
        "includes": "whole nodes at the AC side; switches apart; no cooling plant",
        "measured": "yes (meter or BMC, logged by the submitter)",
    }
    return known | given


def test_the_table_is_known_by_its_header():
    assert TABLES["training_energy"].columns == TRAINING


def test_gpt3_on_immersed_nodes():
    """MLPerf Training v4.0, 64 immersed nodes of 8 H100: 6,850 W each on the mains (the form of nodes was fitted on this run)."""
    (question,) = read_training(row())
    assert question.asked == "node_power" and question.plan.hardware.cooling == "liquid"
    assert predicted(question).predicted == pytest.approx(6850, rel=0.03)


def test_lora_on_eight_nodes_with_their_network():
    """The same cluster, DC side, 5,847 W of a node and 2,013 W of network for it: a larger fabric than eight nodes need (not fitted on)."""
    scope = "nodes and their share of the network, AC energy; mean W is DC per node with network"
    (question,) = read_training(row(model="Llama2_70B", n_gpus="64", n_nodes="8", mean_node_w="7859", includes=scope))
    assert question.asked == "power" and question.factor == pytest.approx(1 / 8 / 1.027)
    assert predicted(question).predicted == pytest.approx(7859, rel=0.15)


def test_what_was_not_measured_is_not_scored():
    with pytest.raises(Excluded, match="TDP"):
        read_training(row(measured="no: GPU-hours x 400 W TDP"))
    with pytest.raises(Excluded, match="many runs"):
        read_training(row(mean_node_w=""))


def test_settings_that_nobody_published_are_the_planners():
    """arXiv 2412.08602 and 2506.14551: 8 H100 under Llama 2 13B draw 8.48 kW at their peak, 7.75 kW in the mean (neither fitted on)."""
    (question,) = read_training(
        row(source="h100-node", model="Llama2-13b", n_gpus="8", n_nodes="1", mean_node_w="8480")
    )
    assert question.guessed == 1 and question.plan.hardware.cooling is None
    assert 7400 < predicted(question).predicted < 8900


def test_energy_of_accelerators_over_a_run_without_its_power():
    """Dodge et al. (2022): four V100 under BERT for 6 hours, 3.1 kWh, half of what they draw where they are kept busy."""
    known = {"metric": "energy", "value": "0.0031", "days": "0.25", "n_chips": "4", "hardware": "V100"}
    blank = dict.fromkeys(("pue", "avg_power_w_per_chip", "grid_kgco2_per_kwh", "notes", "id", "source", "unit"), "")
    (found,) = TABLES["energy"].predict(blank | known | {"workload": "BERT finetune"})
    assert "model" in found.inferred and 0.0031 < found.predicted < 0.0072

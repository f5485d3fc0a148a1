"""Power of nodes in published training runs."""

from __future__ import annotations

import pytest

from mlsysim.calibrate.questions import Excluded, Skipped, predicted
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
    with pytest.raises(Skipped, match="settings"):
        read_training(row(n_gpus="1024"))

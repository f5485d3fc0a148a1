"""The public names are pinned: ``python tests/test_public_names.py`` writes the list anew after a wanted change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mlsysim

PINNED = Path(__file__).with_name("public_names.txt")


def test_all_is_pinned():
    pinned = PINNED.read_text(encoding="utf-8").split()
    missing, new = sorted({*pinned} - {*mlsysim.__all__}), sorted({*mlsysim.__all__} - {*pinned})
    assert (missing, new) == ([], []), "wanted? then run python tests/test_public_names.py"
    assert list(mlsysim.__all__) == sorted(set(mlsysim.__all__))


@pytest.mark.parametrize("name", mlsysim.__all__)
def test_every_public_name_resolves(name):
    value = getattr(mlsysim, name)
    assert value is not None
    assert name in dir(mlsysim)
    assert getattr(value, "__name__", name) in (name, "Quantity")


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(mlsysim, "no_such_name")
    with pytest.raises(ImportError, match="no_such_name"):
        from mlsysim import no_such_name  # noqa: F401


def test_star_import_of_the_hardware_types():
    namespace: dict[str, object] = {}
    exec("from mlsysim.hardware.types import *", namespace)
    wanted = {"HardwareNode", "ComputeCore", "MemoryHierarchy", "StorageHierarchy", "IOInterconnect"}
    assert wanted <= set(namespace)
    assert not {"Any", "warnings", "annotations"} & set(namespace)


def test_star_import_of_the_package():
    namespace: dict[str, object] = {}
    exec("from mlsysim import *", namespace)
    assert set(mlsysim.__all__) <= set(namespace)


DOCUMENTED = """
import mlsysim
mlsysim.Models.Language.Llama3_70B
mlsysim.Hardware.Cloud.H100
mlsysim.Systems.Clusters.Frontier_8K
mlsysim.Q_, mlsysim.TransformerWorkload
from mlsysim import Models, Hardware; Models.Llama2_70B, Hardware.Cloud.A100
from mlsysim import Models, Hardware; Hardware.Tiny.ESP32_S3, Hardware.Cloud.CerebrasCS3, Hardware.Cloud.Cerebras_CS3
from mlsysim import SparseTransformerWorkload, ComputationGraph, GridProfile, Datacenter; SparseTransformerWorkload.lower
from mlsysim.systems.types import Fleet, Node, NetworkFabric
from mlsysim.infra.registry import Grids; Grids.Quebec, Grids.Poland
from mlsysim.core.constants import Q_, NVLINK_H100_BW, INFINIBAND_NDR_BW
from mlsysim.core.constants import ureg, MB, GB, TB
from mlsysim.core.exceptions import MLSysError, OOMError, SLAViolation, ThermalThrottleWarning
from mlsysim.core.solver import SingleNodeModel, DistributedModel, ServingModel, SustainabilityModel
from mlsysim.core.solver import EconomicsModel, ReliabilityModel
from mlsysim.core.formulas import calc_transformer_training_flops, calc_failure_probability, calc_effective_flops
from mlsysim.core.engine import Engine, PerformanceProfile
from mlsysim import SingleNodeModel, DataModel, ScalingModel, DistributedModel, ReliabilityModel, EconomicsModel
from mlsysim import SustainabilityModel, SensitivitySolver, SynthesisSolver, Scenario, SystemEvaluation
from mlsysim import EfficiencyModel, ServingModel, ContinuousBatchingModel, WeightStreamingModel, TailLatencyModel
from mlsysim import TransformationModel, TopologyModel, InferenceScalingModel, CompressionModel, OrchestrationModel
from mlsysim import CheckpointModel, ResponsibleEngineeringModel, NetworkRooflineModel
from mlsysim import ParallelismOptimizer, BatchingOptimizer, PlacementOptimizer
from mlsysim.show import table, info, banner
from mlsysim.hardware.types import *; HardwareNode, ComputeCore, MemoryHierarchy
""".strip().splitlines()


@pytest.mark.parametrize("line", DOCUMENTED)
def test_import_lines_of_the_documents(line):
    exec(line, {"mlsysim": mlsysim})


def test_names_and_values_that_the_documents_print():
    from mlsysim.core.constants import INFINIBAND_NDR_BW, NVLINK_H100_BW
    from mlsysim.infra.registry import Grids

    model, chip = mlsysim.Models.Language.Llama3_70B, mlsysim.Hardware.Cloud.H100
    assert f"{model.name} ({model.parameters.to('Bparam'):.1f~})" == "Llama-3.1-70B (70.6 Bparam)"
    assert chip.compute.peak_flops == mlsysim.Q_("989 TFLOPs/s")
    assert f"{NVLINK_H100_BW.to('GB/s'):.0f~} {INFINIBAND_NDR_BW.to('Gbps'):.0f~}" == "900 GB / s 400 Gbps"
    assert Grids.Quebec.name == "Quebec (Hydro)"


def test_the_command_rewrites_the_list(tmp_path):
    twin = tmp_path / Path(__file__).name
    twin.write_text(Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
    source = str(Path(mlsysim.__file__).parents[1])
    subprocess.run([sys.executable, str(twin)], check=True, env={"PYTHONPATH": source}, timeout=600)
    assert (tmp_path / PINNED.name).read_text(encoding="utf-8").split() == list(mlsysim.__all__)


if __name__ == "__main__":
    PINNED.write_text("\n".join(mlsysim.__all__) + "\n", encoding="utf-8")

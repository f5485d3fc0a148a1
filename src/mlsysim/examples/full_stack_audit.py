"""The full-stack audit of Llama-70B training on 512 H100 in Quebec: six domains, eight resolvers, one table."""

from mlsysim import (
    Q_,
    DataModel,
    DistributedModel,
    EconomicsModel,
    Grids,
    Hardware,
    Models,
    ReliabilityModel,
    ScalingModel,
    SensitivitySolver,
    SingleNodeModel,
    SustainabilityModel,
)
from mlsysim.core.constants import INFINIBAND_NDR_BW, NVLINK_H100_BW
from mlsysim.examples._beside import in_unit
from mlsysim.plans.audit import AUDITED
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.show import banner, info, table
from mlsysim.systems.types import Fleet, NetworkFabric, Node

DAYS = 30
MFU = 0.4
CHECKPOINT_SECONDS = 120


def main() -> None:
    model, chip = Models.Language.Llama3_70B, Hardware.Cloud.H100
    node = Node(name="DGX H100", accelerator=chip, accelerators_per_node=8, intra_node_bw=NVLINK_H100_BW)
    fabric = NetworkFabric(name="InfiniBand NDR", topology="fat-tree", bandwidth=INFINIBAND_NDR_BW)
    fleet = Fleet(name="Training Cluster", node=node, count=64, fabric=fabric, region=Grids.Quebec)

    info(
        "Full-stack audit",
        Model=f"{model.name} ({model.parameters.to('Bparam'):.1f~})",
        Fleet=f"{fleet.count} nodes x {node.accelerators_per_node} {chip.name} = {fleet.total_accelerators}",
        Region=Grids.Quebec.name,
        Run=f"{DAYS} days, 2,048 sequences of 2,048 tokens a step",
    )

    single = SingleNodeModel().solve(model, chip, batch_size=4)
    data = DataModel().solve(workload_data_rate="8 MB/s", hardware=chip)
    budget = Q_(fleet.total_accelerators * chip.peak_flops.to("flop/s").magnitude * DAYS * 86400 * MFU, "flop")
    scaling = ScalingModel().solve(compute_budget=budget, target_model_size=model.parameters)
    layout = {"batch_size": 2048, "tp_size": 8, "overlap_comm": True, "seq_len": 2048}
    as_given = DistributedModel().solve(model, fleet, **layout)
    step = DistributedModel().solve(model, fleet, **layout, zero_stage=1, microbatch_count=32)
    measured = DistributedModel().solve(
        model, fleet, **layout, zero_stage=1, microbatch_count=32, efficiency="calibrated"
    )
    reliability = ReliabilityModel().solve(fleet, job_duration_hours=DAYS * 24, checkpoint_time_s=CHECKPOINT_SECONDS)
    costs = EconomicsModel().solve(fleet, duration_days=DAYS, grid=Grids.Quebec, mfu=MFU)
    footprint = SustainabilityModel().solve(fleet, duration_days=DAYS, datacenter=Grids.Quebec, mfu=MFU)
    sensitivity = SensitivitySolver().solve(model, chip)

    banner("Summary")
    rows = [
        ["Node", "SingleNodeModel", f"Bottleneck: {single.bottleneck}", "Wall 2: Memory"],
        ["Data", "DataModel", f"Util: {data.utilization:.1%}", "Not binding"],
        ["Algorithm", "ScalingModel", f"Tok/param: {scaling.tokens_per_parameter:.1f}", "Wall 11: Complexity"],
        ["Fleet", "DistributedModel", f"Efficiency: {step.scaling_efficiency:.1%}", "Wall 14: Communication"],
        ["Fleet", "ReliabilityModel", f"MTBF: {reliability.fleet_mtbf.to('h').magnitude:.1f} h", "Wall 15: Fragility"],
        ["Ops", "EconomicsModel", f"TCO: ${costs.tco_usd:,.0f}", "Wall 17: Capital"],
        ["Ops", "SustainabilityModel", f"CO2: {footprint.carbon_footprint_kg:,.0f} kg", "Wall 18: Sustainability"],
        ["Analysis", "SensitivitySolver", f"Binding: {sensitivity.binding_constraint}", "Wall 21: Sensitivity"],
    ]
    table(["Domain", "Solver", "Key Metric", "Wall"], rows, "<<>>")

    banner("What binds")
    print(f"One GPU      {single.binding.sentence}")
    print(f"TP8 DP64     {as_given.binding.sentence}")
    print(f"  + ZeRO 1   {step.binding.sentence}")
    print(f"Failures     {reliability.binding.sentence}")
    print(f"Money        {costs.binding.sentence}")
    print(f"Carbon       {footprint.binding.sentence}")

    banner("The hidden costs")
    interval = reliability.optimal_checkpoint_interval.to("s").magnitude
    info(
        Step_time=step.step_latency_total,
        MFU=f"{step.mfu:.1%} (efficiency 0.5 assumed)",
        Calibrated=f"{measured.step_latency_total.magnitude:.2f} s "
        f"({measured.step_interval[0].magnitude:.2f} to {measured.step_interval[1].magnitude:.2f} s), MFU {measured.mfu:.1%}",
        Communication=f"{1 - step.scaling_efficiency:.1%} of the step",
        Checkpoint_interval=reliability.optimal_checkpoint_interval.to("min"),
        Checkpoint_writes=f"{CHECKPOINT_SECONDS / interval:.1%} of the time",
        Goodput=f"{reliability.goodput_ratio:.1%} after writes, rework and restarts",
        Purchase_price=f"${costs.purchase_price_usd:,.0f}, of which ${costs.capex_usd:,.0f} falls to this run",
        Energy=footprint.total_energy_kwh.to("MWh"),
    )

    plan = evaluate_plainly(AUDITED)
    shown = {metric.name: metric.text for metric in plan.metrics}
    paid = next(each.value for each in plan.assumed if each.name == "kwh_price")
    energy = in_unit(footprint.total_energy_kwh, "MWh", 1)
    energy = in_unit(footprint.total_energy_kwh, "MWh", 1)
    banner("The same run as a plan (mlsysim audit)")
    rows = [
        ["MTBF", f"{in_unit(reliability.fleet_mtbf, 'h', 2)} h", shown["mtbf"], "all causes, as counted for H100"],
        ["Checkpoint", f"{CHECKPOINT_SECONDS} s", shown["checkpoint_time"], plan.assumptions["checkpoint_time"]],
        ["Goodput", f"{reliability.goodput_ratio:.1%}", shown["goodput"], "follows"],
        ["MFU", f"{MFU:.1%}", shown["mfu"], "calibrated, not given"],
        ["Energy", f"{energy} MWh", shown["energy"], "by what chips do, with hosts and network"],
        ["Carbon", f"{footprint.carbon_footprint_kg:,.1f} kgCO2e", shown["carbon_footprint"], "follows"],
        ["Electricity", f"{costs.kwh_price_usd:g} USD/kWh", f"{paid:g} USD/kWh", "the price of the region"],
        ["Cost", f"${costs.tco_usd:,.0f}", shown["tco"], "hosts, network and building are owned too"],
    ]
    table(["", "Tutorial's inputs", "Plan", "Why the plan differs"], rows, "<>><")


if __name__ == "__main__":
    main()

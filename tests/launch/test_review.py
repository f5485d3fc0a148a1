"""Reviews: problems first, each flag with its own gain, and a launch file that is better."""

from __future__ import annotations

import re

import pytest

from mlsysim.errors import InputError
from mlsysim.launch.review import review
from mlsysim.launch.targets import export, launched, read_launch
from mlsysim.plans.changes import settled
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.units.registry import to_si

SLOW = """torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
  --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 --swiglu --vocab-size 128256 --seq-length 4096 --micro-batch-size 1 \\
  --global-batch-size 256 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --bf16 --recompute-granularity full --lr 1e-4"""


def test_slow_flags_cost_something_and_each_has_a_gain() -> None:
    found = review(SLOW, on="64xH100")
    assert found.exit_code == 0 and found.best is not None and found.loss is not None
    assert found.loss > 0.2
    assert f"cost you {found.loss:.0%}" in found.headline
    gains = {field: change for change in found.changes for field in change.fields}
    again = evaluate_plainly(settled(found.answer).replacing(parallelism={"recompute": "none"}))
    rates = [float(a.value("tokens_per_second").magnitude) for a in (again, found.answer, found.best)]
    assert gains["parallelism.recompute"].gain == pytest.approx(rates[0] / rates[1] - 1)
    assert found.loss == pytest.approx(1 - rates[1] / rates[2])
    assert [edit.flag for edit in gains["parallelism.recompute"].edits] == ["--recompute-granularity"]
    assert gains["parallelism.recompute"].edits[0].better == "left out"


def test_corrected_file_is_the_best_and_keeps_details() -> None:
    found = review(SLOW, on="64xH100")
    text = found.corrected()
    again = read_launch(text)
    assert again.details["--lr"] == "1e-4"
    second = review(text)
    assert second.loss is not None and second.loss < 0.01
    assert second.answer.value("tokens_per_second").magnitude == pytest.approx(
        found.best.value("tokens_per_second").magnitude
    )


def test_what_does_not_fit_comes_first() -> None:
    text = '{"train_batch_size": 512, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 0}, "bf16": {"enabled": true}}'
    own = review(text, on="64xH100", model="Llama3_8B")
    assert own.answer.plan.hardware.stack == "neox22" and "zero" not in own.problems[0]
    # Megatron's lineage holds gradients in 32 bits, and recomputes nothing where it need not.
    found = review(read_launch(text).placed("64xH100", "Llama3_8B", hardware={"stack": "bridge"}))
    assert found.exit_code == 2 and not found.answer.feasible
    assert found.problems and "Memory" in found.problems[0] and "zero" not in found.problems[0]
    assert found.best is not None and found.best.feasible
    fixes = {field: change for change in found.changes for field in change.fields}
    # The best shares states over smaller micro-batches: neither alone makes it fit.
    assert fixes["parallelism.zero"].effect == fixes["parallelism.micro_batch"].effect == "makes it fit together"
    assert '"zero_optimization": {"stage": 1, "overlap_comm": true}' in found.pasted


def test_state_with_the_host_is_brought_back_where_there_is_room() -> None:
    config = """{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "bf16": {"enabled": true},
    "zero_optimization": {"stage": 1, "overlap_comm": true, "offload_optimizer": {"device": "cpu"}}}"""
    found = review(config, on="64xH100", model="Llama3_8B")
    (change,) = (each for each in found.changes if "parallelism.offload" in each.fields)
    assert change.gain and change.edits[0].flag == "zero_optimization.offload_optimizer"
    assert "offload" not in found.corrected() and not found.kept


def test_a_command_whose_settings_are_in_a_file_names_the_file() -> None:
    for command in (
        "deepspeed --num_gpus 8 train.py --deepspeed ds.json",
        "accelerate launch --config_file=ds.json t.py",
    ):
        with pytest.raises(InputError, match=r"The settings of this command are in ds\.json; review that"):
            review(command, on="8xH100")


def test_flags_of_one_change_are_counted() -> None:
    text = SLOW + " --recompute-method uniform --recompute-num-layers 1"
    lines = [line for line, _ in review(text, on="64xH100").sentences()]
    assert any(line.strip().startswith("+") and "with just these 3" in line for line in lines)


def test_serving_on_too_few_accelerators_of_the_fleet() -> None:
    found = review("vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 256", on="8xH100")
    assert any("1 of the fleet's 8" in warning for warning in found.reading.warnings)
    assert {field for change in found.changes for field in change.fields} >= {"serving.replicas"}
    assert found.loss is not None and found.loss > 0.3
    formats = {field for change in found.formats for field in change.fields}
    assert formats <= {"workload.precision", "serving.cache_precision"}


def test_our_own_best_layout_has_nothing_to_change() -> None:
    plan = Plan.model_validate(
        {"task": "training", "workload": {"model": "Llama3_8B", "batch_size": 512}, "hardware": {"on": "64xH100"}}
    )
    found = review(export("megatron", plan))
    assert found.loss is not None and found.loss < 0.02


def test_missing_fleet_and_model_are_asked_for() -> None:
    with pytest.raises(InputError, match="--on 64xH100"):
        review(SLOW)
    with pytest.raises(InputError, match="--model"):
        review('{"train_batch_size": 8, "zero_optimization": {"stage": 1}}', on="8xH100")


TITAN = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
fsdp_reshard_after_forward = "always"
"""
PASTED = {
    # Each as its launcher spells it.
    (SLOW, "64xH100"): {"--fp8-format hybrid"},
    (TITAN, "8xH100"): {
        '[parallelism]\nfsdp_reshard_after_forward = "never"',
        '[activation_checkpoint]\nmode = "none"',
        '[model]\nconverters = ["quantize.linear.float8"]',
    },
    ("vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4", "4xH100"): {
        "--quantization fp8",
        "--kv-cache-dtype fp8",
    },
}


@pytest.mark.parametrize(("text", "on"), PASTED)
def test_flags_are_spelled_as_the_launcher_reads_them(text: str, on: str) -> None:
    found = review(text, on=on)
    changes = (*found.changes, *found.formats)
    assert {edit.paste for change in changes for edit in change.edits} >= PASTED[text, on]
    # What is listed gains something alone, or says that it does not; dollars go with the gain.
    assert all(change.gain is None or change.gain > 0.005 for change in changes)
    assert all(change.saves is None or change.saves.usd > 0 for change in changes)


def test_pasted_flags_are_the_best_plan() -> None:
    found = review(SLOW, on="64xH100")
    gone = [edit.flag for edit in found.paste if not edit.paste]
    words = SLOW
    for flag in gone:
        words = re.sub(rf"{flag}( [^-\s]\S*)?", "", words)
    again = review(" ".join([words, *(edit.paste for edit in found.paste)]), on="64xH100")
    rates = [float(answer.value("tokens_per_second").magnitude) for answer in (again.answer, found.best)]
    assert rates[0] == pytest.approx(rates[1])


def test_time_and_dollars_of_the_run_or_of_a_day() -> None:
    day = review(SLOW, on="64xH100")
    rate, prices = day.answer.value("tokens_per_second"), [a.value("usd_per_mtoken") for a in (day.answer, day.best)]
    dollars = float((prices[0] - prices[1]).magnitude) * float(rate.magnitude) * 86_400 / 1e6
    assert day.saves.of == "day" and day.saves.usd == pytest.approx(dollars)
    assert f"${dollars:,.0f} a day" in day.headline and day.answer.metric("latency").text in day.headline
    run = review(SLOW + " --train-iters 100000", on="64xH100")
    assert run.saves.of == "run"
    assert run.saves.usd == pytest.approx(float((run.answer.paid.value - run.best.paid.value).magnitude))
    assert run.answer.paid.text in run.headline and run.best.metric("run_time").text in run.headline


def test_a_flag_in_place_of_another_takes_it_away() -> None:
    text = "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 16\nfsdp_config: {fsdp_sharding_strategy: FULL_SHARD}\n"
    reading = read_launch(text, on="16xH100", model="Llama3_8B").placed(workload={"batch_size": 64})
    found = review(reading)
    assert found.pasted == [
        *("fsdp_config:", "  fsdp_reshard_after_forward: false", "  fsdp_version: 2"),
        "without fsdp_config.fsdp_sharding_strategy",
    ]


@pytest.mark.parametrize(
    ("text", "on", "says"),
    [
        # vLLM does not start where one request of the longest kind has no room: 131,072 tokens by the model.
        ("vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 2", "2xH100", "left out and so 131,072"),
        ("vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 2 --max-model-len 64k", "2xH100", "--max-model-len 64,000"),
        ("vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 200000", "1xH100", "beyond the 131,072 tokens"),
    ],
)
def test_the_longest_request_has_a_part(text: str, on: str, says: str) -> None:
    found = review(text, on=on)
    assert found.exit_code == 2 and says in found.problems[0] and found.headline.startswith("With that put right: your")
    assert "--max-model-len" not in found.kept


def test_requests_longer_than_the_flag_allows_are_named() -> None:
    reading = read_launch("vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 2048 --port 80", on="1xH100")
    fits = reading.placed(serving={"prompt_tokens": 1500, "output_tokens": 500})
    assert review(fits).stops == () and review(fits).kept == ["--port"]
    assert "2,100 tokens" in review(reading.placed(serving={"prompt_tokens": 1600, "output_tokens": 500})).stops[0]


def test_left_out_keys_are_the_launchers_own() -> None:
    titan = read_launch(
        '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nsteps = 100\n', "torchtitan", on="8xH100"
    ).plan
    assert (titan.workload.seq_len, titan.workload.batch_size, titan.parallelism.recompute) == (2048, 64, "selective")
    speed = read_launch('{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}', "deepspeed")
    assert speed.placed("16xH100", "Llama3_8B").plan.workload.batch_size == 128


def test_what_an_engine_lets_in_is_no_load() -> None:
    """A limit on requests at once is one: who says what comes is believed, and who does not is told what was taken."""
    text = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 256"
    full = review(text, on="1xH100")
    assert (full.answer.plan.serving.max_num_seqs, full.answer.plan.serving.concurrency) == (256, 256)
    assert any("No load is given, so this is for 256 requests in flight" in each for each in full.reading.warnings)
    few = review(read_launch(text, on="1xH100").placed(serving={"concurrency": 16}))
    assert (few.answer.plan.serving.max_num_seqs, few.answer.plan.serving.concurrency) == (256, 16)
    assert few.answer.value("tokens_per_second") < full.answer.value("tokens_per_second")
    assert not any("No load" in each for each in few.reading.warnings)


def test_the_tokens_of_caches_limit_what_runs_at_once() -> None:
    text = "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct"
    found, whole = (review(f"{text}{more}", on="1xH100") for more in (" --max-total-tokens 20000", ""))
    assert found.answer.plan.serving.max_num_seqs == 17, "20,000 / (1,024 + 256 / 2)"
    assert whole.answer.plan.serving.max_num_seqs is None and not whole.problems
    assert "--max-total-tokens 20,000 holds 17 requests at a time where the memory has room for" in found.problems[0]
    assert not found.kept


@pytest.mark.parametrize(
    ("target", "flags"),
    [
        ("vllm", ("--enable-dbo", "--all2all-backend deepep_low_latency")),
        ("sglang", ("--enable-two-batch-overlap", "--moe-a2a-backend deepep")),
    ],
)
def test_two_batches_that_overlap_are_launched_so(target: str, flags: tuple[str, ...]) -> None:
    """Experts on several nodes, in the format of the checkpoint: the answer hides their exchange, and so the command must."""
    traffic = {"concurrency": 512, "prompt_tokens": 1000, "output_tokens": 500}
    split = {"tp": 1, "ep": 32, "attention_dp": 32}
    plan = Plan.model_validate(
        {"workload": {"model": "DeepSeek_V3"}, "hardware": {"on": "32xH100"}, "parallelism": split, "serving": traffic}
    )
    text = export(target, plan)
    assert all(f"    {flag}\n" in text for flag in flags)
    without = "\n".join(line for line in text.splitlines() if flags[0] not in line)
    assert any(f"add {flags[0]}" in problem for problem in review(without).problems)
    inside = plan.replacing(hardware={"on": "8xB200"}, parallelism={"ep": 8, "attention_dp": 8})
    assert flags[0] not in export(target, inside)


def test_the_compiler_of_torchtitan_has_its_part() -> None:
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 8192\nlocal_batch_size = 1\nglobal_batch_size = 64\n'
    text += "[parallelism]\ndata_parallel_shard_degree = 8\n[compile]\nenable = {}\n"
    slow, fast = (review(text.format(on), on="8xH100") for on in ("false", "true"))
    gains = {edit.paste: change for change in slow.changes for edit in change.edits}
    assert gains["[compile]\nenable = true"].gain == pytest.approx(
        float(fast.answer.value("tokens_per_second") / slow.answer.value("tokens_per_second")) - 1
    )
    assert "compile.enable" not in (*slow.kept, *fast.kept, *(edit.flag for edit in fast.paste))
    assert "enable = true" in slow.corrected() and read_launch(slow.corrected()).plan.hardware.stack == "titanc"


def test_a_part_that_is_split_in_two_is_one_in_a_review() -> None:
    """Products in fp8 wait for arithmetic and for memory: together they are what products in bf16 are."""
    text = "torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
    text += "--seq-length 4096 --micro-batch-size 1 --global-batch-size 512 --tensor-model-parallel-size 8 --bf16"
    (change,) = (each for each in review(text, on="64xH100").formats if "fp8" in str(each.edits))
    now, then = (
        float(number)
        for number in re.findall(r"matrix products: ([\d.]+)% of the time now, ([\d.]+)% then", change.reason)[0]
    )
    assert 0.4 * now < then < 0.8 * now


@pytest.mark.parametrize("target, stack", [("torchtitan", "titan"), ("deepspeed", "neox22"), ("fsdp", "fsdp23")])
def test_an_export_has_the_times_of_its_trainer(target: str, stack: str) -> None:
    plan = Plan.model_validate({"model": "Llama3_8B", "on": "64xH100"})
    found = launched(target, plan)
    assert (found.task, found.hardware.stack, found.hardware.launcher) == ("training", stack, target)
    assert launched(target, plan.replacing(task="training", hardware={"stack": "bridge"})).hardware.stack == "bridge"
    assert launched("megatron", plan).hardware.stack is None


def test_at_a_rate_the_times_of_requests_are_compared():
    """Other settings take the same requests: the rate stays a rate, and the loss is that of the times which the headline names."""
    found = review("vllm serve Qwen/Qwen3-32B --pipeline-parallel-size 2 --tensor-parallel-size 2", on="4xH100")
    rated = review(
        read_launch("vllm serve Qwen/Qwen3-32B --pipeline-parallel-size 4", on="4xH100").placed(serving={"qps": 1})
    )
    assert found.answer.main == "tokens_per_second" and rated.answer.main == rated.best.main == "latency"
    before, after = (to_si(each.value("latency"), "s") for each in (rated.answer, rated.best))
    assert 0 < rated.loss < 1 and rated.loss == pytest.approx(1 - after / before)
    assert "a request takes" in rated.headline


TITAN = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 4\nseq_len = 4096\n'


def test_a_batch_that_the_file_leaves_to_its_ranks_is_written_beside_what_would_change_it():
    found = review(TITAN, on="8xH100")
    pasted = "\n".join(found.pasted)
    assert "local_batch_size = 2" in pasted and "global_batch_size = 32" in pasted


def test_what_does_not_fit_is_told_in_the_flags_of_the_file():
    text = '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}}'
    found = review(read_launch(text, on="8xH100", model="Llama3_8B"))
    assert "zero = " not in found.headline and "with the changes below it fits, at " in found.headline
    assert found.headline.endswith(" tokens a second.") and found.changes[0].effect == "makes it fit"
    assert '"zero_optimization": {"stage": 1}' in found.pasted[0]


def test_torchtitan_makes_the_stages_that_are_written():
    """Its rule: the ends count as so many layers, stages are the layers over those of one, rounded up, and a multiple of the ranks."""
    from mlsysim.launch.torchtitan import _stages

    for layers in (16, 32, 80, 126):
        for stages in range(2, layers + 2):
            try:
                each, less = _stages(layers, stages)
            except InputError as error:
                assert f"no {stages} stages of {layers} layers" in str(error)
                continue
            held = layers + 2 * (1 if less is None else less)
            assert -(-held // each) == stages
    assert _stages(80, 16) == (5, 0) and _stages(126, 128) == (1, None)
    pipeline = "[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = 'Interleaved1F1B'\n"
    reading = read_launch(TITAN + pipeline + "pipeline_parallel_layers_per_stage = 4\n", on="8xH100")
    assert any("does not start: 4 layers a stage make 9 stages of 34" in warning for warning in reading.warnings)


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("vllm serve meta-llama/Llama-3.1-8B", "--enforce-eager"),
        ("python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B", "--disable-cuda-graph"),
    ],
)
def test_graphs_that_are_switched_off_cost_what_the_host_launches(command: str, flag: str) -> None:
    """The same server with graphs is the best, and its gain that of the two answers."""
    length = "--context-length" if "sglang" in command else "--max-model-len"
    found, graphs = (review(f"{command} {length} 8192 {more}", on="1xH100") for more in (flag, ""))
    (change,) = found.changes
    assert [edit.text for edit in change.edits] == [f"without {flag}"] and found.pasted == [f"without {flag}"]
    rate = [float(each.answer.value("tokens_per_second").magnitude) for each in (found, graphs)]
    assert change.gain == pytest.approx(rate[1] / rate[0] - 1, rel=0.01) and change.gain > 0.02
    assert flag not in found.kept and graphs.loss < 0.01 and flag not in found.corrected()
    assert "launches" in change.reason
    # What a gain is of.
    assert all("output tokens a second" in change.effect for change in found.formats if change.gain)

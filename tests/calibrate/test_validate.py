"""Scoring: counts, percentiles, reasons, intervals, files; with a table made here."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from mlsysim.calibrate import validate
from mlsysim.calibrate.cells import chip_of, devices_of, key_of
from mlsysim.calibrate.questions import Excluded, Prediction, Skipped, Table
from mlsysim.calibrate.tables import TABLES
from mlsysim.errors import InputError


def read(row: Mapping[str, str]) -> list[Prediction]:
    if row["state"] == "duplicate":
        raise Excluded("listed twice")
    if row["state"] == "unheard of":
        raise Skipped("no such chip")
    measured = float(row["value"])
    return [Prediction("time", measured, measured * float(row["factor"]), "test regime", True)]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    made = Table("made_here", ("id", "source", "value", "factor", "state"), read)
    monkeypatch.setattr(validate, "TABLES", {made.name: made})
    path = tmp_path / "table.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "source", "value", "factor", "state"])
        for i, factor in enumerate((1.0, 1.05, 0.9, 1.3, 0.5)):
            writer.writerow([f"r{i}", "a" if i < 3 else "b", 10, factor, "ok"])
        writer.writerow(["r5", "b", 10, 1, "duplicate "])  # blanks around a cell say nothing
        writer.writerow(["r6", "b", 10, 1, "unheard of"])
    yield path


def test_counts_and_errors(table: Path) -> None:
    (report,) = validate.validate(table)
    data = report.to_dict()
    assert (data["rows"], data["predicted"], data["skipped"], data["excluded"]) == (6, 5, 1, 1)
    assert data["coverage"] == pytest.approx(5 / 6)
    assert data["skipped_reasons"] == {"no such chip": 1} and data["not_predicted"] == {"r6": "no such chip"}
    assert data["median_ape"] == pytest.approx(10.0)
    assert data["mape"] == pytest.approx((0 + 5 + 10 + 30 + 50) / 5)
    assert data["p90_ape"] == pytest.approx(30 + 0.6 * 20)
    assert data["within_10"] == pytest.approx(60) and data["within_25"] == pytest.approx(60)
    assert data["bias"] == pytest.approx(0.0)
    assert data["by_source"]["a"]["values"] == 3 and data["by_metric"]["time"]["values"] == 5
    json.dumps(data)


def test_predictions_file(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    validate.write_predictions(validate.validate(table), out)
    rows = list(csv.DictReader(out.open()))
    assert list(rows[0]) == ["id", "metric", "measured", "predicted", "low", "high", "error", "plan"]
    assert [row["id"] for row in rows] == ["r0", "r1", "r2", "r3", "r4"]
    assert float(rows[1]["error"]) == pytest.approx(0.05) and float(rows[1]["low"]) < 10.5 < float(rows[1]["high"])
    assert rows[1]["plan"] == ""


def test_files_that_are_not_tables(tmp_path: Path, table: Path) -> None:
    foreign = tmp_path / "foreign.csv"
    foreign.write_text("x,y\n1,2\n")
    with pytest.raises(InputError, match="no column says the model; call it model"):
        validate.validate(foreign)
    with pytest.raises(InputError, match="is not a file"):
        validate.validate(tmp_path / "none.csv")
    binary = tmp_path / "b.csv"
    binary.write_bytes(b"\xff\xfe\x00\x01" * 10)
    with pytest.raises(InputError, match="not a CSV table"):
        validate.validate(binary)
    with pytest.raises(InputError, match="at least one"):
        validate.validate()


def _runs(tmp_path: Path, text: str) -> validate.FileReport:
    path = tmp_path / "runs.csv"
    path.write_text(text)
    return validate.validate(path)[0]


@pytest.mark.parametrize(
    ("text", "metrics"),
    [
        ("model,hardware,num_gpus,tp,pp,seq_len,gbs,mbs,step_time\nLlama3-8B,H100,8,1,1,8192,64,1,12\n", {"step_time"}),
        ("model,accelerator,n_gpus,global_batch_size,mfu\nmeta-llama/Llama-3.1-8B,NVIDIA H100 80GB HBM3,8,64,42%\n", {"mfu"}),
        ("Model;GPU Type;GPUs;Seq Len;Batch;Iter Time (ms);MFU (%)\nLlama 3 8B;H100;8;8192;64;11500;41\n", {"Iter Time (ms)", "MFU (%)"}),
        ("model,gpu,gpus,seq_len,batch_size,tokens/s/gpu\nLlama3-8B,8xH100,,8192,64,9800\n", {"tokens/s/gpu"}),
        ("model,gpu,concurrency,input_tokens,output_tokens,ttft_s,tpot_ms\nLlama-3.1-8B,H100,8,1024,64,0.06,8\n", {"ttft_s", "tpot_ms"}),
        ("model,gpu_type,num_users,isl,osl,itl_ms,output_tok_per_s\nLlama-3.1-8B,H100,8,1k,64,8,900\n", {"itl_ms", "output_tok_per_s"}),
        ("model,device,batch_size,input_len,output_len,throughput\nLlama-3.1-8B,H100,32,128,128,2900\n", {"throughput"}),
        ("model,device,batch_size,latency_ms\nresnet50,A100,128,30\n", {"latency_ms"}),
        ("network,hardware,mode,dtype,batch,images/s\nResNet-50,V100,training,fp16,256,1000\n", {"images/s"}),
        ("model,gpu,batch,metric,value,unit\nresnet50,A100,128,throughput,4000,img/s\n", {"throughput"}),
        # Counts of accelerators under a sign, a fleet among them, layouts, percentiles and tests of llama-bench.
        ("Model,# HPU,Accelerator,Precision,Input Length,Batch Size,Latency (ms)\nLLaMA 2 70b,8,Gaudi2,fp8,2048,1,116\n", {"Latency (ms)"}),
        ("Model,GPUs,Quantization,Parallel Structure,in,out,# prompts,Output token throughput\nqwen3-4b,2x 3090,AWQ,dp2,512,64,64,1500\n", {"Output token throughput"}),
        ("model,gpu,isl,osl,num_users,p99_ttft_ms,TPOT P90\nllama3-8b,H100,1024,32,4,130,9\n", {"p99_ttft_ms", "TPOT P90"}),
        ("model,gpu,quant,test,t/s\nllama3.1-8b,M1 Max,q4_k_m,tg128,46.2 ± 0.4\n", {"t/s"}),
        ("Model,Hardware,Batch,ISL,t/s/u,t/s\nLLaMA-3.1-8B,n150,1,128,28.6,28.6\n", {"t/s/u", "t/s"}),
        # Pairs of lengths, a server that is full, a compiler among versions, a side of images behind a name.
        ("Model,GPU,# GPUs,Engine,Quantization,ISL/OSL,Output tok/s/GPU,Notes\nLlama 3.1 8B,H100,1,TensorRT-LLM 0.20,FP8,128/128,26000,max throughput\n", {"Output tok/s/GPU"}),
        ("Model,Device,Runtime,Precision,Batch size,Throughput (img/s)\nViT-B/16 224,A100,PyTorch 2.1 compile,fp16,256,3800\n", {"Throughput (img/s)"}),
        ("Model,Device,Software,Batch size,Resolution,Steps,Latency (s)\nSDXL,RTX 4090,diffusers,1,1024x1024,30,5.2\n", {"Latency (s)"}),
        ("Model,Inst. Type,Throughput (inference/second),Latency P50 (ms),Batch Size,Sequence Length\nbert-base-cased,Inf2.xlarge,2698,2.95,4,128\n", {"Throughput (inference/second)", "Latency P50 (ms)"}),
    ],
)  # fmt: skip
def test_tables_as_people_keep_them(tmp_path: Path, text: str, metrics: set[str]) -> None:
    report = _runs(tmp_path, text)
    assert (report.table, report.rows, report.predicted, report.unread) == ("runs", 1, 1, [])
    assert {p.metric for p in report.scored} == metrics
    assert all(1 / 4 < p.predicted / p.measured < 4 and p.low is not None for p in report.scored)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("model,gpu,num_users,ttft_ms\nllama3-8b,H100,16,500\n", "how long prompts are is not said: give their tokens in a column isl, and those of answers in osl"),
        ("model,num_gpus,seq_len,gbs,mfu\nllama3-8b,8,8192,64,41%\n", "the row names no accelerator: give it in a column gpu, such as H100"),
        ("model,gpu,ttft_ms\nllama3-8b,H100,500\n", "how long prompts are is not said: give their tokens in a column isl, and those of answers in osl"),
        ("model,gpu,isl,osl,output_tok_per_s\nllama3-8b,H100,512,64,900\n", "how many requests there are at a time is not said: give them in a column concurrency or batch, or those sent at once in num_prompts"),
        ("model,gpu,isl,osl,num_users,ttft_ms\nllama3-8b-instuct,H100,512,64,4,90\n", "There is no model named 'llama3-8b-instuct'; did you mean 'llama-3-8b-instruct', 'llama-3.1-8b-instruct' or 'llama-3-70b-instruct'?"),
        ("model,gpu,batch,img_size,latency_ms\nYOLOv8n,A100,1,320,2\n", "YOLOv8n 640 is known for images of 640 pixels, not 320."),
    ],
)  # fmt: skip
def test_what_a_row_lacks_is_said(tmp_path: Path, text: str, reason: str) -> None:
    assert list(_runs(tmp_path, text).skipped_reasons) == [reason]


def test_images_of_a_denoiser_are_asked_for_in_their_unit(tmp_path: Path) -> None:
    head, row = "model,gpu,software,img_size,steps,latency_{}\n", "SDXL,A100,{},{},50,{}\n"
    seconds, thousandths, compiled = (
        _runs(tmp_path, head.format(unit) + row.format(how, "1024 px", 6)).scored[0]
        for unit, how in (("s", "diffusers"), ("ms", "diffusers"), ("s", "diffusers torch.compile"))
    )
    assert 3 < compiled.predicted < seconds.predicted < 9 and thousandths.predicted == pytest.approx(
        1e3 * seconds.predicted
    )
    reasons = [
        list(_runs(tmp_path, head.format("s") + row.format("diffusers", side, 6)).skipped_reasons)
        for side in ("512", "720p")
    ]
    assert reasons == [
        ["Stable Diffusion XL base 1.0 (1024x1024) is known for images of 1024 pixels, not 512"],
        ["the size of images '720p' is no side of a square in pixels"],
    ]


def test_backends_of_llama_bench_are_no_engines(tmp_path: Path) -> None:
    head, row = "model,backend,ngl,test,t/s,gpu\n", "llama 8B Q4_K - Medium,{},99,tg128,100,RTX 3090\n"
    plans = {
        _runs(tmp_path, head + row.format(name)).scored[0].plan
        for name in ("CUDA", "Vulkan", '"CUDA,BLAS"', "llama.cpp")
    }
    assert len(plans) == 1 and 'engine = "llama_cpp"' in plans.pop()


def test_machines_and_nodes_behind_a_chip_are_read() -> None:
    """A machine behind a chip says how many it has; a number before it stands, whatever is behind."""
    labels = {
        "A10G (g5.12xlarge)": 4,
        "16x H200 (2 nodes)": 16,
        "16x H100 (p5.48xlarge)": 16,
        "2x A10G (g5.12xlarge)": 2,
        "GB200 NVL72 (8 GPUs)": 8,
        "8 × H100 SXM5 (NVLink)": 8,
        "TPU v5 lite pod 8": 8,
    }
    assert {label: devices_of(label) for label in labels} == labels
    assert [key_of(chip_of(label)) for label in labels] == ["A10G", "H200", "H100", "A10G", "GB200", "H100", "TPU_v5e"]


def test_copies_of_a_model_share_the_requests(tmp_path: Path) -> None:
    one, two = (
        _runs(
            tmp_path,
            f"model,gpu,layout,isl,osl,num_users,output_tok_per_s\nLlama3_8B,2xH100,{layout},512,64,{users},900\n",
        )
        .scored[0]
        .predicted
        for layout, users in (("tp1", 8), ("dp2", 16))
    )
    assert two == pytest.approx(2 * one, rel=0.02)


def test_full_precision_is_rounded_where_pytorch_rounds_it(tmp_path: Path) -> None:
    row = "{},infer,A100,fp32,nchw,eager,224,16,,,,latency,30,ms,,{}"
    head = "model,task,device,precision,layout,compiler,img_size,batch,gmacs,mparams,macts,metric,value,unit,source,notes\n"
    told = {
        (network, version): _runs(tmp_path, head + row.format(network, version) + "\n").scored[0].predicted
        for network in ("resnet50", "vit_base_patch16_224")
        for version in ("torch 1.10", "torch 2.0.1")
    }
    assert told["resnet50", "torch 1.10"] == told["resnet50", "torch 2.0.1"]
    assert told["vit_base_patch16_224", "torch 2.0.1"] > 2 * told["vit_base_patch16_224", "torch 1.10"]


def test_a_table_of_runs_asks_what_the_published_one_asks(tmp_path: Path) -> None:
    given = {
        **{"model": "Llama3_8B", "seq": "8192", "gpu": "H100", "n_gpus": "8", "tp": "1", "pp": "1"},
        "recompute": "",
    }
    known = given | {"microbatch": "1", "global_batch": "64", "reported_metric": "step_time", "value": "12"}
    (same,) = TABLES["training"].predict(known)
    (own,) = _runs(
        tmp_path, "model,seq_len,hardware,gpus,tp,pp,mbs,gbs,step_time\nLlama3_8B,8192,H100,8,1,1,1,64,12\n"
    ).scored
    assert (own.predicted, own.low, own.high) == (same.predicted, same.low, same.high)
    seconds, milliseconds = (
        _runs(tmp_path, f"model,gpu,conc,isl,osl,{name}\nLlama3_8B,H100,4,512,32,{value}\n").scored[0]
        for name, value in (("ttft_s", "0.03"), ("ttft_ms", "30"))
    )
    assert milliseconds.predicted == pytest.approx(1e3 * seconds.predicted)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("modle,gpu,mfu\na,H100,1\n", "runs.csv: no column says the model; of 'modle': did you mean 'model'?"),
        ("model,gpuu,mfu\na,H100,1\n", "runs.csv: no column says the accelerator; of 'gpuu': did you mean 'gpu'?"),
        ("model,gpu,thruput\na,H100,1\n", "tpot_ms, output_throughput or images/s; of 'thruput': did you mean 'throughput'?"),
        ("op,gpus,size,busbw (GB/s)\nall_reduce,8,1G,472\n", "metric, value, or give a log of nccl-tests to `mlsysim collectives`."),
        ("", "runs.csv is empty; expected a line with the names of columns, and a line for each measurement."),
    ],
)  # fmt: skip
def test_what_is_no_table_of_runs_gets_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        _runs(tmp_path, text)
    assert str(caught.value).endswith(sentence)


def test_what_is_not_read_is_said(tmp_path: Path) -> None:
    header = "model,gpu,n_gpus,seq_len,step_tim,mfu,throughput\n"
    report = _runs(tmp_path, header + "Llama3-8B,H100,8,8192,9,0.4,\nLlama3-8B,H100,8,8192,9,,900\n")
    without = _runs(tmp_path, "model,gpu,n_gpus,step_time\nLlama3-8B,H100,8,9\n").skipped_reasons
    assert list(without) == ["how long a step takes depends on its sequences: give them in a column batch_size"]
    assert report.unread == ["step_tim (did you mean 'step_time'?)"] and report.predicted == 1
    assert list(report.not_predicted.values()) == [
        "'throughput' does not say what it counts: call it tokens_per_s, tokens/s/gpu or images/s"
    ]

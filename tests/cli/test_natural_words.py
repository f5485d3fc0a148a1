"""What people write in other words than ours and is understood, and what is answered with a note: none of it passes without a word."""

from __future__ import annotations

import csv
from io import StringIO
from types import ModuleType

import pytest

UNDERSTOOD = {
    "train --model Llama3_8B --on 8xH100 -e 0.5": "training Llama-3.1-8B on 8 x",
    "serve --on 8xH100 --model=Llama3_8B -e 0.5": "serving Llama-3.1-8B on 8 x",
    "eval --model Llama3_8B --on H100": "Llama-3.1-8B on NVIDIA H100",
    "eval scenario:llama3-70b-512-h100 --model Llama3_8B -e 0.5": "training Llama-3.1-8B on 512 x",
    "compare H100 H200 --model Llama3_8B -e 0.5": "same wall binds",
    "sweep Llama3_8B@8xH100 batch_size=64,128 -e 0.5 --price 2.5": "$480",
    "sweep Llama3_8B@1xH100 on=1xH100,8xH100 -e 0.5": "8 are given; say --task training or --task serving.",
    "sweep tp=1,2 --model Llama3_8B --on 8xH100 --task training -e 0.5": "Compute",
    "optimize parallelism --model Llama3_8B --on 8xH100 -e 0.5": "Best: TP1 PP1 DP8",
    "export vllm --model Llama3_8B --on 8xH100": "vllm serve",
    "sweep Llama3_8B@8xH100 tp=[1,2] --task training -e 0.5": "Compute",
    "train Llama3_8B --on 8xH100 -e 0.5 --gbs 64 --seqlen 4k --mbs 1": "training Llama-3.1-8B on 8 x",
    "train Llama3_8B 8xH100 tp_size=2 tokens=1B -e 0.5": "with TP2",
    "compare Llama3_8B@8xH100 Llama3_8B@8xH200 tp=8 -e 0.5": "same wall binds",
    "labs show 3": "3. Two phases of serving",
    "train Llama3_8B --on 8xH100 -e 0.5 --tokens 1B --budget 'USD 1M'": "costs",
    "train Llama3_8B --on 8xH100 -e 0.5 --tokens 1B --budget '1 million dollars'": "costs",
    # Rates in another time than a second, chips as people and other tools count them, limits beside each other.
    "serve Llama3_8B --on H100 -e 0.5 --qps 5/s": "5 requests a second",
    "serve Llama3_8B --on H100 -e 0.5 --qps 300/min": "5 requests a second",
    "serve Llama3_8B --on H100 -e 0.5 --qps '432k per day'": "5 requests a second",
    "train Llama3_8B --on H100:8 -e 0.5": "on 8 x NVIDIA H100",
    "train Llama3_8B --on 8xH200s -e 0.5": "on 8 x NVIDIA H200",
    "serve Llama3_8B --on H100 -e 0.5 --qps 1 --slo 'ttft=5s tpot=50ms'": "Time of each further token",
    "serve Llama3_8B --on H100 -e 0.5 --qps 1 --slo 'ttft=5s;tpot=50ms'": "Time of each further token",
    "eval Llama3_8B H100 --memory-bandwidth 8TBps -e 0.5": "memory bandwidth 8 TBps",
    "train Llama3_8B --on 8xH100 -e 0.5 --deadline 4weeks": "The run lasts 28 days",
    # Numbers with their nouns, machines of clouds with as many chips as they have, metrics by the words of pages.
    "train Llama3_8B --on 8xH100 -e 0.5 --tokens '2 billion tokens'": "2 billion tokens take",
    "train Llama3_8B --on 8xH100 -e 0.5 --tokens 2bn": "2 billion tokens take",
    "serve Llama3_8B --on H100 -e 0.5 --isl '1000 tokens' --osl '100 tokens'": "1,000 + 100 tokens",
    "serve Llama3_8B --on H100 -e 0.5 --qps '5 requests per second'": "5 requests a second",
    "serve Llama3_8B --on H100 -e 0.5 --qps 5rps": "5 requests a second",
    "serve Llama3_8B --on H100 -e 0.5 --qps '5 req/s'": "5 requests a second",
    "serve Llama3_8B --on inf2.48xlarge -e 0.5": "on 12 x AWS Inferentia2",
    "serve Llama3_8B --on '2 racks of GB200 NVL72' -e 0.5": "on 144 x NVIDIA GB200",
    "serve Llama3_8B --on '16 x ND H100 v5' -e 0.5": "on 128 x NVIDIA H100",
    "explain 'cost per token' --of Llama3_8B@8xH100": "Cost of a million",
    "explain 'time per output token' --of Llama3_8B@8xH100 --task serving": "Time of each further token",
}

NOTED = {
    "eval BERT_Large H100 -s 100000": "made for 512 tokens at most; it is asked for 100,000.",
    "train Llama3_8B --on 8xH100 -e 0.5 --tokens 2": "2 tokens are less than one step of",
    "train Llama3_8B --on 8xH100 -e 0.5 --tokens 1M": "which runs whole; a smaller batch has shorter steps.",
    "train Llama3_8B --on 8xH100 -e 0.5 --batch-size 4M": "a batch counts sequences, not tokens.",
    "optimize batching Llama3_8B@H100 --slo ttft=1s --engine vllm": "ttft and engine: no effect",
}


@pytest.mark.parametrize("command", [*UNDERSTOOD, *NOTED])
def test_it_is_understood_or_noted(command: str, fuzz: ModuleType) -> None:
    import shlex

    code, out, _ = fuzz.run_command(shlex.split(command))
    assert code == 0 and {**UNDERSTOOD, **NOTED}[command] in " ".join(out.split())


def test_a_run_of_whole_steps_has_no_note_and_small_times_have_no_exponent(fuzz: ModuleType) -> None:
    _, whole, _ = fuzz.run_command(["train", "Llama3_8B", "--on", "8xH100", "-e", "0.5", "--tokens", "1B"])
    assert "less than one step" not in whole
    _, tiny, _ = fuzz.run_command(["train", "Llama3_8B", "--on", "8xH100", "-e", "0.5", "--tokens", "2"])
    assert "µs" in tiny and "e-0" not in tiny


def test_numbers_of_a_sweep_as_csv_are_bare_and_units_stand_in_the_header(fuzz: ModuleType) -> None:
    keys = ["seq_len=2k,8k", "deadline=30d,60d", "tp=1,3"]
    asked = ["sweep", "Llama3_8B@8xH100", *keys, "--tokens", "1B", "--task", "training", "-o", "csv"]
    code, out, _ = fuzz.run_command(asked)
    rows = list(csv.DictReader(StringIO(out)))
    assert code == 0 and len(rows) == 8
    assert {row["seq_len"] for row in rows} == {"2000", "8000"}
    assert {float(row["deadline [s]"]) for row in rows} == {30 * 86400.0, 60 * 86400.0}
    assert all(float(row["latency [s]"]) > 0 for row in rows if row["fits"] == "True")
    words = {"fits", "binds"}
    assert not [cell for row in rows for name, cell in row.items() if name not in words and cell and not _number(cell)]


def test_combinations_as_parquet_are_those_as_csv(tmp_path, monkeypatch: pytest.MonkeyPatch, fuzz: ModuleType) -> None:
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    for name in ("tp.csv", "tp.parquet"):
        code, _, err = fuzz.run_command(
            ["sweep", "Llama3_8B@8xH100", "tp=1,2", "--task", "training", "-e", "0.5", "-o", name]
        )
        assert code == 0, err
    same = "(select * from 'tp.parquet') except (select * from 'tp.csv')"
    assert duckdb.sql("select count(*) from 'tp.parquet'").fetchall() == [(2,)] and duckdb.sql(same).fetchall() == []


def test_two_plans_as_csv_are_plain_numbers_in_one_unit(fuzz: ModuleType) -> None:
    code, out, _ = fuzz.run_command(["compare", "Llama3_8B@H100", "Llama3_8B@A100", "-e", "0.5", "-o", "csv"])
    rows = list(csv.reader(StringIO(out)))
    head, memory = rows[0], next(row for row in rows if row[0] == "feasibility.memory_capacity")
    assert code == 0 and head[:3] == ["metric", "label", "unit"] and memory[2] == "GB"
    assert float(memory[4]) / float(memory[3]) == pytest.approx(float(memory[5]))


def _number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def test_batches_keep_the_limit_on_the_whole_request(fuzz: ModuleType) -> None:
    """The P99 that is asked in words is the one that is asked in milliseconds, the tighter of both holds, and lengths count."""
    batch = ["optimize", "batching", "Llama3_8B@H100"]
    found = {
        words: fuzz.run_command([*batch, *words.split()])[1].splitlines()[0]
        for words in (
            "--sla-ms 8000",
            "--slo e2e_p99=8s",
            "--sla-ms 20000 --slo e2e_p99=8s",
            "--slo e2e_p99=8s --osl 64",
        )
    }
    eight, same, tighter, shorter = found.values()
    assert eight == same == tighter and eight.startswith("Best: batch ")
    assert int(shorter.split()[2].rstrip(",")) > int(eight.split()[2].rstrip(","))


@pytest.mark.parametrize(
    ("name", "text", "code", "said"),
    [
        ("tab.yaml", "workload:\n\tmodel: Llama3_8B\n", 1, "a tab stands where YAML takes spaces (line 2)"),
        ("slo.yaml", "model: Llama3_8B\non: H100\nqps: 1\nslo: [ttft=5s, tpot=50ms]\n", 0, "within the limit of 50 ms"),
        ("flat.json", '{"model": "Llama3_8B", "on": "8xH100", "tokens": "1B"}', 0, "1 billion tokens take"),
        ("comma.json", '{"model": "Llama3_8B",}', 1, "'comma.json' is not JSON"),
        ("one.yaml", "model: Llama3_8B\non: 8xH100\ntask: training\nconstraints:\n  assert: mfu > 1%\n", 0, "MFU"),
        (
            "pair.yaml",
            "model: Llama3_8B\non: 8xH100\ntask: training\nassert: [{mfu: 0.4}]\n",
            1,
            "such as 'mfu >= 0.4'",
        ),
        ("list.yaml", "- model: Llama3_8B\n- on: 8xH100\n", 1, "a plan has keys and values, such as model and on"),
        ("empty.yaml", "", 1, "the file has nothing."),
        (
            "day.yaml",
            "model: Llama3_8B\non: H100\nbatch_size: 2024-01-01\n",
            1,
            "got 2024-01-01; expected a whole number",
        ),
        ("inf.yaml", "model: Llama3_8B\non: H100\nseq_len: .inf\n", 1, "got inf; expected a number, and a finite one."),
        ("many.yaml", "model: [Llama3_8B, Llama3_70B]\non: H100\n", 1, "expected text, once; a sweep takes several"),
        ("flat.yaml", "workload: Llama3_8B\nhardware: 8xH100\n", 1, "expected a table of keys and values"),
        ("twice.toml", 'model = "Llama3_8B"\nmodel = "Llama3_70B"\n', 1, "a key stands twice (at line 2"),
        ("list.json", "[]", 1, "the file has a list."),
        ("bare.toml", 'model = "Llama3_8B"\ntokens = 2T\n', 1, "a number with a unit, stand in quotes"),
    ],
)
def test_a_plan_as_people_write_it(tmp_path, fuzz: ModuleType, name: str, text: str, code: int, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    ended, out, err = fuzz.run_command(["eval", str(path)])
    assert ended == code and said in " ".join((out + err).split())


def test_a_model_of_a_file_has_no_tower_that_it_lacks(tmp_path, fuzz: ModuleType) -> None:
    sizes = '"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 14336'
    path = tmp_path / "config.json"
    path.write_text(f'{{"model_type": "llama", {sizes}, "vocab_size": 128256}}')
    code, out, _ = fuzz.run_command(["eval", str(path), "H100"])
    assert code == 0 and "tower" not in out

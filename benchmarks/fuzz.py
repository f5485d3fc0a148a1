"""Feed generated inputs, most of them bad, to the API, the command line and the readers of files.

    python benchmarks/fuzz.py [--count 1000000] [--seed 0] [--minutes 0] [--kinds plan,command,...]

Every input must end in an answer without NaN, or in one sentence that says what was wrong; anything else, and any input
that takes longer than a limit, is printed with its seed. Input number i of seed s depends on (s, i) alone, so ``--seed s
--first i --count 1`` repeats it. The suite feeds the same generators a few thousand inputs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "walls"))

from examples_of_resolvers import CALLS, resolver  # noqa: E402

from mlsysim.errors import MLSysError  # noqa: E402

SLOWEST = 60.0
"""Seconds after which an input counts as a hang."""

MODELS = (
    "Llama3_8B", "Llama3_70B", "Llama3_405B", "Mixtral_8x7B", "DeepSeek_V3", "GPT_OSS_120B", "Mamba2_2_7B", "Jamba_v0_1",
    "NemotronH_8B", "Qwen3_Next_80B_A3B", "Qwen2_VL_7B", "LLaVA_1_5_7B", "ResNet50", "YOLOv8m", "ViT_B_16", "BERT_Base", "T5_Base",
    "Whisper_Tiny", "StableDiffusion_XL", "DLRM_MLPerf", "DS_CNN", "GPT4", "UNet3D", "CLIP_B_32", "MNIST_MLP", "Gemma3_4B",
)  # fmt: skip
LANGUAGE = (*MODELS[:12], "Gemma3_4B")
CHIPS = (
    "H100", "A100", "B200", "H800", "MI300X", "TPU_v5p", "TPU_v1", "Apple_M4_Max", "RTX_4090", "T4", "ESP32_S3", "Cerebras_CS3", "Groq_LPU",
    "Coral", "Xeon_8480_Plus", "Jetson_Orin_Nano", "GB200", "Trainium2", "Hailo_8", "RaspberryPi_5", "K80", "STM32_L4R5", "MTIA_v2",
)  # fmt: skip
PRECISIONS = ("fp32", "fp16", "bf16", "fp8", "int8", "int4", "fp4", "tf32", "fp64")
REGIONS = ("Quebec", "Poland", "US_Avg", "France", "Iowa")
NUMBERS = (
    0,
    -1,
    1,
    2,
    3,
    7,
    8,
    64,
    1000,
    10**6,
    10**12,
    10**30,
    -5,
    0.5,
    1.5,
    1e-30,
    1e308,
    math.nan,
    math.inf,
    -math.inf,
)
TEXTS = (
    "", " ", "auto", "h100", "H-100", "LLama3 70b", "H1000", "8xH100", "nan", "inf", "-1 s", "10 ms", "5 parsecs", "1e999 GB", "0 W",
    "300", "x", "8x", "xH100", "8xH100 + ", "1000000000xH100", "8x8xH100", "../../etc/passwd", "a/b.json", "hf://meta/llama", "\x00", "\n", "é",
    "🦙" * 5, "A" * 5000, "[bold]", "{}", "{'a': 1}", "%s%n", "--help", "-1", "1,5", "12 GB/s", "3 USD/h", "10 kg", "1 day", "Infinity day",
)  # fmt: skip
ANYTHING: tuple[Any, ...] = (*NUMBERS, *TEXTS, None, True, False, [], {}, [1, 2], {"a": 1}, b"x")


class Hang(Exception):
    """An input took longer than the limit."""


def _of(rng: random.Random, good: tuple[Any, ...], wild: float = 0.01) -> Any:
    return rng.choice(ANYTHING) if rng.random() < wild else rng.choice(good)


def _some(rng: random.Random, likely: float = 0.3, **fields: tuple[Any, ...]) -> dict[str, Any]:
    return {name: _of(rng, good) for name, good in fields.items() if rng.random() < likely}


def fleet_text(rng: random.Random) -> Any:
    """A fleet in one string, mostly well formed."""
    groups = []
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        count = rng.choice((1, 2, 3, 4, 7, 8, 16, 64, 512, 1000, 16384, 100000))
        chip = rng.choice(
            CHIPS[:6]
            if rng.random() < 0.5
            else CHIPS
            if rng.random() < 0.8
            else ("DGX_H100", "DGX_A100", "Meta_16K", "HGX_B200", "nonsense")
        )
        fabric = rng.choice(("",) * 12 + ("@NDR", "@NDR", "@Spectrum_X_400G", "@none", "@"))
        groups.append(f"{count}x{chip}{fabric}" if rng.random() < 0.8 else chip + fabric)
    return " + ".join(groups)


def plan_table(rng: random.Random) -> dict[str, Any]:
    """A plan as plain data: well formed, odd or broken."""
    few, sizes = (1, 2, 4, 8, 16, 64), (1, 2, 3, 8, 31, 64, 512, 2048, 10**6)
    lengths = (1, 128, 1000, 4096, 131072, 10**7)
    odd = rng.random() < 0.25
    """Whether the parts need not belong together."""
    task = rng.choice(("training", "serving", "inference"))
    models = MODELS if odd or task == "inference" else LANGUAGE if task == "serving" else MODELS
    fleet = fleet_text(rng) if odd or rng.random() < 0.3 else f"{rng.choice(few)}x{rng.choice(CHIPS[:8])}"
    if task == "inference" and not odd:
        fleet = rng.choice(CHIPS)
    tables: dict[str, Any] = {
        "workload": {"model": _of(rng, models, 0.02)}
        | _some(
            rng,
            0.2,
            batch_size=sizes,
            seq_len=lengths,
            precision=PRECISIONS,
            tokens=(1, 1e6, 2e12, 1e18),
            optimizer=("adam", "sgd", "adamw", "muon"),
            lora_rank=(8, 64),
            phase=("prefill", "decode", "inference"),
        ),
        "hardware": {"on": fleet}
        | _some(
            rng,
            0.15,
            efficiency=(0.3, 0.5, 1.0, "calibrated", 0.001),
            stack=("meta24", "bridge", "nope"),
            power_cap=("400 W", "1 W"),
            fabric=("NDR", "Ethernet_100G"),
            chip=({"peak_flops": "2 PFLOPs/s"}, {"memory_capacity": "1 TB"}, {"tdp": "1 W", "price": "1 USD"}),
        ),
    }
    if rng.random() < (0.4 if task == "training" or odd else 0.1):
        tables["parallelism"] = _some(
            rng,
            0.15,
            mode=("auto", "given"),
            tp=few,
            pp=(1, 2, 4, 16),
            dp=few,
            ep=(1, 8, 64),
            cp=(1, 2),
            virtual_stages=(1, 2, 5),
            schedule=("1f1b", "gpipe", "interleaved", "dualpipe", "zb"),
            micro_batch=(1, 2, 3),
            zero=(0, 1, 2, 3),
            recompute=("none", "selective", "full"),
            sequence_parallel=(True, False),
            overlap=(True, False),
        )
    if task == "serving" or (odd and rng.random() < 0.3):
        tables["serving"] = _some(
            rng,
            0.25,
            prompt_tokens=lengths,
            output_tokens=lengths,
            **rng.choice(({"concurrency": sizes[:-1]}, {"qps": (0.001, 1.0, 60.0, 1e6)})),
            replicas=few,
            engine=("vllm", "SGLang", "trt-llm"),
            cache_precision=PRECISIONS,
            chunk_tokens=(512, 8192),
            cached_prefix=(0, 100, 10**6),
            draft_model=("Llama3_8B", "Llama3_2_1B"),
            draft_tokens=(1, 4),
            acceptance=(0.0, 0.7, 1.0),
            decode_on=("H200", "8xH100"),
            network=("100 GB/s",),
            memory_fraction=(0.9, 0.1),
            ttft=("500 ms", "1 us"),
            tpot=("30 ms", "1 h"),
            latency=("10 s",),
        )
    if rng.random() < 0.5:
        tables["ops"] = _some(
            rng,
            region=REGIONS,
            **rng.choice(({"duration": ("30 day", "1 s", "100 year")}, {"duration_days": (1, 30)})),
            deadline=("14 day",),
            budget=("1 MUSD",),
            electricity=("0.1 USD/kWh",),
            cloud_price=("2 USD/h", "0 USD/h"),
            checkpoint_time=("10 s", "10 day"),
            mtbf=("10 h", "1 ms"),
        )
    if rng.random() < 0.2:
        metric = rng.choice(("performance.latency", "mfu", "macro.tco", "tokens_per_second", "nope"))
        tables["constraints"] = {"assert": [{"metric": metric, rng.choice(("max", "min")): rng.choice(ANYTHING)}]}
    if rng.random() < 0.8:
        tables["task"] = _of(rng, (task,), 0.02)
    if rng.random() < 0.05:
        tables[rng.choice(("nmae", "hardwar", "x"))] = rng.choice(ANYTHING)
    if rng.random() < 0.03:
        tables[rng.choice(tuple(tables))] = rng.choice(ANYTHING)
    return tables


def not_finite(value: Any, path: str = "") -> Iterator[str]:
    """Paths of what is NaN or infinite in plain data."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from not_finite(item, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from not_finite(item, f"{path}[{index}]")


def broken(answer: Any) -> list[str]:
    """What is inconsistent in an answer: the laws that every answer keeps."""
    document = answer.to_dict()
    json.dumps(document, allow_nan=False)
    found = list(not_finite(document))
    seconds = float(answer.value("latency").to("s").magnitude)
    total = sum(part.value for part in answer.time_parts)
    if not math.isclose(total, seconds, rel_tol=1e-6):
        found.append(f"the parts of the time are {total:g} s of {seconds:g} s")
    if any(part.value < 0 for part in answer.time_parts):
        found.append("a part of the time is negative")
    held = {metric.name: metric for metric in answer.metrics}
    if answer.memory is not None and "memory" in held:
        needed = float(held["memory"].value.to("byte").magnitude)
        if not math.isclose(answer.memory.used, needed, rel_tol=1e-6):
            found.append(f"the parts of memory are {answer.memory.used:g} of {needed:g} bytes")
        if any(part.value < 0 for part in answer.memory.parts):
            found.append("a part of memory is negative")
    for name in ("mfu", "hfu", "goodput", "scaling_efficiency", "bubble"):
        if name in held and not -1e-9 <= held[name].value <= 1 + 1e-9:
            found.append(f"{name} is {held[name].value}")
    for metric in answer.metrics:
        if metric.low is not None and not (
            metric.low <= metric.value and (metric.high is None or metric.value <= metric.high)
        ):
            found.append(f"{metric.name} is outside its interval")
    if len(answer.scorecard) != 22:
        found.append("the scorecard has not 22 walls")
    if not answer.headline or "nan" in " ".join((answer.headline, *answer.verdict)).split():
        found.append("the words hold a NaN")
    return found


# --- kinds of input -----------------------------------------------------------------------------------------------


def try_plan(rng: random.Random) -> None:
    """A plan, evaluated."""
    from mlsysim.plans.evaluate import evaluate

    table = plan_table(rng)
    answer = evaluate(table, change=rng.random() < 0.03)
    problems = broken(answer)
    assert not problems, problems


def try_fleet(rng: random.Random) -> None:
    """A string as a fleet."""
    from mlsysim.systems.fleet_text import parse_fleet

    text = fleet_text(rng) if rng.random() < 0.5 else _mangled(rng, fleet_text(rng))
    groups = parse_fleet(text if rng.random() < 0.95 else rng.choice(ANYTHING))
    assert groups.accelerators >= 1


def try_unit(rng: random.Random) -> None:
    """A string as a quantity."""
    from mlsysim.units.registry import parse_quantity

    number = rng.choice(("1", "-3.5", "1e9", "nan", "1e999", "", "0x10", "1_000", "١", "1e-400", "80"))
    unit = rng.choice(
        ("GB", "GiB/s", "ms", "USD/h", "furlong", "s**-1", "1/s", "", "kg*", "((", "m^2", "GB GB", "°C", "%", "**")
    )
    value = parse_quantity(_mangled(rng, f"{number} {unit}") if rng.random() < 0.5 else f"{number} {unit}")
    assert math.isfinite(value.magnitude)


def try_resolver(rng: random.Random) -> None:
    """A resolver's example with one or two arguments replaced."""
    name = rng.choice(tuple(CALLS))
    kind = resolver(name)
    given = dict(CALLS[name])
    for _ in range(rng.choice((1, 1, 2))):
        argument = rng.choice((*kind.inputs, "no_such_input"))
        given[argument] = rng.choice((*ANYTHING, rng.choice(MODELS), rng.choice(CHIPS), rng.choice(PRECISIONS)))
    if name in ("ParallelismOptimizer", "PlacementOptimizer") and rng.random() < 0.8:
        given["fleet"] = rng.choice(ANYTHING)  # a search for each would leave no time for the others
    result = kind.solve(**given)
    document = result.to_dict()
    problems = list(not_finite(document))
    assert not problems, problems


def _mangled(rng: random.Random, text: str) -> str:
    """A text with some characters changed, dropped, doubled or swapped."""
    letters = list(text)
    for _ in range(rng.randint(1, 4)):
        if not letters:
            break
        place = rng.randrange(len(letters))
        change = rng.random()
        if change < 0.3:
            letters[place] = rng.choice("0123456789xX+@-.,=[]{}\"'#\n \t\\éπ\x00abzAZ")
        elif change < 0.55:
            del letters[place]
        elif change < 0.75:
            letters.insert(place, letters[place])
        else:
            other = rng.randrange(len(letters))
            letters[place], letters[other] = letters[other], letters[place]
    return "".join(letters)


_SCENARIOS = tuple(
    path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "src" / "mlsysim" / "examples" / "scenarios").glob("*.toml"))
)


def plan_text(rng: random.Random) -> tuple[str, str]:
    """A plan file's text and form, mangled."""
    form = rng.choice(("toml", "toml", "json", "yaml"))
    text = rng.choice(_SCENARIOS) if form == "toml" else json.dumps(plan_table(rng), default=str)
    if rng.random() < 0.1:
        text = rng.choice(
            ("[" * 5000, "{" * 5000, "a = " + "[" * 3000, "&a [*a]", "\x00", "- " * 2000, "a: " * 500, "1", '"x"', "[]")
        )
    return (_mangled(rng, text) if rng.random() < 0.9 else text), form


def try_text(rng: random.Random) -> None:
    """A plan file that was damaged."""
    from mlsysim.plans.files import plan_from_text, plan_to_toml

    text, form = plan_text(rng)
    plan = plan_from_text(text, form)
    assert plan_from_text(plan_to_toml(plan)) == plan


def try_config(rng: random.Random) -> None:
    """A model's configuration that was damaged."""
    from mlsysim.importers.hf import read_config

    entry = rng.choice(_configs())
    text = json.dumps(entry["config"])
    if rng.random() < 0.5:
        text = _mangled(rng, text)
    else:
        table = json.loads(text)
        table[rng.choice(tuple(table))] = rng.choice([item for item in ANYTHING if not isinstance(item, bytes)])
        text = json.dumps(table)
    report = read_config(text)
    assert not list(not_finite(report.to_dict()))


_CONFIGS: list[Any] = []


def _configs() -> list[Any]:
    if not _CONFIGS:
        _CONFIGS.extend(json.loads((ROOT / "tests" / "importers" / "configs.json").read_text(encoding="utf-8")))
    return _CONFIGS


_SMALL_FLEETS = ("8xH100", "16xB200", "H100", "A100", "2xTPU_v5p", "8xB200 + 8xH100", "4xRTX_4090")


def command(rng: random.Random, folder: Path) -> list[str]:
    """Arguments of the command line."""
    verb = rng.choice(
        ("eval", "eval", "train", "serve", "serve", "zoo", "walls", "schema", "compare", "explain", "synthesize", "import", "sensitivity",
         "optimize", "audit", "nonsense", "validate", "sweep")
    )  # fmt: skip
    model = _of(rng, MODELS, 0.1)
    chip = _of(rng, (*CHIPS, *_SMALL_FLEETS), 0.1)
    words: list[Any] = [verb]
    if verb == "eval":
        words += [model, chip] if rng.random() < 0.7 else [_file(rng, folder)]
        words += _flags(
            rng, **{"-b": NUMBERS, "-p": PRECISIONS, "-e": (0.5, "calibrated", 2), "-s": NUMBERS, "--region": REGIONS}
        )
    elif verb == "train":
        words += [model, "--on", rng.choice((*_SMALL_FLEETS, chip))]
        words += _flags(
            rng,
            **{
                "-b": (64, 256, *NUMBERS),
                "--layout": (
                    "auto",
                    "tp=2",
                    "tp=2,zero=1",
                    "tp=",
                    "=",
                    "tp=x",
                    "nope=3",
                    "tp=2,tp=4",
                    ",,",
                    "recompute=full",
                ),
                "--tokens": ("2T", "1e9", "x", "-1", "1e99", "nan"),
                "--deadline": ("14 day", "14d", "soon", "-1 day", "1 GB"),
                "--budget": ("5MUSD", "1 kg", "free"),
                "--lora": NUMBERS,
                "--stack": ("meta24", "nope"),
                "-e": (0.5, "calibrated"),
            },
        )
    elif verb == "serve":
        words += [model, chip] if rng.random() < 0.5 else [model, "--on", chip]
        words += _flags(
            rng,
            **{
                "--isl": (1000, *NUMBERS),
                "--osl": (100, *NUMBERS),
                "--qps": (1.0, *NUMBERS),
                "--concurrency": (8, *NUMBERS),
                "--slo": ("ttft=500ms", "ttft=500ms,tpot=30ms", "ttft", "nope=1", "ttft=1kg", "=", "tpot=-1ms"),
                "-p": PRECISIONS,
                "--engine": ("vllm", "trt-llm", "nope"),
                "--prefill-chunk-tokens": NUMBERS,
                "--draft": MODELS,
                "--decode-on": CHIPS,
                "--layout": ("tp=2", "tp=4,replicas=2", "replicas=x", "auto"),
            },
        )
    elif verb == "zoo":
        words += [_of(rng, ("hardware", "models", "systems", "grids", "check"))]
        words += _flags(
            rng,
            **{
                "--sort": ("name", "memory.bandwidth", "nope", "a.b.c"),
                "--filter": ("vendor=NVIDIA", "x", "memory.capacity>=80GB", "memory.capacity>=80kg", "name>>1"),
            },
        )
        words += [_of(rng, (*CHIPS, *REGIONS))] if rng.random() < 0.3 else []
    elif verb == "walls":
        words += [rng.choice((*NUMBERS, *range(1, 23)))]
    elif verb == "schema":
        words += ["--type", _of(rng, ("plan", "hardware", "workload", "ServingModel", "nope"))]
    elif verb in ("compare", "sensitivity", "optimize"):
        words += [_of(rng, ("parallelism", "batching", "placement", "nope"))] if verb == "optimize" else []
        words += [f"{_of(rng, MODELS[:8])}@{_of(rng, _SMALL_FLEETS)}" for _ in range(2 if verb == "compare" else 1)]
        words += _flags(
            rng,
            **{
                "--task": ("training", "serving", "inference", "nope"),
                "--qps": NUMBERS,
                "--carbon-tax": NUMBERS,
                "--sla-ms": NUMBERS,
            },
        )
    elif verb == "explain":
        words += [_of(rng, ("mfu", "latency", "tco", "nope"))]
    elif verb == "synthesize":
        words += [model]
        words += _flags(
            rng,
            **{
                "--latency": ("50 ms", "1 kg", "-1 s"),
                "--on": CHIPS,
                "--tokens": ("1T", "x"),
                "--deadline": ("14 day",),
                "-e": NUMBERS,
            },
        )
    elif verb in ("import", "audit", "validate", "sweep"):
        words += [_file(rng, folder)]
    words += _flags(rng, 0.15, **{"-o": ("json", "csv", "markdown", "text", "html", "nope")})
    if rng.random() < 0.2:
        words.append("--json")
    if rng.random() < 0.05:
        words.insert(rng.randrange(len(words) + 1), rng.choice(TEXTS))
    return [str(word) for word in words]


def _flags(rng: random.Random, likely: float = 0.25, **options: tuple[Any, ...]) -> list[Any]:
    found: list[Any] = []
    for flag, values in options.items():
        if rng.random() < likely:
            found += [flag, _of(rng, values, 0.1)]
    return found


def _file(rng: random.Random, folder: Path) -> str:
    text, form = plan_text(rng)
    if rng.random() < 0.1:
        return rng.choice(("gone.toml", "gone.json", ".", "/", "/dev/null", "gone", "~"))
    path = folder / f"plan.{rng.choice((form, form, form, 'txt'))}"
    path.write_bytes(text.encode("utf-8", "surrogatepass") if rng.random() < 0.97 else b"\xff\xfe\x00")
    return str(path)


def run_command(arguments: list[str]) -> tuple[int, str, str]:
    """A command in this process: exit code, stdout, stderr."""
    from mlsysim.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    kept = sys.argv
    sys.argv = ["mlsysim", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        return code, out.getvalue(), err.getvalue()
    finally:
        sys.argv = kept
    raise AssertionError("main() returned instead of ending the process")


def try_command(rng: random.Random) -> None:
    """A command line, most of them wrong."""
    with tempfile.TemporaryDirectory() as place:
        arguments = command(rng, Path(place))
        code, out, err = run_command(arguments)
    assert code in (0, 1, 2, 3), (code, arguments)
    assert "Traceback" not in err and "Traceback" not in out, arguments
    if code == 1 and arguments[:1] != ["zoo"]:
        assert out == "", (arguments, out[:200])
        assert len(err.strip().splitlines()) == 1 and err.startswith("mlsysim: "), (arguments, err)
    if "--json" in arguments and code != 1 and "--help" not in arguments:
        json.loads(out, parse_constant=lambda word: (_ for _ in ()).throw(AssertionError(word)))


KINDS: dict[str, tuple[Callable[[random.Random], None], float]] = {
    "plan": (try_plan, 0.08),
    "fleet": (try_fleet, 0.1),
    "unit": (try_unit, 0.3),
    "resolver": (try_resolver, 0.15),
    "text": (try_text, 0.2),
    "config": (try_config, 0.165),
    "command": (try_command, 0.005),
}
"""What is tried, and its share."""


def attempt(kind: str, seed: int, index: int) -> str | None:
    """One input; None where it ended well, else what went wrong."""
    rng = random.Random(f"{seed}/{kind}/{index}")

    def alarm(*_: Any) -> None:
        raise Hang(f"longer than {SLOWEST:g} s")

    previous = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, SLOWEST)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            KINDS[kind][0](rng)
    except MLSysError as error:
        message = str(error)
        if not message.strip() or len(message.strip().splitlines()) > 1 or len(message) > 2000:
            return f"the message is not one sentence: {message[:300]!r}"
    except (Exception, Hang):
        return traceback.format_exc(limit=-6)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    return None


def main() -> None:
    """Run, print the rate, and end with 1 where something went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10**6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after this time; 0: never")
    parser.add_argument("--kinds", default=",".join(KINDS))
    chosen = parser.parse_args()
    kinds = [kind.strip() for kind in chosen.kinds.split(",")]
    weights = [KINDS[kind][1] for kind in kinds]
    tried: Counter[str] = Counter()
    failures: dict[str, str] = {}
    failed = 0
    start = shown = time.monotonic()
    for index in range(chosen.first, chosen.first + chosen.count):
        kind = random.Random(f"{chosen.seed}:{index}").choices(kinds, weights)[0]
        problem = attempt(kind, chosen.seed, index)
        tried[kind] += 1
        if problem is not None:
            failed += 1
            last = problem.strip().splitlines()[-1][:160]
            if last not in failures:
                failures[last] = f"--kinds {kind} --seed {chosen.seed} --first {index} --count 1\n{problem}"
                print(f"FAILED {failures[last]}", flush=True)
        now = time.monotonic()
        if now - shown > 10:
            shown, done = now, sum(tried.values())
            print(
                f"{done:,} inputs, {done / (now - start):,.0f} a second, {failed} failed", file=sys.stderr, flush=True
            )
        if chosen.minutes and now - start > 60 * chosen.minutes:
            break
    done = sum(tried.values())
    print(
        f"{done:,} inputs in {time.monotonic() - start:,.0f} s ({dict(tried)}), {failed} failed, {len(failures)} in kind"
    )
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()

"""Nothing on disk can be read through the operations, and nothing is written."""

from __future__ import annotations

import json
import os
import shlex
import sys
import sysconfig
from pathlib import Path

import pytest
from examples_answered import answered, keep

import mlsysim
from mlsysim.api.documents import dump
from mlsysim.api.service import OPERATIONS, call
from mlsysim.plans.resolve import find_model
from mlsysim.zoo.writing import without_files

CANARY = "canary-7d1f"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "_name_or_path": CANARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 128,
}
TRAINING = {
    "task": "training",
    "workload": {"model": "Llama3_8B", "batch_size": 64, "seq_len": 2048, "tokens": 1e9},
    "hardware": {"on": "8xH100"},
    "parallelism": {"tp": 1, "zero": 1},
}
SERVING = OPERATIONS["compare"].examples["two chips"]["first"]
SPACE = OPERATIONS["sweep"].examples["decode on hypothetical chips"]["space"]


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A model file that can be read, a link to it and a link to a system file, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "Llama3_99B").symlink_to(tmp_path / "config.json")
    (tmp_path / "linked.json").symlink_to("/etc/passwd")
    return tmp_path


def spellings(folder):
    here = str(folder)
    return [
        "config.json", "./config.json", f"{here}/config.json", f"{here}/folder", "folder", "folder/", "Llama3_99B", "./Llama3_99B",
        "linked.json", "../../etc/passwd", "../" * 12 + "etc/passwd", "/etc/passwd", "file:///etc/passwd", f"file://{here}/config.json",
        "hf://meta-llama/Llama-9.1-8B", "https://example.com/config.json", "~/.ssh/id_rsa", "$HOME/config.json", "/proc/self/environ",
        "/dev/stdin", "\\\\server\\share\\config.json", "config.json\x00", f"{here}/nothing.json", "Llama3_8B/../config.json",
        "plan.toml", "a.yaml", "m.safetensors", "m.onnx",
    ]  # fmt: skip


def questions(text):
    """The text wherever a request takes a name."""

    def plan(base, part, **fields):
        return {**base, part: {**base.get(part, {}), **fields}}

    serving = plan(SERVING, "serving", draft_model=text, draft_tokens=2, acceptance=0.5)
    return [
        ("evaluate", {"plan": plan(TRAINING, "workload", model=text), "change": False}),
        ("evaluate", {"plan": serving}),
        ("evaluate", {"plan": plan(TRAINING, "hardware", on=text)}),
        ("evaluate", {"plan": {**TRAINING, "hardware": {"name": text}}}),
        ("evaluate", {"plan": plan(TRAINING, "hardware", fabric=text)}),
        ("evaluate", {"plan": plan(TRAINING, "hardware", stack=text[:40])}),
        ("evaluate", {"plan": plan(TRAINING, "ops", region=text)}),
        ("evaluate", {"plan": plan(SERVING, "serving", engine=text[:40])}),
        ("evaluate", {"plan": plan(SERVING, "serving", decode_on=text)}),
        ("train", {"model": text, "on": "8xH100"}),
        ("train", {"model": "Llama3_8B", "on": text}),
        ("train", {"model": "Llama3_8B", "on": "8xH100", "layout": {"tp": 1}, "region": text}),
        ("serve", {"model": text, "on": "H100"}),
        ("serve", {"model": "Llama3_8B", "on": "H100", "draft_model": text, "draft_tokens": 2, "acceptance": 0.5}),
        ("explain", {"plan": plan(TRAINING, "workload", model=text)}),
        ("compare", {"first": TRAINING, "second": plan(TRAINING, "workload", model=text)}),
        ("optimize", {"what": "parallelism", "plan": plan(TRAINING, "workload", model=text)}),
        ("optimize", {"what": "batching", "plan": plan(SERVING, "workload", model=text)}),
        ("optimize", {"what": "placement", "plan": TRAINING, "regions": [text]}),
        ("plan", {"model": "Llama3_8B", "deadline": "30 day", "on": [text]}),
        ("plan", {"model": text, "deadline": "30 day", "on": "H100"}),
        ("review", {"launch": f"vllm serve {shlex.quote(text)} --tensor-parallel-size 8", "on": "8xH100"}),
        ("review", {"launch": "vllm serve x", "model": text, "on": "8xH100"}),
        ("review", {"launch": text, "on": "8xH100"}),
        ("sweep", {"model": text, "on": "8xH100", "task": "training", "over": {"tp": [1]}}),
        ("serve", {"model": "Llama3_8B", "on": "H100", "trace": text, "requests": 10}),
        ("optimize", {"what": "space", "space": plan(SPACE, "fixed", model=text)}),
        ("sweep", {"space": plan(SPACE, "fixed", model=text)}),
        ("sweep", {"space": plan(SPACE, "axes", grid=[text])}),
        ("sweep", {"space": plan(SPACE, "axes", hardware=[text])}),
        ("sweep", {"space": plan(SPACE, "axes", hardware={"zoo": text})}),
        ("sweep", {"space": {**SPACE, "kind": text}}),
        ("export", {"plan": plan(TRAINING, "workload", model=text), "to": "megatron"}),
        ("export", {"plan": TRAINING, "to": text[:60]}),
        ("export", {"plan": TRAINING, "to": "slurm", "command": text[:60]}),
        ("zoo", {"kind": "models", "name": text}),
        ("zoo", {"kind": "hardware", "name": text}),
        ("zoo", {"kind": "models", "sort": text[:100]}),
        ("schema", {"type": text[:60]}),
    ]  # fmt: skip


def test_the_files_could_be_read_by_a_face_that_takes_paths(planted):
    """The test below can fail: without the guard these spellings are models."""
    for text in ("config.json", "folder/", str(planted / "config.json")):
        assert find_model(text).layers == 2
        with without_files(), pytest.raises(ValueError, match="Paths are not read here"):
            find_model(text)
    assert find_model("config.json").layers == 2, "the guard ends with its block"


def test_no_name_is_opened(planted, opened):
    """Every spelling in every place is refused, and no file outside Python and the package is opened meanwhile."""
    for name, document in questions("H100"):
        call(name, document)
    opened.clear()
    for text in spellings(planted):
        for name, document in questions(text):
            reply = call(name, document)
            assert reply.kind in ("input", "unknown_name"), (name, text, reply.document)
            assert CANARY not in json.dumps(reply.document)
            assert "root:" not in json.dumps(reply.document)
    assert opened == []


def test_examples_write_nothing_read_the_package_alone_and_are_answered_twice_alike(tmp_path, monkeypatch, opened):
    monkeypatch.chdir(tmp_path)
    for operation in OPERATIONS.values():
        for words, example in operation.examples.items():
            again = call(operation.name, json.loads(json.dumps(example)))
            assert again.kind is None
            if operation.name in (
                "plan",
                "rl",
            ):  # they take seconds: that they repeat is told by the pages that print them
                keep(operation.name, words, again)
            assert dump(again.document) == dump(answered(operation.name, words).document), (operation.name, words)
    assert opened == []
    assert not any(tmp_path.iterdir())


_ALLOWED = tuple(
    os.path.realpath(path)
    for path in {
        str(Path(mlsysim.__file__).parent), sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(),
        "/usr/share/zoneinfo", "/dev/urandom", "/proc/cpuinfo", "/sys/devices/system/cpu",
    }
)  # fmt: skip
_SEEN: list[str] = []
_WATCHING = [False]


def _watch(event, arguments):
    if not _WATCHING[0] or event not in ("open", "os.listdir", "os.scandir", "subprocess.Popen", "socket.connect"):
        return
    target = arguments[0]
    if isinstance(target, int):
        return
    text = os.fsdecode(target) if isinstance(target, (str, bytes, os.PathLike)) else str(target)
    if event == "os.listdir" and text in sys.path:
        return  # Python looks for a module that a first request imports
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if writes or not os.path.realpath(text.replace("\x00", "")).startswith(_ALLOWED):
        _SEEN.append(f"{event} {text}")


@pytest.fixture
def opened():
    """What Python opens, lists, starts or connects to outside itself and the package while the test runs."""
    if not getattr(sys, "_mlsysim_watched", False):
        sys.addaudithook(_watch)
        sys._mlsysim_watched = True
    _SEEN.clear()
    _WATCHING[0] = True
    yield _SEEN
    _WATCHING[0] = False

"""Models saved in the user's zoo, and checks over what is in it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mlsysim
from mlsysim.errors import InputError
from mlsysim.importers.hf import read_config
from mlsysim.importers.user_zoo import check_user_zoo, save_model
from mlsysim.models.registry import Models
from mlsysim.zoo.store import chosen_folder, user_folder

FACTS = json.loads(Path(__file__).with_name("configs.json").read_text(encoding="utf-8"))
SMALL = next(fact["config"] for fact in FACTS if fact["name"] == "HuggingFaceTB/SmolLM2-135M")


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    folder = tmp_path / "zoo"
    monkeypatch.setenv("MLSYSIM_ZOO", str(folder))
    yield folder
    Models.reload()


# --- saving ---------------------------------------------------------------------------------------------------------------


def test_a_saved_model_is_known_by_its_name(zoo):
    report = read_config(SMALL, "small", source="config.json")
    file = save_model(report, "my-small.v1", checked="2026-01-02")
    assert file == zoo / "models" / "my_small_v1.toml"
    for name in ("my-small.v1", "my_small_v1", "My-Small.V1"):
        assert Models.get(name).parameter_count == report.parameters
    entry = Models.my_small_v1
    assert entry.metadata.kind == "user" and entry.metadata.sources[0].url == "config.json"
    assert entry.metadata.last_verified == "2026-01-02"
    assert Models.user_keys() == ["my_small_v1"]
    profile = mlsysim.Engine.solve(Models["my-small.v1"], mlsysim.Hardware.H100, batch_size=1)
    assert profile.latency.magnitude > 0


def test_every_kind_survives_the_file(zoo):
    """One model of each type, and those with the most fields, come back as they were."""
    kinds = {}
    for fact in FACTS:
        report = read_config(fact["config"], fact["name"])
        key = (type(report.workload).__name__, report.workload.window if hasattr(report.workload, "window") else None)
        kinds.setdefault(key, report)
    assert len(kinds) >= 12
    for number, report in enumerate(kinds.values()):
        save_model(report, f"kind_{number}x")
    for number, report in enumerate(kinds.values()):
        back = Models.get(f"kind_{number}x")
        assert type(back) is type(report.workload)
        own = {"name", "metadata", "vision", "language"}
        left, right = (w.model_dump(exclude=own) for w in (back, report.workload))
        assert left == right
        assert back.name == f"kind_{number}x"
        assert back.parameter_count == report.parameters
    assert check_user_zoo() == []


def test_a_plain_workload_can_be_saved(zoo):
    workload = mlsysim.TransformerWorkload(name='Quote " and \\ slash', parameters=7e9, layers=32)
    save_model(workload, "Mine")
    assert Models.Mine.name == workload.name and Models.Mine.parameter_count == 7e9


@pytest.mark.parametrize("name", ["", "../up", "a b", "9lives", "x" * 65, "a/b", "naïve", "a\n", None, 3])
def test_names_that_are_refused(zoo, name):
    with pytest.raises(InputError, match="cannot be saved: use up to 64 letters"):
        save_model(read_config(SMALL), name)
    assert not zoo.exists()


def test_a_shipped_name_is_never_shadowed(zoo):
    for name in ("Llama3_8B", "llama3-8b", "gpt2"):
        with pytest.raises(InputError, match="comes with mlsysim"):
            save_model(read_config(SMALL), name, replace=True)


def test_a_name_is_taken_once(zoo):
    save_model(read_config(SMALL, "first"), "twice")
    with pytest.raises(InputError, match="named 'twice' already"):
        save_model(read_config(SMALL, "second"), "twice")
    save_model(read_config({**SMALL, "num_hidden_layers": 3}, "second"), "twice", replace=True)
    assert Models.twice.layers == 3 and Models.twice.name == "twice"


def test_what_cannot_be_saved(zoo, monkeypatch, tmp_path):
    with pytest.raises(InputError, match="a workload or a report"):
        save_model("model", "name")  # type: ignore[arg-type]

    class Odd(mlsysim.Workload):
        pass

    with pytest.raises(InputError, match="has no form in the zoo's files"):
        save_model(Odd(name="odd"), "odd_one")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        save_model(read_config(SMALL), "fine_name", folder=tmp_path / "file")
    monkeypatch.setenv("MLSYSIM_ZOO", "")
    with pytest.raises(InputError, match="MLSYSIM_ZOO is set to nothing"):
        save_model(read_config(SMALL), "fine_name")


def test_the_file_is_plain_toml(zoo):
    file = save_model(read_config(SMALL, "small"), "plain")
    table = tomllib.loads(file.read_text(encoding="utf-8"))["plain"]
    assert table["kind"] == "transformer" and table["layers"] == 30 and table["source"]["kind"] == "user"
    assert [path.name for path in file.parent.iterdir()] == ["plain.toml"]


# --- the folder -----------------------------------------------------------------------------------------------------------


def test_the_folder_of_the_configuration(tmp_path, monkeypatch):
    monkeypatch.delenv("MLSYSIM_ZOO", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("APPDATA", str(tmp_path))
    assert user_folder() == "" and chosen_folder() == tmp_path / "mlsysim" / "zoo"
    save_model(read_config(SMALL), "at_home")
    assert user_folder() == str(tmp_path / "mlsysim" / "zoo")
    assert "at_home" in Models
    monkeypatch.setenv("MLSYSIM_ZOO", "")
    assert user_folder() == "" and chosen_folder() is None and "at_home" not in Models


def test_importing_reads_no_folder(tmp_path):
    """A broken entry in the user's zoo is not noticed until somebody asks for a model."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "bad.toml").write_text("[bad]\nkind = 3\n")
    code = (
        "import warnings; warnings.simplefilter('error'); import mlsysim; print('fine'); mlsysim.Models.get('x', None)"
    )
    env = {"PYTHONPATH": str(Path(mlsysim.__file__).parents[1]), "MLSYSIM_ZOO": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "fine" and "DataWarning" in done.stderr


# --- checks ---------------------------------------------------------------------------------------------------------------

CHIP = """
[My_Chip]
name = "My chip"
family = "gpu"
namespace = "Cloud"
tdp = "700 W"
compute = {{headline = "fp16", fp16 = "{peak}"}}
memory = {{capacity = "80 GiB", bandwidth = "3.35 TB/s"}}
source = {{title = "my own", url = "notes.txt", checked = "2026-01-01", kind = "user"}}
"""


@pytest.mark.filterwarnings("ignore::mlsysim.errors.DataWarning")
def test_checks_over_the_users_entries(zoo):
    assert check_user_zoo() == [] or all(problem.check == "readable" for problem in check_user_zoo())
    for folder in ("hardware", "models"):
        (zoo / folder).mkdir(parents=True)
    (zoo / "hardware" / "mine.toml").write_text(CHIP.format(peak="989 TFLOPs/s"))
    assert check_user_zoo() == []
    assert mlsysim.Hardware.My_Chip.name == "My chip"
    (zoo / "hardware" / "mine.toml").write_text(CHIP.format(peak="989 PFLOPs/s"))
    (zoo / "models" / "broken.toml").write_text("[Broken]\nname = 'x'\nlayers = -1\n")
    found = {(problem.registry, problem.key, problem.check) for problem in check_user_zoo()}
    assert ("Hardware", "My_Chip", "within_limits_of_its_class") in found
    assert ("Models", "Broken", "readable") in found
    mlsysim.Hardware.reload()


# --- engines --------------------------------------------------------------------------------------------------------------


def _served(engine):
    return mlsysim.serve("Llama3_8B", on="H100", engine=engine, concurrency=8)


def test_an_engine_of_ones_own_is_a_table(zoo):
    """The page on adding one, as it is written."""
    page = Path(__file__).parents[2].joinpath("docs/howto/add-an-engine.md").read_text(encoding="utf-8")
    (zoo / "engines").mkdir(parents=True)
    (zoo / "engines" / "fast.toml").write_text(page.split("```toml")[1].split("```")[0], encoding="utf-8")
    assert check_user_zoo() == []
    own, like = _served("fast-serve"), _served("vLLM")
    assert "no run of FastServe was fitted" in own.interval and "was fitted" not in like.interval
    wide = [answer.metric("tpot").high / answer.value("tpot") for answer in (own, like)]
    assert wide[0] > wide[1]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("", "a table with the engine that it is like"),
        ("like = 3", "a table with the engine that it is like"),
        ('like = "vLM"', "There is no serving engine named 'vLM'"),
        ('like = "Mine"', "'Mine' is like itself"),
        ('like = "vLLM"\ntoken_budgets = 3', "no field 'token_budgets'"),
        ('like = "vLLM"\nstep = "3 parsec"', "no unit 'parsec'"),
        ("like =", "mine.toml"),
    ],
)
def test_engines_that_cannot_be_are_found(zoo, table, words):
    (zoo / "engines").mkdir(parents=True)
    (zoo / "engines" / "mine.toml").write_text(f"[Mine]\n{table}\n", encoding="utf-8")
    (problem,) = check_user_zoo()
    assert problem.registry == "Engines" and words in problem.sentence
    with pytest.raises(InputError, match=re.escape(problem.sentence)):
        _served("Mine")


def test_an_engine_that_ships_is_not_replaced(zoo):
    (zoo / "engines").mkdir(parents=True)
    (zoo / "engines" / "mine.toml").write_text('[vLLM]\nlike = "SGLang"\n', encoding="utf-8")
    assert "comes with an engine of that name" in check_user_zoo()[0].sentence

"""``mlsysim report``: what it writes, says and returns."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from mlsysim.cli.main import app
from mlsysim.errors import InputError
from mlsysim.plans.files import load_plan, plan_to_toml
from mlsysim.report.write import format_of, write_report

from .reading import SCENARIOS, parsed, report_of

SMALL = str(next(path for path in SCENARIOS if path.stem == "person-detection-doorbell"))


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def invoke(*args: str):
        return CliRunner().invoke(app, ["report", *args])

    return invoke


def test_html_by_default(run, tmp_path):
    result = run(SMALL)
    assert result.exit_code == 0 and "Written to report.html." in result.stdout
    parsed((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "report.html"]


def test_markdown_and_json(run, tmp_path):
    result = run(SMALL, "-o", "plan.md", "--json")
    said = json.loads(result.stdout)
    written = (tmp_path / "plan.md").read_bytes()
    assert said["file"] == "plan.md" and said["format"] == "markdown" and said["bytes"] == len(written)
    assert said["feasible"] is True and written.startswith(b"# One pass of MobileNet v1 0.25 96x96")


def test_a_model_on_a_fleet_that_does_not_fit_is_written_and_returns_2(run, tmp_path):
    result = run("Llama3_70B@1xH100", "-o", "small.html")
    assert result.exit_code == 2
    assert "Does not fit" in (tmp_path / "small.html").read_text(encoding="utf-8")


def test_a_missed_limit_returns_3(run, tmp_path):
    plan = load_plan(SMALL).replacing(constraints={"assert": [{"metric": "throughput", "min": 1e9}]})
    (tmp_path / "plan.toml").write_text(plan_to_toml(plan), encoding="utf-8")
    assert run("plan.toml").exit_code == 3
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("missing.toml",), "cannot be read"),
        ((SMALL, "-o", "report.pdf"), "A report is written as .html or .md, got 'report.pdf'"),
        ((SMALL, "-o", "nowhere/report.html"), "cannot be written: no such file or directory"),
        ((SMALL, "-o", f"{__file__}/report.html"), "cannot be written: not a directory"),
        (("Llama3_70B",), "is a model; on which hardware?"),
    ],
)
def test_bad_input_is_one_sentence(run, args, sentence):
    result = run(*args)
    assert isinstance(result.exception, InputError)
    message = str(result.exception)
    assert sentence in message and "\n" not in message and message.endswith(".")


def test_a_folder_is_no_report(tmp_path):
    (tmp_path / "a.html").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write_report(report_of("person-detection-doorbell"), tmp_path / "a.html")
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]


def test_endings():
    assert [format_of(name) for name in ("a.html", "a.HTM", "a.md")] == ["html", "html", "markdown"]

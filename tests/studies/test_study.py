"""Studies: files to commands, commands to a graph that is run, interrupted and continued."""

import json
import subprocess
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest
import yaml

from pipeline.runtime.errors import UserError
from pipeline.runtime.settings import Settings, read_known_settings, read_settings
from pipeline.stores.manifest import read_manifest
from pipeline.windows.settings import WindowsSettings
from studies import run_study
from studies.orchestration.study import SECTIONS, Job, Study, priorities, rule_names, study_file
from tests.helpers.commands import ROOT, command, run
from tests.helpers.processes import await_sign, kill_family, run_group, started

SMALL = {
    "title": "Small",
    "windows": {
        "train": {"input": "builtin:sums:lines=300", "split": "train"},
        "valid": {"input": "builtin:sums:lines=60", "split": "valid"},
    },
    "language_models": {
        "lm": {"preset": "transf-nano", "train": "train", "valid": "valid", "max_steps": 2, "batch_size": 8}
    },
    "negatives": {
        "mined": {"windows": "train", "generator": "lm", "context_lengths": [5, 8], "engine": "torch", "negatives": 2},
        "held-out": {"windows": "valid", "generator": "lm", "context_lengths": [5, 8], "engine": "torch"},
    },
    "energy_models": {
        "linear": {"preset": "linear-tiny", "train": ["mined"], "valid": ["held-out"], "max_steps": 2, "batch_size": 8}
    },
    "grids": {
        "small": {
            "columns": [{"name": "sums", "stores": ["held-out"]}],
            "rows": [
                {"name": "Linear", "energy": {"sums": "linear"}},
                {"name": "Likelihood", "likelihood": "lm", "valid": ["mined"]},
            ],
        }
    },
}


def saved(folder: Path, content: dict) -> str:
    (folder / "study.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return str(folder / "study.yaml")


def test_entries_become_commands_in_the_order_of_what_they_need(tmp_path):
    study = saved(tmp_path, dict(reversed(SMALL.items())))
    jobs = Study(study, "out").jobs()
    names = [job.name for job in jobs]
    assert set(names) == {
        *("windows/train", "windows/valid", "language_models/lm", "negatives/mined", "negatives/held-out"),
        *("energy_models/linear", "grids/small", "findings", "report"),
    }
    for job in jobs:
        assert all(names.index(needed) < names.index(job.name) for needed in job.needs)
    commands = {job.name: job.shown for job in jobs}
    assert commands["negatives/mined"] == (
        "python pipeline/mine_negatives.py --windows out/windows/train --generator out/models/lm "
        "--context_lengths 5,8 --engine torch --negatives 2 --output out/negatives/mined"
    )
    assert commands["energy_models/linear"].startswith(
        "deepspeed --log_level error training/train_energy.py --preset linear-tiny --train out/negatives/mined"
    )
    assert set(next(job for job in jobs if job.name == "grids/small").needs) == {
        *("energy_models/linear", "language_models/lm", "negatives/mined", "negatives/held-out")
    }


def test_a_grid_names_entries_or_is_a_file_with_paths(tmp_path):
    described = next(job for job in Study(saved(tmp_path, SMALL), "out").jobs() if job.name == "grids/small")
    ((path, text),) = described.reads.items()
    paths = {
        "columns": [{"name": "sums", "stores": ["negatives/held-out"]}],
        "rows": [
            {"name": "Linear", "energy": {"sums": "models/linear"}},
            {"name": "Likelihood", "likelihood": "models/lm", "valid": ["negatives/mined"]},
        ],
    }
    assert yaml.safe_load(text) == paths
    assert path in described.command
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(paths))
    study = saved(tmp_path, SMALL | {"grids": {"small": {"grid": f"{tmp_path}/grid.yaml"}}})
    file = next(job for job in Study(study, "out").jobs() if job.name == "grids/small")
    assert file.needs == described.needs
    assert not file.reads
    changed = SMALL | {"grids": {"small": SMALL["grids"]["small"] | {"title": "Another"}}}
    again = next(job for job in Study(saved(tmp_path, changed), "out").jobs() if job.name == "grids/small")
    assert again.command != described.command  # so that what was done before is done again


VARIABLES = {"CORPUS": "x*.txt", "DATA": "data", "WILD": "wild", "GENERATOR": "gpt2", "ENCODER": "bert"}


@pytest.mark.parametrize("study", sorted(path.name for path in (ROOT / "studies").glob("*.yaml")))
def test_every_command_of_the_studies_that_come_with_the_project_gives_its_stage_settings(study):
    """The stages' own settings read the flags, and refuse values that cannot work."""
    jobs = Study(str(ROOT / "studies" / study), "o", VARIABLES).jobs()
    assert len(jobs) > 5
    for job in jobs:
        place = next(place for place, word in enumerate(job.command) if word.endswith(".py"))
        settings = read_settings(settings_of(job.command[place]), job.command[place + 1 :], None)
        assert settings.output.startswith("o/")


def settings_of(script: str) -> type[Settings]:
    """What a script's stage takes: the function of the script's name; an analysis is called analyse."""
    path = Path(script).resolve().relative_to(ROOT).with_suffix("")
    module = import_module(".".join(path.parts))
    stage = getattr(module, "analyse" if path.parent.name == "analyses" else path.name)
    return next(iter(signature(stage).parameters.values())).annotation


@pytest.mark.slow
def test_a_study_runs_is_killed_continues_and_does_nothing_twice(tmp_path):
    """Killed while it trains; the second run ends, the third starts no job; a changed entry is made anew."""
    study, output = saved(tmp_path, SMALL), tmp_path / "out"
    given = command("studies/run_study.py", "--study", study, "--output", output)
    with started(given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        await_sign(process, (output / "models/lm").exists)
        kill_family(process)
    ended = run_group(given, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert "report.html: written" in ended.stdout
    cells = json.loads((output / "grids/small/grid.json").read_text())["cells"]
    assert all("accuracy" in cell for cell in cells)
    assert (output / "report.html").stat().st_size > 1000
    times = {path: path.stat().st_mtime_ns for path in output.rglob("manifest.json")}
    again = run_group(given, cwd=ROOT)
    assert again.returncode == 0
    assert "9 jobs, 9 of them done before" in again.stdout
    assert "[1 of" not in again.stdout
    assert times == {path: path.stat().st_mtime_ns for path in output.rglob("manifest.json")}
    # The commands can be run alone: one that is done says so.
    line = next(line for line in Study(study, str(output)).jobs() if line.name == "windows/train").command
    alone = run(line[1], *line[2:])
    assert "finished before, nothing to do" in alone.stdout
    # A result that is gone is made again, with what follows from it; a changed entry is asked about by its script.
    changed = dict(SMALL, windows=SMALL["windows"] | {"valid": {"input": "builtin:sums:lines=61", "split": "valid"}})
    jobs = Study(saved(tmp_path, changed), str(output)).jobs()
    left = [job.name for job in run_study.forget_stale(Study(study, str(output)), jobs)]
    assert left == [job.name for job in jobs if job.name not in ("windows/train",)]
    refused = run_group(given, cwd=ROOT)
    assert refused.returncode == 2
    assert "it was made with other settings" in refused.stderr
    assert "windows/valid did not end well" in refused.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("windows:\n  a: {input: x, split: train, colour: red}\n", "line 2: windows.a: "),
        ("windows:\n  a: {input: x}\n", "line 2: windows.a: 'split' is a required property"),
        ("window:\n  a: {input: x, split: train}\n", "line 1: "),
        ("title: nothing\n", "there is nothing to do in it"),
        (
            "windows:\n  a: {input: '${CORPUS}', split: train}\n  b: {input: ${OTHER}, split: x}\n",
            "line 3: say what OTHER",
        ),
        (
            "language_models:\n  a: {train: w, valid: w, init: b}\n  b: {train: w, valid: w, init: a}\n",
            "needs itself",
        ),
    ],
)
def test_what_is_wrong_with_a_study_is_said_with_its_line(text, message, tmp_path):
    (tmp_path / "study.yaml").write_text(text)
    with pytest.raises(UserError) as error:
        Study(str(tmp_path / "study.yaml"), "out", {"CORPUS": "x"}).jobs()
    assert message in str(error.value)


def test_the_schema_knows_every_section():
    study = json.loads((ROOT / "schemas/study.schema.json").read_text())
    assert set(study["properties"]) == {*SECTIONS, "title", "resources"}


def test_a_flag_with_several_values_is_given_several_times(tmp_path):
    content = {"windows": {"both": {"input": ["a.txt", "b.txt"], "split": "train", "deduplicate": True}}}
    (job, *_) = Study(saved(tmp_path, content), "out").jobs()
    assert job.shown == (
        "python pipeline/make_windows.py --input a.txt --input b.txt --split train --deduplicate "
        "--output out/windows/both"
    )


def test_a_study_is_found_by_its_name_also_beside_a_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()  # where its results go
    assert study_file("demo") == str(ROOT / "studies/demo.yaml")


def test_what_is_left_is_judged_by_what_jobs_of_the_kind_took():
    jobs = [Job(name, [], [], "") for name in ("windows/b", "negatives/a", "negatives/b", "grids/a")]
    assert run_study.time_left(jobs, {}, {}, 2) is None
    times = {"windows": [4.0, 8.0], "negatives": [100.0]}
    mean = (4 + 8 + 100) / 3  # for a kind of which none has ended
    assert run_study.time_left(jobs, {}, times, 1) == pytest.approx(6 + 200 + mean)
    assert run_study.time_left(jobs, {"negatives/a": 60.0, "windows/b": 9.0}, times, 2) == pytest.approx(
        (40 + 100 + mean) / 2
    )
    assert run_study.time_left(jobs[1:2], {}, times, 8) == 100  # one job uses one core


@pytest.mark.parametrize(
    "name",
    [
        "x; touch pwned; #",
        "$(touch pwned)",
        "`touch pwned`",
        "a b",
        "../up",
        "a..b",
        "-flag",
        ".hidden",
        "{x}",
        "é",
        "",
    ],
)
def test_a_name_is_a_word_and_nothing_more(tmp_path, name):
    """Names become folders, files and words of commands, of studies that come from strangers too."""
    study = saved(tmp_path, SMALL | {"windows": SMALL["windows"] | {name: SMALL["windows"]["train"]}})
    with pytest.raises(UserError, match=r"cannot be a name: letters, digits|\{x\}"):
        Study(study, str(tmp_path / "output")).jobs()


@pytest.mark.slow
def test_titles_values_and_paths_are_words_whatever_a_shell_or_snakemake_would_read_into_them(tmp_path):
    evil = "$(touch pwned) `touch pwned` ; touch pwned # {0} {output:q} { } 'one' \"two\" é"
    entry = {"input": "builtin:sums:lines=40", "corpus": evil, "split": "train", "shards": 1}
    study = saved(tmp_path, {"title": f"{evil}\n touch pwned\n", "windows": {"w": entry}})
    output = tmp_path / evil.replace("{", "").replace("}", "")
    ended = run("studies/run_study.py", "--study", study, "--output", output.name, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert not list(tmp_path.rglob("pwned"))
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] != ".") == sorted(
        [output.name, "study.yaml"]
    )
    assert {path.name for path in output.iterdir()} >= {"windows", "logs", "findings", "report.html"}
    assert read_manifest(str(output / "windows/w")).settings["corpus"] == evil
    again = run("studies/run_study.py", "--study", study, "--output", output.name, cwd=tmp_path)
    assert "3 jobs, 3 of them done before" in again.stdout


def test_a_value_does_not_pass_for_a_flag(tmp_path):
    entry = {"input": "-x", "split": "train", "deduplicate": "--environment_type=PROCESS", "overwrite": "-y z"}
    (job, *_, report) = Study(saved(tmp_path, {"title": "--input=/etc", "windows": {"w": entry}}), "out").jobs()
    flags = ["--input=-x", "--split", "train", "--deduplicate=--environment_type=PROCESS"]
    assert job.command[2:-2] == [*flags, "--overwrite=-y z"]
    assert report.command[-1] == "--title=--input=/etc"
    with pytest.raises(UserError, match="ignored explicit argument '--environment_type=PROCESS'"):
        read_known_settings(WindowsSettings, job.command[2:], None)


@pytest.mark.parametrize("runner", ["os.abort", "webbrowser.get", "--x", ""])
def test_a_runner_is_one_of_beams_and_no_function_of_any_module(tmp_path, runner):
    entry = {"input": "x", "split": "train", "runner": runner}
    with pytest.raises(UserError, match="is not the name of a runner of Beam's"):
        Study(saved(tmp_path, {"windows": {"w": entry}}), "out").jobs()


@pytest.mark.parametrize("output", ["a{b}", "a\nb", "\x1b[2J"])
def test_an_output_that_snakemake_would_read_into_is_refused(output):
    with pytest.raises(UserError, match="without braces, line breaks and the like"):
        run_study.StudySettings(study="demo", output=output)


def test_no_two_jobs_have_one_rule():
    names = rule_names(["windows/a-b", "windows/a_b", "windows/a+b", "windows/a.b", "windows/a_b_2"])
    assert len(set(names.values())) == 5
    assert all(name.isidentifier() for name in names.values())
    assert names["windows/a-b"] == "windows_a_b"


def test_what_keeps_most_waiting_comes_first():
    needs = {
        "windows/train": [],
        "windows/test": [],
        "negatives/test": ["windows/test"],
        "negatives/train": ["windows/train"],
        "energy_models/unit": ["negatives/train"],
        "grids/all": ["energy_models/unit", "negatives/test"],
    }
    after = priorities([Job(name, [], needed, "") for name, needed in needs.items()])
    assert after == {
        "windows/train": 5 + 10 + 5,
        "windows/test": 5 + 5,
        "negatives/test": 5,
        "negatives/train": 10 + 5,
        "energy_models/unit": 5,
        "grids/all": 0,
    }

"""A run's settings and its output folder."""

import pytest

from pipeline.runtime.errors import UserError
from pipeline.stores.manifest import Record, read_record, write_record
from pipeline.stores.writer import OutputFolder
from training.loop.run import prepare_output, read_run_settings
from training.train_energy import EnergySettings

FLAGS = ["--preset", "linear", "--train", "a,b", "--valid", "c", "--output", "model", "--max_steps", "5"]


def folder(path, **identity: int) -> OutputFolder:
    settings = read_run_settings(EnergySettings, [*FLAGS, "--output", str(path)], None)
    return OutputFolder(str(path), Record.of("training/train_energy.py", settings, identity))


@pytest.mark.parametrize("launcher", [["--local_rank=1"], ["--local_rank", "1"], []])
def test_what_the_launcher_adds_is_no_setting(launcher):
    settings = read_run_settings(EnergySettings, [*launcher, *FLAGS], None)
    assert settings == EnergySettings(preset="linear", train=("a", "b"), valid=("c",), output="model", max_steps=5)
    assert read_run_settings(EnergySettings, settings.to_words(), None) == settings
    with pytest.raises(UserError, match="--global_rank: there is none"):
        read_run_settings(EnergySettings, [*FLAGS, "--global_rank=1"], None)


def test_a_record_gives_the_settings_back(tmp_path):
    write_record(str(tmp_path), folder(tmp_path).record)
    again = read_run_settings(EnergySettings, ["--settings", str(tmp_path / "command.json"), "--seed", "3"], None)
    assert (again.train, again.max_steps, again.seed) == (("a", "b"), 5, 3)


def test_a_folder_is_begun_continued_and_left_alone_when_finished(tmp_path, capsys):
    output = tmp_path / "model"
    assert not prepare_output(folder(output, seed=0), "auto")
    assert read_record(str(output)) == folder(output, seed=0).record
    assert not prepare_output(folder(output, seed=0), "auto")
    with pytest.raises(UserError, match=r"seed 0, now 1\): give the same ones, choose another folder, or start over"):
        prepare_output(folder(output, seed=1), "auto")
    with pytest.raises(UserError, match="--resume must: there is no checkpoint in"):
        prepare_output(folder(output, seed=0), "must")
    (output / "config.json").write_text("{}")
    assert prepare_output(folder(output, seed=0), "auto")
    assert "trained before, nothing to do" in capsys.readouterr().out
    assert not prepare_output(folder(output, seed=1), "never")
    assert read_record(str(output)).settings == {"seed": 1}
    assert not (output / "config.json").exists()


def test_a_folder_of_something_else_is_never_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for resume in ("auto", "never", "must"):
        with pytest.raises(UserError, match=r"there is something else in this folder \(thesis.tex\)"):
            prepare_output(folder(tmp_path, seed=0), resume)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]

"""Checkpoints are whole or absent, whenever whoever writes them is killed."""

import json
import os
import sys
from pathlib import Path

import pytest

from pipeline.runtime.errors import UserError
from tests.helpers.commands import ROOT
from tests.helpers.processes import run_group
from training.loop import checkpoints
from training.loop.checkpoints import Mark


def write_checkpoint(output: Path, step: int, best: int | None = None) -> Mark:
    """A whole one, as far as this module knows."""
    folder = Path(checkpoints.folder_of(str(output), checkpoints.name_of(step)))
    (folder / "parts").mkdir(parents=True)
    (folder / "parts/rank-0.pt").write_bytes(b"weights")
    mark = Mark(step, ranks=1, stage=1, best_step=best, best_value=None if best is None else 3.5)
    checkpoints.finish(str(output), mark)
    return mark


def write_model(folder: str) -> None:
    Path(folder).mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        Path(folder, name).write_text(name)


def names(output: Path) -> list[str]:
    return sorted(os.listdir(output / "checkpoints"))


def kill_within(code: str, output: Path) -> None:
    """Runs code that kills its own process, as a crash at exactly that place would."""
    begin = "import os, signal, sys\nfrom pathlib import Path\nfrom training.loop import checkpoints\n"
    begin += "from tests.training.loop.test_checkpoints import write_model\n"
    begin += "output = sys.argv[1]\ndie = lambda: os.kill(os.getpid(), signal.SIGKILL)\n"
    command = [sys.executable, "-c", begin + code, str(output)]
    ended = run_group(command, cwd=ROOT)
    assert ended.returncode == -9, ended.stderr


def test_the_newest_whole_checkpoint_counts(tmp_path):
    assert checkpoints.newest(str(tmp_path)) is None
    write_checkpoint(tmp_path, 2)
    later = write_checkpoint(tmp_path, 1000, best=400)
    half = tmp_path / "checkpoints/step-002000"
    half.mkdir()
    (half / "rank-0.pt").write_bytes(b"weig")
    assert checkpoints.newest(str(tmp_path)) == later


@pytest.mark.parametrize("content", ["", '{"step": 7, "ran', "[]", '{"step": 7}'])
def test_a_spoiled_mark_is_none(content, tmp_path):
    write_checkpoint(tmp_path, 7)
    (tmp_path / "checkpoints/step-000007/whole.json").write_text(content)
    assert checkpoints.newest(str(tmp_path)) is None


def test_only_the_last_checkpoint_and_the_best_model_that_it_names_are_kept(tmp_path):
    for step in (3, 6):
        checkpoints.save_best(str(tmp_path), step, write_model)
    write_checkpoint(tmp_path, 4, best=3)
    mark = write_checkpoint(tmp_path, 6, best=6)
    checkpoints.keep_only(str(tmp_path), mark)
    assert names(tmp_path) == ["best-000006", "step-000006"]
    checkpoints.keep_only(str(tmp_path), None)
    assert names(tmp_path) == []


def test_a_checkpoint_whose_writer_is_killed_before_its_mark_does_not_count(tmp_path):
    code = "checkpoints.files.put = lambda *_: die()\n"
    code += "folder = Path(checkpoints.folder_of(output, checkpoints.name_of(5)))\nfolder.mkdir(parents=True)\n"
    code += "(folder / 'rank-0.pt').write_bytes(b'weights')\n"
    kill_within(code + "checkpoints.finish(output, checkpoints.Mark(5, 1, 1, None, None))", tmp_path)
    assert names(tmp_path) == ["step-000005"]
    assert checkpoints.newest(str(tmp_path)) is None


def test_a_checkpoint_whose_remover_is_killed_does_not_count(tmp_path):
    write_checkpoint(tmp_path, 5)
    code = "remove = checkpoints.files.remove\n"
    code += "checkpoints.files.remove = lambda *way: remove(*way) if way[-1] == 'whole.json' else die()\n"
    kill_within(code + "checkpoints.discard(output, checkpoints.name_of(5))", tmp_path)
    assert (tmp_path / "checkpoints/step-000005/parts/rank-0.pt").exists()
    assert checkpoints.newest(str(tmp_path)) is None


def test_a_best_model_whose_writer_is_killed_is_written_again(tmp_path):
    code = "def write(folder):\n    write_model(folder)\n    die()\n"
    kill_within(code + "checkpoints.save_best(output, 8, write)", tmp_path)
    assert names(tmp_path) == ["best-000008.tmp"]
    checkpoints.save_best(str(tmp_path), 8, write_model)
    assert names(tmp_path) == ["best-000008"]


def test_a_model_is_finished_only_when_all_of_it_is_there(tmp_path):
    """The publisher is killed as it comes to the configuration, which is last; the next one goes on."""
    checkpoints.save_best(str(tmp_path), 8, write_model)
    code = "replace = os.replace\n"
    code += "os.replace = lambda old, new: die() if new.endswith('config.json') else replace(old, new)\n"
    kill_within(code + "checkpoints.publish_best(output, 8)", tmp_path)
    assert not checkpoints.is_finished(str(tmp_path))
    assert (tmp_path / "model.safetensors").exists()
    checkpoints.publish_best(str(tmp_path), 8)
    assert checkpoints.is_finished(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} > {"config.json", "model.safetensors", "tokenizer.json"}
    checkpoints.start_over(str(tmp_path))
    assert not checkpoints.is_finished(str(tmp_path))


def test_a_mark_says_what_the_trainer_wrote(tmp_path):
    mark = write_checkpoint(tmp_path, 12, best=9)
    content = json.loads((tmp_path / "checkpoints/step-000012/whole.json").read_text())
    assert content == {"step": 12, "ranks": 1, "stage": 1, "best_step": 9, "best_value": 3.5}
    assert checkpoints.newest(str(tmp_path)) == mark


def test_checkpoints_behind_a_link_are_not_removed(tmp_path):
    precious = tmp_path / "precious"
    mark = write_checkpoint(tmp_path / "other", 7)
    (tmp_path / "other/checkpoints").rename(precious)
    (precious / "diary.txt").write_text("mine")
    (tmp_path / "model").mkdir()
    (tmp_path / "model/checkpoints").symlink_to(precious)
    with pytest.raises(UserError, match=r"checkpoints: a link to .*precious, where nothing is removed"):
        checkpoints.keep_only(str(tmp_path / "model"), mark)
    checkpoints.start_over(str(tmp_path / "model"))  # removes the link alone
    assert not (tmp_path / "model/checkpoints").exists()
    assert (precious / "diary.txt").read_text() == "mine"
    assert (precious / "step-000007/whole.json").exists()

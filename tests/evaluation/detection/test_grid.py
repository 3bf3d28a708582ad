"""The parts of a grid: what a cell is tested on, which model a row has there, and whose scores they are."""

import numpy as np
import pytest

from evaluation.detection.accuracy import Rule
from evaluation.detection.grid import Grid, GridData, Scores, at, joined, origin_of_column, read_energies, unpaired
from evaluation.detection.labels import Origin
from pipeline.runtime.errors import UserError
from pipeline.stores.reader import Store


def test_paths_start_at_the_root_unless_they_say_where_they_are():
    assert GridData.of(["a", "/b", "gs://c/d"], "root").stores == ("root/a", "/b", "gs://c/d")
    given = {"real": ["r.jsonl"], "generated": ["g.jsonl"]}
    assert GridData.of(given, "root") == GridData((), ("root/r.jsonl",), ("root/g.jsonl",))
    assert at(".", "model").endswith("model")


def test_a_row_has_one_model_or_one_for_each_column(tmp_path):
    for name in ("m", "b", "w"):
        (tmp_path / name).mkdir()
    root = str(tmp_path)
    grid = Grid(root, "energies")
    assert grid.chosen({"name": "r", "energy": "m"}, "energy", "Books") == f"{root}/m"
    assert grid.chosen({"name": "r", "energy": "gpt2"}, "energy", "Books") == "gpt2"  # not there: a name of the hub
    row = {"name": "r", "energy": {"Books": "b", "Wiki": "w"}, "valid": {"real": ["x"], "generated": ["y"]}}
    assert grid.chosen(row, "energy", "Wiki") == f"{root}/w"
    assert grid.chosen(row, "valid", "Wiki") == row["valid"]  # files, not columns
    with pytest.raises(UserError, match="row r: energy names nothing for the column News"):
        grid.chosen(row, "energy", "News")


def test_scores_of_several_stores_are_those_of_all_their_windows():
    one = unpaired(np.array([1.0, 2.0]), np.array([-1.0]))
    other = Scores(*(np.array(part) for part in ([-3.0], [4.0], ["w"], ["w"], [7], [7])))
    both = joined([one, other])
    assert both.accuracy(Rule(1, 0.0)).real == pytest.approx(2 / 3)
    assert both.accuracy(Rule(1, 0.0), context=7).accuracy == 0
    assert both.accuracy(Rule(-1, 0.0), context=7).accuracy == 1
    assert one.accuracy(Rule(1, 0.0)).windows == 3  # texts that have nothing to do with each other
    assert other.accuracy(Rule(1, 0.0)).windows == 1


def test_texts_are_labelled_by_the_grid_file():
    texts = GridData(real=("r",), generated=("g",))
    assert origin_of_column({"corpus": "web", "architecture": "gpt2"}, texts) == Origin(
        frozenset(["web"]), frozenset(["gpt2"])
    )
    assert origin_of_column({}, texts) == Origin(frozenset(), frozenset())


def test_energies_are_made_once_and_without_a_word(world, tmp_path, capsys):
    grid = Grid(".", str(tmp_path))
    capsys.readouterr()
    made = grid.energies_of(f"{world.folder}/energy", world.samples)
    assert capsys.readouterr().out == ""
    before = (tmp_path / made / "manifest.json").stat().st_mtime_ns
    assert grid.energies_of(f"{world.folder}/energy", world.samples) == made
    assert (tmp_path / made / "manifest.json").stat().st_mtime_ns == before
    scores = read_energies(made)
    assert len(scores.real) + len(scores.generated) == len(Store(made))


def test_what_stands_in_the_way_is_said_in_the_cell(world, tmp_path):
    cell = Grid(".", str(tmp_path)).cell(
        {"name": "Lost", "energy": str(tmp_path / "nowhere")}, {"name": "letters", "stores": [world.samples]}
    )
    assert cell.keys() == {"row", "column", "problem"}
    assert "nowhere" in cell["problem"]

"""Grids: labels from manifests, cells against independent computations, and what stands in their way."""

import json
import shutil
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from sklearn.metrics import balanced_accuracy_score
from transformers import AutoModelForCausalLM

from evaluation import accuracy_grid
from evaluation.detection.tfidf import train_tfidf
from pipeline.models.model_folder import quiet
from pipeline.runtime.errors import UserError
from pipeline.stores.reader import Store
from pipeline.text.builtin_corpora import ALPHABET
from pipeline.text.tokenizer import character_tokenizer
from schemas.results import CELLS
from tests.training.energy.test_inputs import by_hand
from training.energy.folder import open_energy_model
from training.energy.model import EnergyModel
from training.energy.presets import PRESETS
from training.train_energy import describe_store


@pytest.fixture(scope="module")
def energy(negatives, tmp_path_factory) -> str:
    """An untrained energy model that says it was trained on the negatives."""
    folder = tmp_path_factory.mktemp("energy") / "bit"
    encoder = character_tokenizer(ALPHABET)
    torch.manual_seed(0)
    with quiet():
        model = EnergyModel(PRESETS["bit-nano"].build(encoder.description, 14))
        model.config.provenance = {"stores": [describe_store(negatives.train)]}
        model.save_pretrained(folder)
    encoder.save(str(folder))
    return str(folder)


def grid_of(folder: Path, rows: list[dict], columns: list[dict], **rest) -> list[str]:
    (folder / "grid.yaml").write_text(yaml.safe_dump({"rows": rows, "columns": columns} | rest))
    return ["--grid", str(folder / "grid.yaml"), "--output", str(folder / "out")]


def windows_by_hand(store: Store) -> tuple[list[list[int]], list[int]]:
    """All windows of a store, and whether each is real."""
    windows, labels = [], []
    for row in store.take(range(len(store))).to_pylist():
        found = by_hand(tuple(row[name] for name in ("tokens", "direction", "context_length", "negatives")))
        windows += found
        labels += [1] + [0] * (len(found) - 1)
    return windows, labels


@pytest.mark.slow
def test_cells_are_what_a_plain_computation_says(negatives, backwards, generators, energy, tmp_path, capsys):
    """Three rows on a column that mixes both directions, and one on its own."""
    model = {"likelihood": generators["left_to_right"], "valid": [negatives.valid.path]}
    words = {"tfidf": [negatives.valid.path], "valid": [negatives.valid.path]}
    rows = [
        {"name": "BiT", "energy": {"both": energy, "prefixes": energy}},
        {"name": "Likelihood", **model},
        {"name": "TF-IDF", **words},
    ]
    columns = [
        {"name": "both", "stores": [negatives.valid.path, backwards.path]},
        {"name": "prefixes", "stores": [negatives.valid.path], "paper": "Books"},
    ]
    rows[0]["paper"] = "UniT"
    given = grid_of(tmp_path, rows, columns, row_means=True, paper="in_domain", title="Sums")
    assert accuracy_grid.main(given) == 0
    result = json.loads((tmp_path / "out/grid.json").read_text())
    cells = {(cell["row"], cell["column"]): cell for cell in result["cells"]}

    network = open_energy_model(energy).load()
    lm = AutoModelForCausalLM.from_pretrained(generators["left_to_right"]).eval()
    for column, stores in (("both", [negatives.valid, backwards]), ("prefixes", [negatives.valid])):
        windows, labels = (list(chain(*parts)) for parts in zip(*map(windows_by_hand, stores), strict=True))
        with torch.no_grad():
            scores = -network(torch.tensor(windows)).numpy()
        found = cells["BiT", column]
        assert found["accuracy"] == pytest.approx(balanced_accuracy_score(labels, scores > 0))
        assert found["low"] < found["accuracy"] < found["high"]
        assert found["setting"] == ("in-domain" if column == "prefixes" else found["setting"])
        assert set(found["by_context"]) == {"5", "8"}
        weights = [found["by_context"][length]["windows"] for length in ("5", "8")]
        assert sum(weights) >= found["windows"] == 200
    assert cells["BiT", "prefixes"]["paper"] == 0.917
    # The likelihood baseline: sign and threshold are those of the valid store, which is also the test here.
    windows, labels = windows_by_hand(negatives.valid)
    ids = torch.tensor(windows)
    start = torch.full((len(ids), 1), character_tokenizer(ALPHABET).eos_token_id)
    with torch.no_grad():
        logits = lm(torch.cat([start, ids[:, :-1]], 1)).logits.double().log_softmax(-1)
    log_p = logits.gather(2, ids[:, :, None])[:, :, 0].sum(1).numpy()
    best = max(
        balanced_accuracy_score(labels, sign * log_p > sign * threshold)
        for sign in (1, -1)
        for threshold in (log_p + 1e-9)[::7]
    )
    assert cells["Likelihood", "prefixes"]["accuracy"] >= best - 1e-9
    assert cells["Likelihood", "prefixes"]["accuracy"] == pytest.approx(best, abs=0.01)
    # TF-IDF on the decoded windows.
    encoder = character_tokenizer(ALPHABET)

    def texts(store):
        windows, labels = windows_by_hand(store)
        return [" ".join(encoder.decode(window).split()) for window in windows], labels

    baseline = train_tfidf(*texts(negatives.valid), *texts(negatives.valid))
    found = baseline.score(texts(negatives.valid)[0]) > 0
    expected = balanced_accuracy_score(texts(negatives.valid)[1], found)
    assert cells["TF-IDF", "prefixes"]["accuracy"] == pytest.approx(expected, abs=0.02)
    means = result["row_means"]["BiT"]
    assert means == pytest.approx(np.mean([cells["BiT", name]["accuracy"] for name in ("both", "prefixes")]))
    printed = capsys.readouterr().out
    assert "Likelihood on prefixes: the test negatives are the training generator's own" in printed
    assert "91.7%" in printed
    assert {"grid.json", "grid.parquet", "grid.svg", "grid.png"} <= {path.name for path in (tmp_path / "out").iterdir()}
    assert pq.read_schema(tmp_path / "out/grid.parquet").equals(CELLS, check_metadata=True)
    roles = {name: cells[name, "prefixes"]["model"]["role"] for name in ("BiT", "Likelihood", "TF-IDF")}
    assert roles == {"BiT": "energy", "Likelihood": "likelihood", "TF-IDF": "tfidf"}
    assert cells["BiT", "both"]["model"]["kind"] == "bit"
    assert len(cells["BiT", "both"]["energies"]) == 2
    assert "energies" not in cells["TF-IDF", "both"]
    assert cells["BiT", "prefixes"]["tested"]["rules"] == ["temperature"]
    assert (result["paper"], cells["BiT", "prefixes"]["paper_row"]) == ("in_domain", "UniT")
    # A second run scores nothing again.
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/energies").glob("*/shards/*")}
    assert kept
    assert accuracy_grid.main(given) == 0
    assert kept == {path: path.stat().st_mtime_ns for path in (tmp_path / "out/energies").glob("*/shards/*")}


def test_what_cannot_be_filled_is_said_and_the_rest_is_filled(negatives, energy, tmp_path, capsys):
    broken = tmp_path / "broken"
    shutil.copytree(negatives.valid.path, broken)
    next((broken / "shards").iterdir()).unlink()
    rows = [{"name": "good", "energy": energy}, {"name": "gone", "energy": str(tmp_path / "nowhere")}]
    columns = [
        {"name": "sums", "stores": [negatives.valid.path]},
        {"name": "missing", "stores": [str(tmp_path / "nothing")]},
        {"name": "broken", "stores": [str(broken)]},
        {"name": "no texts", "real": [str(tmp_path / "a.jsonl")], "generated": [str(tmp_path / "b.jsonl")]},
    ]
    assert accuracy_grid.main(grid_of(tmp_path, rows, columns)) == 1
    cells = {
        (cell["row"], cell["column"]): cell for cell in json.loads((tmp_path / "out/grid.json").read_text())["cells"]
    }
    assert 0 <= cells["good", "sums"]["accuracy"] <= 1
    assert "nowhere" in cells["gone", "sums"]["problem"]
    assert "not a finished store" in cells["good", "missing"]["problem"]
    assert "shards" in cells["good", "broken"]["problem"]
    assert "a.jsonl: no file matches" in cells["good", "no texts"]["problem"]
    assert "left out   gone on sums" in capsys.readouterr().out


def test_whole_texts_are_a_column_too(energy, tmp_path):
    for name, line in (("real", "111+222=333"), ("generated", "111+222=999")):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": line + str(n)}) + "\n" for n in range(9)))
    columns = [
        {"name": "web", "real": [f"{tmp_path}/real.jsonl"], "generated": [f"{tmp_path}/generated.jsonl"]}
        | {"corpus": "webtext", "architecture": "gpt2-small"}
    ]
    assert accuracy_grid.main(grid_of(tmp_path, [{"name": "BiT", "energy": energy}], columns)) == 0
    (cell,) = json.loads((tmp_path / "out/grid.json").read_text())["cells"]
    assert cell["setting"] == "wild"
    assert cell["windows"] == 18


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows: []\ncolumns: []\n", "line 1: "),
        ("columns:\n  - {name: a, stores: [x]}\nrows:\n  - {name: b, enregy: y}\n", "line 4"),
        ("columns:\n  - {name: a, stores: [x]}\nrows:\n  - {name: b}\n", "line 4"),
        ("columns:\n  - {name: a, stores: [x]}\n  - {name: a, stores: [x]}\nrows:\n  - {name: b, energy: y}\n", "two"),
        ("columns:\n  - name: a\n   stores: [x]\n", "not YAML"),
        ("columns:\n  - name: a\n    name: b\n    stores: [x]\nrows:\n  - {name: b, energy: y}\n", "line 3: name is"),
    ],
)
def test_a_wrong_grid_file_is_refused_with_its_line(text, message, tmp_path):
    (tmp_path / "grid.yaml").write_text(text)
    with pytest.raises(UserError) as error:
        accuracy_grid.main(["--grid", str(tmp_path / "grid.yaml"), "--output", str(tmp_path / "out")])
    assert message in str(error.value)
    assert "grid.yaml" in str(error.value)


def test_a_grid_without_a_single_number_has_the_same_columns(tmp_path):
    description = {"rows": [{"name": "Lost", "energy": "nowhere"}], "columns": [{"name": "c", "stores": ["no"]}]}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(description))
    assert accuracy_grid.main([f"--grid={tmp_path}/grid.yaml", f"--output={tmp_path}/out"]) == 1
    table = pq.read_table(tmp_path / "out/grid.parquet")
    assert table.schema.equals(CELLS, check_metadata=True)
    (cell,) = table.to_pylist()
    assert {name for name, value in cell.items() if value is not None} == {"row", "column", "problem"}

"""What was run on what: tables from manifests and models, and what is said where they are silent."""

from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from evaluation.reporting.blocks import NOTHING, Fold, Gap, Table
from evaluation.reporting.inputs import Result, StudyResults
from evaluation.reporting.runs import (
    corpora,
    energy_models,
    energy_stores,
    generators,
    moment,
    rule_of,
    runs_section,
    sample_stores,
    store_label,
    versions,
    weights_digest,
)


def result(kind: str, name: str = "stores/books", **content: Any) -> Result:
    return Result(kind, name, name, content)


def texts_of(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


WINDOWS = {
    "settings": {"corpus": "books", "split": "test", "window": 160, "stride": 40},
    "counts": {"documents": 1200, "tokens": 96000, "windows": 2400, "rejected": 3},
    "rows": 2400,
    "digest": "0123456789abcdef",
}


def test_a_corpus_has_its_sizes_and_says_how_many_windows_a_limit_left():
    whole, limited = corpora([result("windows", **WINDOWS), result("windows", **WINDOWS | {"rows": 60})]).rows
    assert [cell.text for cell in whole] == [
        *["stores/books", "books, test", "1,200", "96,000", "2,400", "160 tokens, stride 40", "3", "0123456789ab"]
    ]
    assert whole[4].small == ()
    assert (limited[4].text, limited[4].small) == ("60", ("of 2,400",))


def test_a_language_models_facts_are_its_trainers_or_its_architecture_alone():
    provenance = {"preset": "transf-tiny", "corpus": "books", "perplexity": 4.25, "step": 1000, "seed": 0}
    ours = result("language_model", "lm", model_type="gpt2", direction="right_to_left", provenance=provenance)
    table = generators([ours, result("language_model", "hub", model_type="gpt2")], {"lm": "f" * 64}.get)
    assert texts_of(table) == [
        ["lm", "transf-tiny", "books", "right to left", NOTHING, "4.2500", "1,000", "0", "f" * 12],
        ["hub", "gpt2", *[NOTHING] * 7],
    ]


def test_an_energy_model_names_the_stores_that_it_was_trained_on():
    stores = [
        {"corpus": "books", "split": "train", "generator": {"architecture": "conv"}, "sampling": {"rule": "top_k"}}
    ]
    known = {"preset": "bit-tiny", "objective": "balanced", "stores": stores, "accuracy": 0.875, "parameters": 12345}
    ((name, preset, objective, trained, size, accuracy, *_),) = texts_of(
        energy_models([result("energy_model", "e", provenance=known)], lambda path: None)
    )
    assert (name, preset, objective, size, accuracy) == ("e", "bit-tiny", "balanced", "12,345", "87.50\u00a0%")
    assert trained == "books train (conv top_k)"
    assert store_label({}) == "?"


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        ({"rule": "top_k", "top_k": 10, "top_p": 0.5}, "top_k 10"),
        ({"rule": "nucleus", "top_k": 10, "top_p": 0.9}, "nucleus 0.9"),
        ({"rule": "temperature", "temperature": 1.0}, "temperature"),
        ({"rule": "top_k"}, "top_k"),
        ({}, ""),
    ],
)
def test_a_rule_has_the_number_that_it_depends_on(sampling, said):
    assert rule_of(sampling) == said


def test_many_lengths_of_context_are_a_range_and_few_a_list():
    def lengths(given: list[int]) -> str:
        content = {"settings": {"context_lengths": given}, "sampling": None, "generator": None, "rows": 1}
        return texts_of(sample_stores([result("negatives", **content)]))[0][6]

    assert [lengths(given) for given in ([120, 140], [0, 40, 80, 120], [])] == ["120, 140", "0 to 120", NOTHING]


def test_energies_name_the_end_of_their_parents_path():
    content = {"settings": {"energy": {"kind": "linear"}}, "parent": {"path": "/a/b/stores/test/"}, "rows": 7}
    assert texts_of(energy_stores([result("energies", "e", **content)])) == [
        ["e", "linear", "stores/test", "7", NOTHING]
    ]


def test_versions_of_all_results_are_gathered_each_once():
    made = [("2026-11-16T11:26:07+00:00", "2.0"), ("2026-11-15T09:00:00+00:00", "2.0"), ("2026-11-17T00:00:00", "2.1")]
    stores = [
        result("windows", created=created, code_version="0.1", versions={"torch": torch}, machine="m")
        for created, torch in made
    ]
    table = versions(
        StudyResults([*stores, result("energy_model", provenance={"code_version": "0.2"}), result("grid")])
    )
    assert dict(texts_of(table)) == {
        "Stores were made": "2026-11-15 09:00 UTC to 2026-11-17 00:00",
        "Code": "0.1, 0.2",
        "torch": "2.0, 2.1",
        "Machine": "m",
    }
    assert table.notes == ["Found: 3 stores, 1 model, 1 result."]
    assert moment("2026-11-16T11:26:07+00:00") == "2026-11-16 11:26 UTC"


def test_what_is_not_there_is_named_with_its_command_and_all_tables_are_folded():
    many = [result("windows", f"stores/{number}", **WINDOWS) for number in range(3)]
    fold, *gaps, last = runs_section(StudyResults(many)).blocks
    assert isinstance(fold, Fold)
    assert fold.summary == "Corpora (3)"
    assert all(isinstance(gap, Gap) for gap in gaps)
    assert [gap.commands[0].split()[1] for gap in gaps] == [
        *["training/train_lm.py", "training/train_energy.py", "pipeline/mine_negatives.py", "evaluation/score.py"]
    ]
    assert isinstance(last, Fold)


def test_a_models_digest_is_of_its_weights_and_none_where_there_are_none(tmp_path):
    folders = [tmp_path / name for name in ("one", "same", "other", "empty")]
    for folder, value in zip(folders, (1, 1, 2, None), strict=True):
        folder.mkdir()
        if value is not None:
            save_file({"w": np.array([value], np.float32)}, folder / "model.safetensors")
    one, same, other, empty = (weights_digest(str(folder)) for folder in folders)
    assert one is not None
    assert len(one) == 64
    assert one == same != other
    assert empty is None
    assert weights_digest("gs://bucket/model") is None  # not fetched

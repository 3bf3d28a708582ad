"""To the hub and back, against a stand-in for it: models and stores by name, through the project's own commands."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard

from evaluation import push_to_hub, score
from pipeline import export_pairs, make_windows, mine_negatives, verify_store
from pipeline.models.conv_lm import ConvConfig, ConvLM
from pipeline.models.file_digests import write_digests
from pipeline.models.model_folder import open_model_folder
from pipeline.runtime.errors import UserError
from pipeline.runtime.hub_upload import forget_listings
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import load_tokenizer
from tests.helpers.commands import ROOT, words
from tests.helpers.hub import TOKEN, hub_here, talking_to
from tests.helpers.mining import save_generator
from tests.helpers.pretrained import untrained
from training.energy.classifier import save_classifier
from training.energy.folder import open_energy_model
from training.energy.model import EnergyModel
from training.energy.presets import PRESETS

SMALL = {"embedding_size": 8, "hidden_size": 8, "layers": 1}  # of a network of convolutions
PROVENANCE = {"preset": "transf-nano", "corpus": "words", "seed": 7, "step": 100, "init": None, "perplexity": 4.25}


class Folders:
    """A language model, an energy model, and windows, negatives and energies, all small, and where they lie."""

    def __init__(self, folder: Path, tokenizer: str):
        self.folder = folder
        encoder = load_tokenizer(tokenizer)
        (folder / "text.txt").write_text(words(900, 0))
        given = f"--input {folder}/text.txt --corpus words --split test --tokenizer {tokenizer} --window 24 --stride 24"
        make_windows.main(f"{given} --shards 3 --output {folder}/windows".split())
        encoder.save(save_generator(folder / "lm", vocab_size=encoder.vocabulary_size, n_positions=64))
        EnergyModel(PRESETS["linear"].build(encoder.description, 25)).save_pretrained(folder / "energy")
        encoder.save(str(folder / "energy"))
        self.windows, self.negatives, self.energies = (
            f"{folder}/{name}" for name in ("windows", "negatives", "energies")
        )
        given = f"--windows {self.windows} --generator {folder}/lm --engine torch --negatives 2 --context_lengths 12"
        mine_negatives.main(f"{given} --output {self.negatives}".split())
        score.main(f"--energy {folder}/energy --store {self.negatives} --output {self.energies}".split())
        stores = [{"digest": Store(self.negatives).manifest.digest, "corpus": "words", "sampling": {"rule": "top_k"}}]
        for name, known in (("lm", PROVENANCE), ("energy", {"preset": "linear", "stores": stores})):
            config = folder / name / "config.json"
            config.write_text(json.dumps(json.loads(config.read_text()) | {"provenance": known}))
            write_digests(str(folder / name))

    def push(self, name: str, *flags: str) -> str:
        """Sends a folder as user/FOLDER, and gives that name."""
        push_to_hub.main([str(self.folder / name), "--repo", f"user/{name}", *flags])
        return f"user/{name}"


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tokenizer):
    return Folders(tmp_path_factory.mktemp("pushed"), tokenizer)


@pytest.fixture
def hub(tmp_path):
    with hub_here() as hub, talking_to(hub, tmp_path) as hub.environment:
        yield hub


def head_of(page: bytes | str) -> dict:
    text = page if isinstance(page, str) else page.decode()
    return yaml.safe_load(text.split("---\n")[1])


def test_models_come_back_by_their_names_with_the_same_weights(hub, folders):
    for name, preset in (("lm", "transf-nano"), ("energy", "linear")):
        there, here = open_model_folder(folders.push(name)), open_model_folder(str(folders.folder / name))
        assert there.weights_digest == here.weights_digest
        assert there.tokenizer_digest == here.tokenizer_digest
        assert there.provenance["preset"] == preset
        there.check_weights()
    assert not [name for name in hub.of("user/lm").files if name.endswith((".bin", "command.json"))]


@pytest.mark.parametrize("kind", ["windows", "negatives", "energies"])
def test_stores_come_back_with_every_row_and_are_verified_there(hub, folders, kind, capsys):
    place = f"hf://datasets/{folders.push(kind)}"
    here, there = Store(str(folders.folder / kind)), Store(place)
    assert there.manifest.digest == here.manifest.digest
    assert list(there.batches()) == list(here.batches())
    assert there.take([5, 0, 3]) == here.take([5, 0, 3])
    capsys.readouterr()
    assert verify_store.main([place]) == 0
    assert capsys.readouterr().out.startswith(f"{place}: 3 shards")


def test_negatives_of_windows_models_and_stores_by_name_are_those_of_folders(hub, folders, tmp_path):
    for name in ("windows", "lm", "energy", "negatives"):
        folders.push(name)
    given = "--windows hf://datasets/user/windows --generator user/lm --engine torch --negatives 2 --context_lengths 12"
    mine_negatives.main([*given.split(), "--output", str(tmp_path / "negatives")])
    assert Store(str(tmp_path / "negatives")).manifest.digest == Store(folders.negatives).manifest.digest
    given = "--energy hf://user/energy --store hf://datasets/user/negatives"
    score.main([*given.split(), "--output", str(tmp_path / "energies")])
    assert Store(str(tmp_path / "energies")).manifest.digest == Store(folders.energies).manifest.digest


def test_damage_on_the_hub_is_named(hub, folders, capsys):
    place = f"hf://datasets/{folders.push('negatives')}"
    files = hub.of("user/negatives", "dataset").files
    name = next(name for name in files if name.startswith("shards/00001"))
    files[name] = files[name][:-1] + b"x"
    assert verify_store.main([place]) == 1
    assert f"{place}/{name}: its bytes have changed" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"--repair: hf://.* is on the hub: repair the folder that was sent"):
        verify_store.main([place, "--repair", "--trust"])


def test_what_is_damaged_here_is_not_sent(hub, folders, tmp_path):
    for name, file in (("energy", "model.safetensors"), ("negatives", "shards/00000-*.parquet")):
        shutil.copytree(folders.folder / name, tmp_path / name)
        (path,) = (tmp_path / name).glob(file)
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        with pytest.raises(UserError, match=re.escape(path.name)):
            push_to_hub.main([str(tmp_path / name), "--repo", "user/damaged"])
    assert hub.repositories == {}


def test_a_newer_store_leaves_no_shard_of_the_older_one(hub, folders, tmp_path):
    folders.push("negatives")
    shutil.copytree(folders.windows, tmp_path / "negatives")
    push_to_hub.main([str(tmp_path / "negatives"), "--repo", "user/negatives"])
    there = Store("hf://datasets/user/negatives", kind="windows")
    shards = {name for name in hub.of("user/negatives", "dataset").files if name.startswith("shards/")}
    assert shards == {shard.file for shard in there.manifest.shards}


def test_a_pushed_store_is_a_data_set(hub, folders, tmp_path):
    name = folders.push("negatives")
    rows = datasets.load_dataset(name, split="test", cache_dir=str(tmp_path / "cache"))
    store = Store(folders.negatives)
    assert rows.column_names == store.schema.names
    assert rows[3]["negatives"] == [tokens.tolist() for tokens in map(np.asarray, store[3]["negatives"])]
    assert len(rows) == len(store)
    # The same from a folder in the hub's form.
    for path, data in hub.of(name, "dataset").files.items():
        (tmp_path / "folder" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / path).write_bytes(data)
    local = datasets.load_dataset(str(tmp_path / "folder"), split="test", cache_dir=str(tmp_path / "cache"))
    assert local.to_dict() == rows.to_dict()


def test_a_dry_run_shows_the_page_and_the_files_and_asks_nobody(hub, folders, tmp_path, capsys):
    folders.push("negatives", "--dry_run", "--card", str(tmp_path / "card.md"))
    said = capsys.readouterr().out
    assert (tmp_path / "card.md").read_text() in said
    assert "bytes  shards/00002-" in said
    assert hub.asked == []


def test_pages_say_what_the_files_say(hub, folders):
    folders.push("lm", "--license", "mit", "--private")
    there = hub.of("user/lm")
    assert there.private
    page = there.files["README.md"].decode()
    assert head_of(page) == {
        "license": "mit",
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["residual-ebm", "language-model"],
    }
    assert "| perplexity on the validation windows, as the training counted it | 4.25 |" in page
    assert ModelCard(page).data.license == "mit"
    folders.push("energies")
    page = hub.of("user/energies", "dataset").files["README.md"].decode()
    assert head_of(page)["configs"][0]["data_files"] == [{"split": "test", "path": "shards/*.parquet"}]
    assert Store(folders.energies).manifest.digest in page
    assert str(folders.folder) not in page  # where it lay here


def test_origins_are_named_only_if_their_digests_are_the_recorded_ones(hub, folders, tmp_path):
    for name in ("lm", "windows", "negatives"):
        folders.push(name)
    config = json.loads((folders.folder / "lm/config.json").read_text())
    digest = open_model_folder(str(folders.folder / "lm")).weights_digest
    shutil.copytree(folders.folder / "lm", tmp_path / "tuned")
    (tmp_path / "tuned/digests.json").unlink()
    known = {"init": digest, "train": Store(folders.windows).manifest.digest}
    (tmp_path / "tuned/config.json").write_text(json.dumps(config | {"provenance": PROVENANCE | known}))
    given = [str(tmp_path / "tuned"), "--repo", "user/tuned"]
    push_to_hub.main([*given, "--base_model", "user/lm", "--dataset", "user/windows"])
    head = head_of(hub.of("user/tuned").files["README.md"])
    assert (head["base_model"], head["datasets"]) == ("user/lm", ["user/windows"])
    with pytest.raises(UserError, match=r"--dataset user/negatives: a store with the digest"):
        push_to_hub.main([*given, "--dataset", "user/negatives"])
    with pytest.raises(UserError, match=r"--base_model user/lm: .* does not say that it started from other weights"):
        folders.push("lm", "--base_model", "user/lm")
    folders.push("negatives", "--dataset", "user/windows")
    assert head_of(hub.of("user/negatives", "dataset").files["README.md"])["source_datasets"] == ["user/windows"]


def test_tokens_are_written_nowhere(hub, folders, tmp_path, capsys):
    folders.push("lm")
    folders.push("windows")
    given = "--windows hf://datasets/user/windows --generator user/lm --engine torch --context_lengths 12"
    mine_negatives.main([*given.split(), "--output", str(tmp_path / "made")])
    push_to_hub.main([str(tmp_path / "made"), "--repo", "user/made", "--private", "--card", str(tmp_path / "card.md")])
    said = capsys.readouterr()
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    sent = [data for one in hub.repositories.values() for files in one.commits.values() for data in files.values()]
    assert len(written) > 20  # the hub's cache of models is among them
    assert not [data for data in (*written, *sent, said.out.encode(), said.err.encode()) if TOKEN.encode() in data]
    assert TOKEN in {token for *_, token in hub.asked}


def test_what_is_wrong_is_one_line(hub, folders):
    for flags, said in (
        (["--license", "none-such"], "user/lm: the hub refuses this .*license none-such is none of ours"),
        (["--license", "mit\n---\n# Trusted"], "--license .*: one of the hub's names is needed"),
        (["--repo", "lm"], "^lm: not a name of the hub: it is user/name"),
        (["--metrics", f"{folders.windows}/manifest.json"], "--metrics .*: neither grid.json nor bounds.json"),
    ):
        with pytest.raises(UserError, match=said):
            folders.push("lm", *flags)
    with pytest.raises(UserError, match="there is no such folder: check the path"):
        folders.push("nothing")
    with pytest.raises(UserError, match=r"^user/none: neither a model's .* \(the hub has no such repository"):
        open_energy_model("user/none")
    folders.push("lm")
    with pytest.raises(UserError, match=r"^user/lm@old: .* \(the repository has no such revision"):
        open_model_folder("user/lm@old")


def test_an_export_is_one_commit_beside_other_splits(hub, folders, tmp_path):
    output = "hf://datasets/user/pairs"
    export_pairs.main([folders.negatives, "--output", output])
    export_pairs.main([folders.negatives, "--output", output, "--split", "more"])
    there = hub.of("user/pairs", "dataset")
    assert len(there.commits) == 3  # the repository's own, and one for each split
    export_pairs.main([folders.negatives, "--output", str(tmp_path / "pairs")])
    for path in (tmp_path / "pairs/data").iterdir():
        assert there.files[f"data/{path.name}"] == path.read_bytes()
    assert [one["split"] for one in head_of(there.files["README.md"])["configs"][0]["data_files"]] == ["more", "test"]
    rows = datasets.load_dataset("user/pairs", split="more", cache_dir=str(tmp_path / "cache"))
    assert len(rows) == 2 * len(Store(folders.negatives))
    with pytest.raises(UserError, match=r"^--output hf://datasets/user/pairs: its split test was exported"):
        export_pairs.main([folders.negatives, "--output", output, "--format", "list"])
    export_pairs.main(
        [folders.negatives, "--output", output, "--format", "list", "--overwrite", "--file_format", "jsonl"]
    )
    assert {name.rpartition(".")[2] for name in there.files if name.startswith("data/test-")} == {"jsonl"}


def test_a_refused_export_remembers_nothing_of_the_repository(hub, folders):
    given = [folders.negatives, "--output", "hf://datasets/user/pairs"]
    export_pairs.main([*given, "--format", "triplet"])
    with pytest.raises(UserError, match="its split test was exported from another store or with other settings"):
        export_pairs.main([*given, "--format", "list"])
    del hub.repositories["dataset", "user/pairs"]
    forget_listings()  # as a program does that is started again
    export_pairs.main([*given, "--format", "list"])
    assert "data/test-00000-of-00003.parquet" in hub.of("user/pairs", "dataset").files


def test_an_export_that_was_cut_off_sends_the_rest(hub, folders):
    hub.fails = 1
    given = [folders.negatives, "--output", "hf://datasets/user/pairs"]
    with pytest.raises(UserError, match="user/pairs: the hub answers with 400"):
        export_pairs.main(given)
    assert sorted(hub.of("user/pairs", "dataset").files) == [".gitattributes"]
    export_pairs.main(given)
    assert len([name for name in hub.of("user/pairs", "dataset").files if name.startswith("data/")]) == 3


def test_the_lines_on_the_pages_run(hub, folders, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    kinds = {"lm": "model", "energy": "model", "negatives": "dataset"}
    pages = [hub.of(folders.push(name), kind).files["README.md"].decode() for name, kind in kinds.items()]
    capsys.readouterr()
    known: dict[str, Any] = {}
    for page in pages:
        (lines,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        exec(lines, known)
    assert len(capsys.readouterr().out.splitlines()) >= 3  # what the language model writes, and two scores
    assert len(known["rows"]) == len(Store(folders.negatives))
    assert known["row"]["window_id"] == known["rows"][0]["window_id"]


def test_a_model_that_reads_backwards_is_used_as_it_is_meant(hub, folders, capsys):
    encoder = load_tokenizer(folders.windows)
    model = save_generator(folders.folder / "back", "right_to_left", vocab_size=encoder.vocabulary_size, n_positions=64)
    encoder.save(model)
    page = hub.of(folders.push("back")).files["README.md"].decode()
    assert "pipeline_tag" not in head_of(page)
    assert "which reads text from right to left" in page
    capsys.readouterr()
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], {})
    assert capsys.readouterr().out


def test_a_model_of_our_own_kind_comes_back_whole_and_runs_nothing_that_came_with_it(hub, folders, capsys):
    encoder, folder = load_tokenizer(folders.windows), folders.folder / "conv"
    ConvLM(ConvConfig(vocab_size=encoder.vocabulary_size, **SMALL)).save_pretrained(folder)
    encoder.save(str(folder))
    write_digests(str(folder))
    page = hub.of(folders.push("conv")).files["README.md"].decode()
    assert head_of(page)["library_name"] == "residual-ebm"
    (program,) = (name for name in hub.of("user/conv").files if name.endswith(".py"))  # for users of plain transformers
    assert program in json.loads(hub.of("user/conv").files["digests.json"])
    capsys.readouterr()
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], {})
    assert capsys.readouterr().out
    assert not [name for name in sys.modules if name.startswith("transformers_modules")]


def test_the_command_takes_the_endpoint_and_the_token_from_the_environment(hub, folders):
    script = [sys.executable, str(ROOT / "evaluation/push_to_hub.py"), folders.energies, "--repo", "user/energies"]
    ended = subprocess.run(script, capture_output=True, text=True, env=os.environ | hub.environment, cwd="/")
    assert ended.returncode == 0, ended.stderr
    assert "read it as hf://datasets/user/energies" in ended.stdout
    assert TOKEN not in ended.stdout + ended.stderr
    ended = subprocess.run(
        script, capture_output=True, text=True, cwd="/", env=os.environ | hub.environment | {"HF_TOKEN": ""}
    )
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
    assert ended.stderr.startswith("error: user/energies: no token of the hub is known")


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_classifier_is_for_people_who_have_transformers_alone(hub, folders, tmp_path, kind, capsys):
    encoder = load_tokenizer(folders.windows)
    network, first, _ = untrained(kind, encoder, tmp_path)
    save_classifier(network, str(tmp_path / "model"), network.state_dict(), {"preset": kind}, encoder, first.own)
    write_digests(str(tmp_path / "model"))
    push_to_hub.main([str(tmp_path / "model"), "--repo", "user/detector"])
    page = hub.of("user/detector", "model").files["README.md"].decode()
    assert head_of(page)["pipeline_tag"] == "text-classification"
    assert head_of(page)["library_name"] == "transformers"
    capsys.readouterr()
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], {})
    assert "'label': 'REAL'" in capsys.readouterr().out
    assert open_energy_model("user/detector").tokenizer_digest == encoder.digest

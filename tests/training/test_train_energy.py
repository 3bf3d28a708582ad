import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.nn import functional as F
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
)

from pipeline import import_texts, make_windows
from pipeline.runtime.errors import UserError
from pipeline.stores.reader import Store
from pipeline.text.builtin_corpora import ALPHABET
from pipeline.text.tokenizer import character_tokenizer, load_tokenizer
from tests.helpers.commands import ROOT, Stores
from tests.helpers.processes import run_group
from tests.helpers.stores import shard_path
from tests.helpers.trainings import kill_at_step, losses, train, train_command
from tests.training.conftest import mined
from tests.training.energy.test_inputs import by_hand
from training import train_energy
from training.data.order import rows_at
from training.energy.folder import open_energy_model
from training.energy.inputs import completed
from training.energy.model import EnergyModel
from training.energy.presets import PRESETS

pytestmark = pytest.mark.slow

SUMS = {"vocabulary_size": 14, "eos_token_id": 13}


def train_one(stores, output: Path, flags: str = "", **options: int):
    return train(stores, output, flags, script="train_energy", **options)


@pytest.fixture(scope="module")
def undisturbed(negatives, tmp_path_factory) -> Path:
    """A model trained on one rank without ZeRO, never killed, on one negative of three."""
    output = tmp_path_factory.mktemp("undisturbed") / "model"
    ended = train_one(negatives, output, "--validate_every 5", stage=0)
    assert ended.returncode == 0, ended.stderr
    assert "0.00% of the positions" in ended.stdout
    return output


def windows_of(rows: pa.Table) -> torch.Tensor:
    """(rows, 1 + negatives, length), by hand."""
    names = ("tokens", "direction", "context_length", "negatives")
    found = [by_hand(tuple(row[name] for name in names)) for row in rows.to_pylist()]
    return torch.tensor(found)


def plain_loop(windows: Callable[[np.ndarray], torch.Tensor], seed: int = 0) -> list[float]:
    """The same training in a few lines of plain PyTorch: whole batches, one process, no DeepSpeed.

    `windows` gives those at some places of the training's order, real ones first.
    """
    torch.manual_seed(seed)
    model = EnergyModel(PRESETS["bit-nano"].build(SUMS, 14))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    found = []
    for step in range(20):
        ids = windows(np.arange(step * 24, step * 24 + 24))
        scores = -model(ids.flatten(0, 1)).view(24, -1)
        real, fake = torch.ones(24), torch.zeros(24, scores.shape[1] - 1)
        bce = F.binary_cross_entropy_with_logits
        loss = (bce(scores[:, 0], real) + bce(scores[:, 1:], fake)) / 2
        warm = (step + 1) / 2 if step < 2 else 0.5 * (1 + np.cos(np.pi * (step - 2) / 18))
        for group in optimiser.param_groups:
            group["lr"] = 1e-3 * warm
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        found.append(loss.item())
    return found


def test_the_losses_are_those_of_a_plain_loop(negatives, undisturbed):
    expected = plain_loop(
        lambda places: windows_of(negatives.train.take(rows_at(int(places[0]), int(places[-1]) + 1, 3000, 0)))
    )
    assert losses(undisturbed) == pytest.approx(expected, abs=1e-5)
    assert expected[-1] < expected[0] - 0.05  # it learns


@torch.no_grad()
def test_the_folder_distinguishes_real_from_generated_as_well_as_it_says(negatives, undisturbed):
    model = AutoModel.from_pretrained(undisturbed).eval()
    rows = negatives.valid.take(range(200))
    found = model(windows_of(rows).flatten(0, 1)).view(200, 4)
    positive, sampled = found[:, 0], found[:, 1:]
    right = ((positive < 0).double() + (sampled >= 0).double().mean(1)) / 2
    said = open_energy_model(str(undisturbed)).provenance
    assert right.mean().item() == pytest.approx(said["accuracy"], abs=1e-9)
    lengths = torch.tensor(rows["context_length"].to_pylist())
    for length in (5, 8):
        assert right[lengths == length].mean().item() == pytest.approx(said[f"accuracy_{length}"], abs=1e-9)
    assert (positive[:, None] < sampled).double().mean().item() == pytest.approx(said["ranked"], abs=1e-9)
    loss = (F.softplus(positive) + F.softplus(-sampled).mean(1)).mean().item() / 2
    assert loss == pytest.approx(said["loss"], abs=1e-6)
    assert said["accuracy"] > 0.6
    assert (found[:, 0].mean() < found[:, 1:].mean()).item()  # real text has low energy


def test_the_folder_knows_where_it_comes_from(negatives, undisturbed):
    folder = open_energy_model(str(undisturbed))
    facts = {"preset": "bit-nano", "objective": "balanced", "negatives": 3, "seed": 0}
    assert facts.items() <= folder.provenance.items()
    (store,) = folder.provenance["stores"]
    assert store["digest"] == negatives.train.manifest.digest
    assert (store["corpus"], store["split"], store["context_lengths"]) == ("sums", "train", [5, 8])
    assert store["generator"]["training_seed"] == 0
    assert store["sampling"]["rule"] == "temperature"
    assert folder.tokenizer_digest == negatives.train.manifest.tokenizer["digest"]
    curves = {path.name for path in (undisturbed / "logs/csv").iterdir()}
    assert {"valid_loss.csv", "valid_accuracy.csv", "valid_accuracy_5.csv", "valid_accuracy_8.csv"} <= curves


def test_a_run_killed_on_two_ranks_continues_on_one_as_if_nothing_had_happened(negatives, undisturbed, tmp_path):
    """ZeRO 3: the steps before the kill are two ranks', those after it one rank's, all are the undisturbed run's."""
    output, flags = tmp_path / "model", "--save_every 3 --validate_every 5"
    command = train_command(negatives, output, flags, ranks=2, stage=3, script="train_energy", launcher=True)
    kill_at_step(command, output, step=9)
    ended = train_one(negatives, output, flags, ranks=1, stage=3)
    assert ended.returncode == 0, ended.stderr
    assert "from step" in ended.stdout
    assert losses(output) == pytest.approx(losses(undisturbed), abs=1e-5)
    ids = windows_of(negatives.valid.take(range(50))).flatten(0, 1)
    with torch.no_grad():
        found = [open_energy_model(str(folder)).load()(ids) for folder in (output, undisturbed)]
    assert torch.allclose(*found, atol=1e-4)


class StoreList(NamedTuple):
    """Several stores, as the flags take them."""

    path: str


def test_stores_of_both_directions_are_mixed_as_a_plain_loop_over_all_rows_would(negatives, backwards, tmp_path):
    """Two ranks, one negative of a row's one or three."""
    mixed, output = StoreList(f"{backwards.path},{negatives.valid.path}"), tmp_path / "model"
    ended = train_one(Stores(mixed, mixed), output, "--negatives 1 --objective nce --seed 4", ranks=2, stage=0)
    assert ended.returncode == 0, ended.stderr
    rows = pa.concat_tables([backwards.take(range(200)), negatives.valid.take(range(200))])

    def windows(places: np.ndarray) -> torch.Tensor:
        wanted = rows.take(rows_at(int(places[0]), int(places[-1]) + 1, 400, 4))
        assert set(wanted["direction"].to_pylist()) == {"left_to_right", "right_to_left"}
        return torch.from_numpy(completed(wanted, 1, places).ids)

    assert losses(output) == pytest.approx(plain_loop(windows, seed=4), abs=1e-5)
    said = open_energy_model(str(output)).provenance
    assert [store["generator"]["direction"] for store in said["stores"]] == ["right_to_left", "left_to_right"]


def test_texts_of_unequal_length_are_computed_in_as_many_parts_on_every_rank(tmp_path):
    """With ZeRO 3 all ranks must go through the network equally often, or they would wait for each other for ever.

    Most texts are equally long, so that now and then a rank has a batch without padding, and the other one has not.
    """
    character_tokenizer(ALPHABET).save(str(tmp_path / "digits"))
    rng = np.random.default_rng(0)
    for kind in ("real", "generated"):
        lengths = [3 if number % 12 else int(rng.integers(2, 12)) for number in range(96)]
        lines = [json.dumps({"text": "".join(rng.choice(list("0123456789"), length))}) for length in lengths]
        (tmp_path / f"{kind}.train.jsonl").write_text("\n".join(lines) + "\n")
    flags = f"--real {tmp_path}/real.train.jsonl --generated {tmp_path}/generated.train.jsonl"
    more = f"--tokenizer {tmp_path}/digits --block 14 --output {tmp_path}/store"
    assert import_texts.main([*flags.split(), *more.split()]) == 0
    found, store = [], Store(str(tmp_path / "store"))
    for ranks, stage in ((1, 0), (2, 3)):
        output = tmp_path / f"model-{ranks}"
        ended = train_one(Stores(store, store), output, ranks=ranks, stage=stage)
        assert ended.returncode == 0, ended.stderr
        found.append(losses(output))
    assert found[0] == pytest.approx(found[1], abs=1e-5)


def test_it_stops_when_validation_has_not_improved_for_a_while(negatives, tmp_path):
    """With a learning rate of almost nothing nothing improves for long: it stops two validations after the best one."""
    output, flags = tmp_path / "model", "--max_lr 1e-12 --validate_every 2 --patience 2 --max_steps 40"
    ended = train_one(negatives, output, flags)
    assert ended.returncode == 0, ended.stderr
    steps = len(losses(output))
    best = open_energy_model(str(output)).provenance["step"]
    assert steps == best + 4 < 40
    again = train_one(negatives, output, flags)
    assert "trained before, nothing to do" in again.stdout


def test_offloading_and_checkpointing_change_no_loss(negatives, undisturbed, tmp_path):
    output = tmp_path / "model"
    config = ROOT / "training/zero/stage3-offload.json"
    ended = train_one(negatives, output, f"--validate_every 5 --gradient_checkpointing --deepspeed_config {config}")
    assert ended.returncode == 0, ended.stderr
    assert losses(output) == pytest.approx(losses(undisturbed), abs=1e-5)


def arguments(stores, output: Path, /, **changes: str | None) -> list[str]:
    given = {"train": stores.train.path, "valid": stores.valid.path, "output": str(output), "preset": "bit-nano"}
    return [f"--{name}={value}" for name, value in (given | changes).items() if value is not None]


@pytest.fixture(scope="module")
def other_vocabulary(tmp_path_factory, tokenizer) -> str:
    """Negatives of another vocabulary."""
    folder = tmp_path_factory.mktemp("other")
    make_windows.main(
        f"--input builtin:python-docs --split valid --tokenizer {tokenizer} --output {folder}/windows --window 16 "
        "--limit 30".split()
    )
    config = GPT2Config(
        vocab_size=400, n_embd=32, n_layer=1, n_head=1, n_positions=17, bos_token_id=399, eos_token_id=399
    )
    GPT2LMHeadModel(config).save_pretrained(folder / "lm")
    load_tokenizer(tokenizer).save(str(folder / "lm"))
    return mined(Store(str(folder / "windows")), str(folder / "lm"), folder / "store").path


def test_bad_input_is_named(negatives, stores, other_vocabulary, tmp_path):
    cases = [
        ({"preset": "bit-tall"}, "--preset bit-tall: there are linear, "),
        ({"preset": None}, "--preset: name one"),
        ({"train": stores.train.path}, "a store of windows, but one of negatives is needed"),
        ({"valid": other_vocabulary}, f"{other_vocabulary}: not the vocabulary of {negatives.train.path}"),
        ({"train": f"{negatives.train.path},{other_vocabulary}"}, f"{other_vocabulary}: not the vocabulary of"),
        ({"train": ","}, "--train: name a store of negatives"),
        ({"negatives": "4"}, "--negatives 4: there are rows with 3 in "),
        ({"negatives": "0"}, "--negatives 0: at least 1"),
        ({"recipe": "joint"}, "--recipe joint: the paper has none for bit-nano: it has one of its own"),
        (
            {"preset": "linear", "recipe": "joint"},
            "--recipe joint: the paper has none for linear: there are discrimination",
        ),
        ({"patience": "0"}, "--patience 0: at least 1"),
        ({"objective": "hinge"}, "invalid choice: 'hinge'"),
        ({"init": str(tmp_path)}, f"{tmp_path}: not a model's folder"),
    ]
    for change, message in cases:
        with pytest.raises(UserError) as error:
            train_energy.main(arguments(negatives, tmp_path / "model", **change))
        assert message in str(error.value), change
    assert not (tmp_path / "model").exists()


def test_a_damaged_shard_is_named(negatives, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(negatives.train.path, broken)
    shard = shard_path(broken, 0)
    content = bytearray(shard.read_bytes())
    for name in ("negatives.list.element.list.element", "log_p.list.element"):
        group = pq.ParquetFile(shard).metadata.row_group(0)
        column = next(group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == name)
        content[column.data_page_offset + column.total_compressed_size // 2] ^= 0xFF
    shard.write_bytes(content)
    with pytest.raises(UserError, match=str(shard)):
        train_energy.main(arguments(negatives, tmp_path / "model", train=str(broken)))


def test_fine_tuning_goes_on_from_a_trained_model(negatives, undisturbed, tmp_path):
    output = tmp_path / "model"
    command = train_command(negatives, output, f"--init {undisturbed} --max_lr 1e-9", script="train_energy")
    del command[command.index("--preset") : command.index("--preset") + 2]
    ended = run_group(command)
    assert ended.returncode == 0, ended.stderr
    assert "new: nothing" in ended.stdout
    before, after = (open_energy_model(str(folder)).provenance["loss"] for folder in (undisturbed, output))
    assert after == pytest.approx(before, abs=1e-4)
    config = json.loads((output / "config.json").read_text())
    assert config["provenance"]["init"] == open_energy_model(str(undisturbed)).weights_digest


@pytest.mark.slow
@pytest.mark.parametrize("lora", ["", "--lora_rank 2"])
def test_a_classifier_that_was_killed_is_the_classifier_of_a_run_that_was_not(negatives, generators, tmp_path, lora):
    """Frozen matrices are in no checkpoint: they come from the model to start from each time."""
    if lora:
        pytest.importorskip("peft")
    flags = f"--preset decoder --init {generators['left_to_right']} --max_lr 1e-3 --save_every 4 {lora}"
    ended = train_one(negatives, tmp_path / "whole", flags)
    assert ended.returncode == 0, ended.stderr
    command = train_command(negatives, tmp_path / "killed", flags, script="train_energy")
    kill_at_step(command, tmp_path / "killed", 8)
    ended = train_one(negatives, tmp_path / "killed", flags)
    assert "from step" in ended.stdout
    assert losses(tmp_path / "killed") == pytest.approx(losses(tmp_path / "whole"), abs=1e-5)
    found = [
        AutoModelForSequenceClassification.from_pretrained(tmp_path / name).state_dict() for name in ("whole", "killed")
    ]
    assert found[0].keys() == found[1].keys()
    assert all(torch.allclose(found[0][name], found[1][name], atol=1e-6) for name in found[0])
    begun = AutoModelForCausalLM.from_pretrained(generators["left_to_right"]).state_dict()
    attention, embeddings = "transformer.h.0.attn.c_attn.weight", "transformer.wte.weight"
    assert not torch.allclose(begun[attention], found[0][attention], atol=1e-6)
    assert torch.equal(begun[embeddings], found[0][embeddings][:14]) == bool(lora)  # the last one is the padding's
    row = Store(negatives.valid.path)[0]
    energy = open_energy_model(str(tmp_path / "whole")).load()(torch.tensor([row["tokens"]])).item()
    logit = AutoModelForSequenceClassification.from_pretrained(tmp_path / "whole")(torch.tensor([row["tokens"]])).logits
    assert -energy == pytest.approx(float(logit), abs=1e-5)

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from pipeline import make_windows
from pipeline.models.language_model import open_language_model
from pipeline.runtime.errors import UserError
from pipeline.stores.manifest import read_record
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import load_tokenizer
from tests.helpers.commands import ROOT
from tests.helpers.processes import run_group
from tests.helpers.stores import shard_path
from tests.helpers.trainings import kill_at_step, losses, train, train_command
from training import train_lm
from training.data.order import rows_at
from training.language.presets import PRESETS
from training.train_lm import Sources

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def undisturbed(stores, tmp_path_factory) -> Path:
    """A model trained on one rank without ZeRO, never killed."""
    output = tmp_path_factory.mktemp("undisturbed") / "model"
    ended = train(stores, output, stage=0)
    assert ended.returncode == 0, ended.stderr
    return output


def plain_loop(stores, seed=0, reverse=False) -> list[float]:
    """The same training in a few lines of plain PyTorch: whole batches, one process, no DeepSpeed."""
    torch.manual_seed(seed)
    config = PRESETS["transf-nano"].build(14, 256, None)
    model = GPT2LMHeadModel(config)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    found = []
    for step in range(20):
        ids = np.array(stores.train.take(rows_at(step * 24, step * 24 + 24, 3000, seed))["tokens"].to_pylist())
        windows = torch.tensor(ids[:, ::-1].copy() if reverse else ids)
        inputs = torch.cat([torch.full((24, 1), 13), windows], dim=1)
        logits = model(input_ids=inputs).logits[:, :-1]
        loss = F.cross_entropy(logits.reshape(-1, 14), windows.reshape(-1))
        warm = min(1.0, (step + 1) / 2)
        rate = 5e-3 * (warm if step < 2 else 0.5 * (1 + np.cos(np.pi * (step - 2) / 18)))
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        found.append(loss.item())
    return found


def test_the_losses_are_those_of_a_plain_loop(stores, undisturbed):
    assert losses(undisturbed) == pytest.approx(plain_loop(stores), abs=1e-5)


def test_python_trains_as_the_command_line_does_and_the_folder_says_with_what(stores, undisturbed, tmp_path):
    settings = train_lm.LanguageModelSettings(
        preset="transf-nano",
        train=stores.train.path,
        valid=stores.valid.path,
        output=str(tmp_path / "model"),
        max_steps=20,
        batch_size=24,
        micro_batch_size=6,
        deepspeed_config=str(ROOT / "training/zero/stage0.json"),
    )
    assert train_lm.train_lm(settings) == 0
    assert losses(tmp_path / "model") == losses(undisturbed)
    here, there = (read_record(str(folder)) for folder in (tmp_path / "model", undisturbed))
    assert here.call == {"stage": "training/train_lm.py", "settings": settings.to_json()}
    assert there.call["settings"] == settings.to_json() | {"output": str(undisturbed)}
    assert here.settings == there.settings


def test_the_folder_is_a_model_that_knows_where_it_comes_from(stores, undisturbed):
    model = AutoModelForCausalLM.from_pretrained(undisturbed).eval()
    tokenizer = AutoTokenizer.from_pretrained(undisturbed)
    assert load_tokenizer(str(undisturbed)).digest == stores.train.manifest.tokenizer["digest"]
    assert isinstance(model, GPT2LMHeadModel)
    windows = torch.tensor(stores.valid.take(range(200))["tokens"].to_pylist())
    inputs = torch.cat([torch.full((200, 1), tokenizer.bos_token_id), windows], dim=1)
    loss = F.cross_entropy(model(inputs).logits[:, :-1].reshape(-1, 14), windows.reshape(-1)).item()
    opened = open_language_model(str(undisturbed))
    assert opened.direction == "left_to_right"
    assert np.exp(loss) == pytest.approx(opened.provenance["perplexity"], rel=1e-5)
    facts = {"preset": "transf-nano", "corpus": "sums", "split": "train", "seed": 0, "parameters": 34112}
    assert facts.items() <= opened.provenance.items()
    assert opened.provenance["train"] == stores.train.manifest.digest
    assert opened.start_token_id == 13


def test_the_same_command_again_has_nothing_to_do_and_other_settings_are_named(stores, undisturbed):
    before = {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*")}
    again = train(stores, undisturbed, stage=0)
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, f"{undisturbed}: trained before, nothing to do")
    other = train(stores, undisturbed, "--max_lr 0.1 --seed 4", stage=0)
    assert other.returncode == 2
    assert "max_lr 0.005, now 0.1; seed 0, now 4" in other.stderr.splitlines()[-1]
    assert {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*")} == before


def test_a_run_killed_on_two_ranks_continues_on_one_as_if_nothing_had_happened(stores, undisturbed, tmp_path):
    """ZeRO 2: the steps before the kill are two ranks', those after it one rank's, all are the undisturbed run's."""
    output = tmp_path / "model"
    flags = "--save_every 3"
    kill_at_step(train_command(stores, output, flags, ranks=2, stage=2, launcher=True), output, step=9)
    assert not (output / "config.json").exists()
    with pytest.raises(UserError, match="its training has not ended"):
        open_language_model(str(output))
    ended = train(stores, output, flags, ranks=1, stage=2)
    assert ended.returncode == 0, ended.stderr
    assert "from step" in ended.stdout
    assert losses(output) == pytest.approx(losses(undisturbed), abs=1e-5)
    weights = [AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (output, undisturbed)]
    assert all(torch.allclose(weights[0][name], weights[1][name], atol=1e-4) for name in weights[1])
    assert sorted(os.listdir(output / "checkpoints")) == ["step-000020"]


def test_two_ranks_without_zero_read_backwards_as_one_plain_loop_does(stores, tmp_path):
    output = tmp_path / "model"
    ended = train(stores, output, "--direction right_to_left --seed 3", ranks=2, stage=0)
    assert ended.returncode == 0, ended.stderr
    assert losses(output) == pytest.approx(plain_loop(stores, seed=3, reverse=True), abs=1e-5)
    assert open_language_model(str(output)).direction == "right_to_left"


def test_a_half_written_checkpoint_does_not_count(stores, tmp_path):
    output = tmp_path / "model"
    kill_at_step(train_command(stores, output, "--save_every 2"), output, step=2)
    for folder in (output / "checkpoints").glob("step-*"):
        (folder / "whole.json").unlink()  # as if it had been killed a moment before
    failed = train(stores, output, "--save_every 2 --resume must")
    assert failed.returncode == 2
    assert f"--resume must: there is no checkpoint in {output}" in failed.stderr


def test_a_full_disk_is_named_and_the_run_continues_where_there_is_room_again(stores, undisturbed, disk_of):
    disk = disk_of(700)  # a checkpoint has half of that, and the one before it goes when the next is whole
    ended = train(stores, disk / "model", "--save_every 5", stage=0)
    assert ended.returncode == 2
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert "checkpoints/step-" in line
    assert "MB are free there" in line
    subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
    ended = train(stores, disk / "model", "--save_every 5", stage=0)
    assert ended.returncode == 0, ended.stderr
    assert losses(disk / "model") == pytest.approx(losses(undisturbed), abs=1e-5)


def test_a_ralm_learns_the_sum_of_both_models_log_probabilities(stores, undisturbed, tmp_path):
    output = tmp_path / "model"
    ended = train(stores, output, f"--preset ralm-tiny --base {undisturbed} --micro_batch_size 24")
    assert ended.returncode == 0, ended.stderr
    model = open_language_model(str(output)).load()
    base = AutoModelForCausalLM.from_pretrained(undisturbed).eval()
    assert all(torch.equal(weight, base.state_dict()[name]) for name, weight in model.base.state_dict().items())
    ids = torch.tensor(stores.valid.take(range(5))["tokens"].to_pylist())
    with torch.no_grad():
        found = model(ids).logits.double().softmax(-1)
        p_phi = base(ids).logits.double().softmax(-1)
        p_theta = model.residual(ids).logits.double().softmax(-1)
    product = p_phi * p_theta
    assert torch.allclose(found, product / product.sum(-1, keepdim=True), atol=1e-9)
    assert torch.allclose(found.sum(-1), torch.ones(()).double())
    perplexities = [open_language_model(str(folder)).provenance["perplexity"] for folder in (output, undisturbed)]
    assert perplexities[0] < perplexities[1]


def test_weights_that_explode_stop_the_run_and_their_checkpoint_goes(stores, tmp_path):
    output = tmp_path / "model"
    ended = train(stores, output, "--max_lr 1e37 --save_every 1 --validate_every 20")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("error: step 2: the loss is nan, on batch 1 (rows ")
    assert not list(output.rglob("whole.json"))


SPOILED = """
import sys, torch
from training import train_lm
from training.language import task as lm_task
from training.loop import ranks

calls, loss = [], lm_task.LanguageModelling.loss
def spoiled(self, network, batch):
    calls.append(1)
    return loss(self, network, batch) * (float("nan") if len(calls) == 8 else 1.0)
lm_task.LanguageModelling.loss = spoiled
ranks.exit_all_with(train_lm.main)
"""


def test_a_loss_that_is_not_a_number_stops_the_run_and_keeps_the_last_good_checkpoint(stores, tmp_path):
    """The loss of the eighth step is spoiled by hand: no real data does it to a sound model at a chosen step."""
    output = tmp_path / "model"
    command = train_command(stores, output, "--save_every 3 --micro_batch_size 24")
    ended = run_group([command[0], "-c", SPOILED, *command[2:]])
    assert ended.returncode == 1
    rows = ", ".join(map(str, rows_at(7 * 24, 7 * 24 + 5, 3000, 0)))
    assert ended.stderr.splitlines()[-1] == (
        f"error: step 8: the loss is nan, on batch 7 (rows {rows}, … of {stores.train.path}): "
        f"the checkpoint of step 6 is kept: start over with a lower --max_lr, or look at these rows"
    )
    assert [json.loads(mark.read_text())["step"] for mark in output.rglob("whole.json")] == [6]
    again = train(stores, output, "--save_every 3 --micro_batch_size 24")
    assert again.returncode == 0, again.stderr
    assert "from step 6" in again.stdout


@pytest.fixture(scope="module")
def other_windows(tmp_path_factory) -> str:
    """A store of another vocabulary and window length."""
    folder = str(tmp_path_factory.mktemp("other") / "store")
    make_windows.main(
        ["--input=builtin:python-docs", "--split=valid", "--train_tokenizer=300", f"--output={folder}", "--window=300"]
    )
    return folder


def test_bad_input_is_named(stores, other_windows, undisturbed, tmp_path, tokenizer):
    train_store, valid_store, output = stores.train.path, stores.valid.path, str(tmp_path / "model")
    good = {"train": train_store, "valid": valid_store, "output": output, "preset": "transf-nano"}
    strange = tmp_path / "strange"
    strange.mkdir()
    short = tmp_path / "short"
    GPT2LMHeadModel(GPT2Config(vocab_size=14, n_embd=32, n_layer=1, n_head=1, n_positions=8)).save_pretrained(short)
    load_tokenizer(train_store).save(str(short))
    wide = tmp_path / "wide"
    GPT2LMHeadModel(GPT2Config(vocab_size=14, n_embd=64, n_layer=2, n_head=2, n_positions=64)).save_pretrained(wide)
    load_tokenizer(train_store).save(str(wide))
    cases = [
        ({"preset": "transf-tall"}, "--preset transf-tall: there are transf-small, "),
        ({"preset": None}, "--preset: name one"),
        ({"preset": "ralm"}, "--base: ralm corrects a frozen language model"),
        ({"base": str(undisturbed)}, "only a ralm has a base model"),
        ({"preset": "ralm", "base": other_windows}, "not a model's folder"),
        ({"train": str(strange)}, f"{strange}: not a finished store"),
        ({"valid": other_windows}, f"{other_windows}: not the vocabulary of {train_store}"),
        ({"train": other_windows, "valid": other_windows, "init": str(undisturbed)}, "different vocabularies"),
        ({"preset": None, "init": str(short)}, "do not fit the 8 positions"),
        ({"direction": "right_to_left", "init": str(undisturbed)}, "reads left_to_right"),
        ({"output": "gopher://bucket/model"}, "no filesystem for this URL"),
        ({"batch_size": "0"}, "--batch_size 0: at least 1"),
        ({"micro_batch_size": "0"}, "--micro_batch_size 0: at least 1"),
        ({"deepspeed_config": str(strange)}, f"--deepspeed_config {strange}"),
        ({"seed": "-1"}, "--seed -1"),
        ({"precision": "bf16", "deepspeed_config": "training/zero/stage0.json"}, "take stage 1"),
    ]
    for change, message in cases:
        flags = [f"--{name}={value}" for name, value in (good | change).items() if value is not None]
        with pytest.raises(UserError) as error:
            train_lm.main(flags)
        assert message in str(error.value), change
    assert not Path(output).exists()


def test_a_model_to_start_from_that_does_not_fit_is_named_by_its_tensor(stores, tmp_path):
    wide = tmp_path / "wide"
    GPT2LMHeadModel(GPT2Config(vocab_size=14, n_embd=64, n_layer=2, n_head=2, n_positions=64)).save_pretrained(wide)
    load_tokenizer(stores.train.path).save(str(wide))
    config = PRESETS["transf-nano"].build(14, 256, None)
    with pytest.raises(UserError, match=r"lm_head.weight is \(14, 64\) there and \(14, 32\) here"):
        train_lm.build(config, 0, Sources(init=open_language_model(str(wide))))


def test_a_model_to_start_from_gives_its_weights(undisturbed):
    init = open_language_model(str(undisturbed))
    started = train_lm.build(PRESETS["transf-nano"].build(14, 256, None), 5, Sources(init=init))
    fresh = train_lm.build(PRESETS["transf-nano"].build(14, 256, None), 5, Sources())
    state = init.load().state_dict()
    assert all(torch.equal(weight, state[name]) for name, weight in started.state_dict().items())
    assert not torch.equal(fresh.state_dict()["transformer.wte.weight"], state["transformer.wte.weight"])


def test_a_damaged_store_is_named_where_it_is_damaged(stores, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(stores.train.path, broken)
    shard = shard_path(broken, 0)
    content = bytearray(shard.read_bytes())
    tokens = pq.ParquetFile(shard).metadata.row_group(0).column(stores.train.schema.names.index("tokens"))
    content[tokens.data_page_offset + tokens.total_compressed_size // 2] ^= 0xFF
    shard.write_bytes(content)
    ended = train(stores._replace(train=Store(str(broken))), tmp_path / "model")
    assert ended.returncode == 2
    assert str(shard) in ended.stderr.splitlines()[-1]

"""Masked language modelling: which tokens are hidden, what is learned of them, and what comes out of a run."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForMaskedLM, BertForMaskedLM

from pipeline.models.language_model import open_language_model
from pipeline.runtime.errors import UserError
from pipeline.text.tokenizer import load_tokenizer
from tests.helpers.trainings import losses, train
from training import train_lm
from training.data.mixture import Mixture
from training.language.task import NO_TARGET, MaskedModelling
from training.train_lm import masked_config

START, MASK = 14, 15


@pytest.fixture
def task(stores) -> MaskedModelling:
    encoder = load_tokenizer(stores.train.path)
    torch.manual_seed(0)
    model = BertForMaskedLM(masked_config("bit-nano", encoder.description, 14)).eval()
    return MaskedModelling(model, stores.train, Mixture([stores.valid]), "", encoder, {}, START, MASK)


def test_fifteen_percent_are_to_be_predicted_most_of_them_hidden(stores, task):
    rows = stores.train.take(range(3000))
    windows = torch.tensor(rows["tokens"].to_pylist())
    batch = task.tensors(rows, np.arange(3000))
    inputs, targets = batch["input_ids"], batch["targets"]
    assert (inputs[:, 0] == START).all()
    assert (targets[:, 0] == NO_TARGET).all()
    hidden = targets[:, 1:] != NO_TARGET
    assert (hidden.sum(1) == 2).all()  # of 13 tokens
    assert torch.equal(targets[:, 1:][hidden], windows[hidden])
    assert torch.equal(inputs[:, 1:][~hidden], windows[~hidden])
    shown, truth = inputs[:, 1:][hidden], windows[hidden]
    assert (shown == MASK).double().mean().item() == pytest.approx(0.8, abs=0.02)
    assert (shown == truth).double().mean().item() == pytest.approx(0.1 + 0.1 / 14, abs=0.02)
    assert hidden.double().mean(0).sub(2 / 13).abs().max() < 0.03  # every place is as likely
    random = shown[(shown != MASK) & (shown != truth)]
    assert set(random.tolist()) == set(range(14))


def test_what_is_hidden_depends_on_the_place_alone_and_changes_with_the_epoch(stores, task):
    rows = stores.train.take(range(40))
    whole = task.tensors(rows, np.arange(40))["input_ids"]
    half = task.tensors(rows.slice(20), np.arange(20, 40))["input_ids"]
    assert torch.equal(whole[20:], half)
    later = task.tensors(rows, 3000 + np.arange(40))["input_ids"]
    assert (later != whole).any(1).double().mean() > 0.9


@torch.no_grad()
def test_the_loss_is_that_of_the_hidden_tokens(stores, task):
    batch = task.tensors(stores.valid.take(range(10)), np.arange(10))
    logits = task.model(batch["input_ids"]).logits
    hidden = batch["targets"] != NO_TARGET
    expected = F.cross_entropy(logits[hidden], batch["targets"][hidden])
    assert torch.allclose(task.loss(task.model, batch), expected)
    sums = task.sums(task.model, batch, torch.tensor([1.0] * 4 + [0.0] * 6))
    first = F.cross_entropy(logits[:4][hidden[:4]], batch["targets"][:4][hidden[:4]])
    assert task.measure(sums.tolist())["loss"] == pytest.approx(first.item(), abs=1e-6)


@pytest.mark.slow
def test_a_run_on_two_ranks_is_that_of_one_and_its_folder_no_generator(stores, tmp_path):
    flags = "--objective masked --preset bit-nano"
    outputs = [tmp_path / "one", tmp_path / "two"]
    for ranks, output in enumerate(outputs, 1):
        ended = train(stores, output, flags, ranks=ranks, stage=2)
        assert ended.returncode == 0, ended.stderr
    assert losses(outputs[0]) == pytest.approx(losses(outputs[1]), abs=1e-5)
    assert losses(outputs[0])[-1] < losses(outputs[0])[0]
    model = AutoModelForMaskedLM.from_pretrained(outputs[0])
    assert (model.config.start_id, model.config.mask_id, model.config.vocab_size) == (START, MASK, 16)
    assert model.config.provenance["objective"] == "masked"
    assert load_tokenizer(str(outputs[0])).digest == stores.train.manifest.tokenizer["digest"]
    with pytest.raises(UserError, match="a masked language model, which gives texts no probability"):
        open_language_model(str(outputs[0]))


def test_flags_that_make_no_sense_are_named(stores, tmp_path):
    good = ["--train", stores.train.path, "--valid", stores.valid.path, "--output", str(tmp_path / "model")]
    cases = {
        "--preset transf-nano": "--preset transf-nano: with --objective masked there are bit-base",
        "--preset bit-nano --direction left_to_right": "--direction: a masked language model has none",
        "--preset bit-nano --init gpt2": "--init: a masked language model has none",
    }
    for flags, message in cases.items():
        with pytest.raises(UserError, match=message):
            train_lm.main([*good, "--objective", "masked", *flags.split()])

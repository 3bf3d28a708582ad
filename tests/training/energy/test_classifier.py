"""Energy models as ordinary sequence classifiers: we, plain transformers and vLLM give one text one energy."""

import math

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    pipeline,
)

from evaluation.detection.detector import Detector
from evaluation.joint.scorers import energy_scorer
from pipeline.runtime.errors import UserError
from pipeline.text.tokenizer import load_tokenizer
from tests.helpers.commands import words
from tests.helpers.pretrained import POSITIONS, load_tokenizer_into, untrained
from training.energy.classifier import save_classifier
from training.energy.first_weights import copy_first_weights, find_first_weights
from training.energy.folder import open_energy_model
from training.energy.inputs import Sequences
from training.energy.lora import add_lora, merged
from training.energy.model import EnergyModel
from training.language.presets import PRESETS as LM_PRESETS

KINDS = ("encoder", "decoder", "llama", "decoder of another vocabulary")


@pytest.fixture(scope="module")
def encoder(tokenizer):
    return load_tokenizer(tokenizer)


@pytest.fixture(scope="module", params=KINDS)
def model(request, encoder, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("classifier")
    network, first, _ = untrained(request.param, encoder, folder)
    output = str(folder / "energy")
    save_classifier(network, output, network.state_dict(), {"preset": "encoder", "seed": 3}, encoder, first.own)
    return output


# White space as the detector has it: a run of it gives the class of a text away, and is one space.
TEXTS = [" ".join(words(count, seed).split()) for seed, count in enumerate([3, 7, 9, 5, 1])]


@torch.no_grad()
def plain(folder: str, texts: list[str]) -> np.ndarray:
    """Logits, by somebody who has transformers alone."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    assert network.config.num_labels == 1
    return network(**tokenizer(texts, padding=True, truncation=True, return_tensors="pt")).logits[:, 0].numpy()


def ours(folder: str, texts: list[str]) -> np.ndarray:
    found = Detector(folder, block=60).score(texts)
    assert [one.blocks for one in found] == [1] * len(texts)
    return np.array([one.score for one in found])


def test_plain_transformers_gives_a_text_the_energy_that_we_give_it(model):
    assert ours(model, TEXTS) == pytest.approx(plain(model, TEXTS), abs=1e-4)
    assert np.std(plain(model, TEXTS)) > 0.01
    classify = pipeline("text-classification", model=model)
    found = classify(TEXTS, batch_size=3)
    assert [one["label"] for one in found] == ["REAL"] * len(TEXTS)
    expected = [1 / (1 + math.exp(-score)) for score in ours(model, TEXTS)]
    assert [one["score"] for one in found] == pytest.approx(expected, abs=1e-4)


def test_what_is_too_long_is_cut_as_others_cut_it(encoder, tmp_path):
    network, first, _ = untrained("encoder", encoder, tmp_path)
    folder = str(tmp_path / "energy")
    save_classifier(network, folder, network.state_dict(), {}, encoder, first.own)
    text = words(60, 7)
    ids = np.array(encoder.encode([text]))
    reader = open_energy_model(folder).reader()
    read = reader.read(Sequences(ids, np.array([ids.shape[1]])))
    assert read.lengths.tolist() == [POSITIONS]
    assert reader.cut == 1
    assert read.ids[0].tolist() == AutoTokenizer.from_pretrained(folder)(text, truncation=True)["input_ids"]


def test_a_window_that_ends_with_a_document_keeps_its_end(encoder, tmp_path):
    """Families find a sequence's end by its padding, which many tokenizers have no token of their own for."""
    network, _, _ = untrained("decoder", encoder, tmp_path)
    ids = torch.randint(0, 400, (2, 12))
    ids[:, -1] = encoder.eos_token_id
    longer = torch.cat([ids, torch.zeros(2, 5, dtype=torch.long)], dim=1)
    mask = torch.arange(17).expand(2, 17) < 12
    with torch.no_grad():
        alone, padded, cut = network(ids), network(longer, mask.long()), network(ids[:, :-1])
    assert torch.allclose(alone, padded, atol=1e-5)
    assert not torch.allclose(alone, cut, atol=1e-2)


def test_a_decoders_context_is_read_once_for_all_that_follows(encoder, tmp_path):
    network, first, _ = untrained("llama", encoder, tmp_path)
    folder = str(tmp_path / "energy")
    save_classifier(network, folder, network.state_dict(), {}, encoder, first.own)
    scorer = energy_scorer(open_energy_model(folder), batch_size=2)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 400, (3, 5, 20))
    ids[:, :, :14] = ids[:, :1, :14]
    windows = Sequences(ids, np.full((3, 5), 20))
    assert scorer.energies(windows, 14) == pytest.approx(scorer.energies(windows, 0), abs=1e-4)


def test_the_folder_says_what_it_is_and_can_be_trained_on(model, encoder):
    folder = open_energy_model(model)
    assert folder.provenance == {"preset": "encoder", "seed": 3}
    assert folder.config.kind == "classifier"
    assert folder.tokenizer_digest == encoder.digest
    first = find_first_weights(model, None, encoder.description)
    again = EnergyModel(first.config).eval()
    assert "new: nothing" in str(copy_first_weights(again, first, encoder, 32))
    ids = torch.randint(5, 300, (3, 12))
    with torch.no_grad():
        assert torch.allclose(again(ids), folder.load()(ids), atol=1e-6)


def test_tables_know_which_of_the_papers_kinds_it_is(encoder, tmp_path):
    for kind, family in {"encoder": "bit", "decoder": "unit"}.items():
        network, first, _ = untrained(kind, encoder, tmp_path / kind)
        save_classifier(network, str(tmp_path / kind / "energy"), network.state_dict(), {}, encoder, first.own)
        assert open_energy_model(str(tmp_path / kind / "energy")).family == family


def test_only_the_head_is_new(encoder, tmp_path):
    _, _, report = untrained("decoder", encoder, tmp_path / "decoder")
    assert report.new == ["score.weight"]
    _, _, report = untrained("encoder", encoder, tmp_path / "encoder")
    assert {name.partition(".")[0] for name in report.new if "pooler" not in name} == {"classifier"}


def test_what_has_no_classifier_is_refused(encoder, tmp_path):
    config = LM_PRESETS["conv-tiny"].build(encoder.vocabulary_size, 64, None)
    from transformers import AutoModelForCausalLM

    load_tokenizer_into(encoder, tmp_path / "conv")
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "conv")
    with pytest.raises(UserError, match="transformers has no sequence classifier of residual_ebm_conv"):
        find_first_weights(str(tmp_path / "conv"), "decoder", encoder.description)


@pytest.mark.parametrize("kind", ["encoder", "decoder", "llama"])
def test_products_are_added_to_their_matrices(kind, encoder, tmp_path):
    pytest.importorskip("peft")
    network, first, report = untrained(kind, encoder, tmp_path)
    ids = torch.randint(5, 300, (3, 12))
    with torch.no_grad():
        before = network(ids)
        add_lora(network, 4, report.new)
        assert torch.allclose(network(ids), before, atol=1e-5)  # the products begin as nothing
        for name, parameter in network.named_parameters():
            if "lora_B" in name:
                parameter += 0.3 * torch.randn_like(parameter)
        learned = network(ids)
    assert not torch.allclose(learned, before, atol=1e-2)
    trained = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert all("lora_" in name or name.removeprefix("network.classifier.") in report.new for name in trained)
    folder = str(tmp_path / "energy")
    save_classifier(network, folder, merged(network.state_dict(), network), {}, encoder, first.own)
    with torch.no_grad():
        assert torch.allclose(open_energy_model(folder).load()(ids), learned, atol=1e-4)
    assert "lora" not in " ".join(AutoModelForSequenceClassification.from_pretrained(folder).state_dict())


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["encoder", "decoder", "llama"])
def test_vllm_gives_a_text_the_energy_that_we_give_it(kind, encoder, tmp_path):
    from evaluation.joint.vllm_scorer import VllmScorer

    network, first, _ = untrained(kind, encoder, tmp_path)
    folder = str(tmp_path / "energy")
    save_classifier(network, folder, network.state_dict(), {}, encoder, first.own)
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 399, (4, 3, 24))
    ids[:, :, :18] = ids[:, :1, :18]
    windows = Sequences(ids, np.full((4, 3), 24))
    scorer = VllmScorer(open_energy_model(folder), 24)
    found = scorer.energies(windows, 18)
    scorer.engine.close()
    assert found == pytest.approx(energy_scorer(open_energy_model(folder)).energies(windows, 18), abs=1e-4)

    from vllm import LLM  # as somebody uses it who has never heard of this project

    small = {"max_model_len": POSITIONS, "kv_cache_memory_bytes": 1 << 26}
    llm = LLM(folder, runner="pooling", dtype="float32", enforce_eager=True, **small)
    classified = [one.outputs.probs[0] for one in llm.classify(TEXTS, use_tqdm=False)]
    llm.llm_engine.engine_core.shutdown()
    assert classified == pytest.approx([1 / (1 + math.exp(-score)) for score in plain(folder, TEXTS)], abs=1e-4)

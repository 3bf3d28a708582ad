"""Exported pairs in the hands of the libraries that they are for: two steps of their own trainers on the files."""

from pathlib import Path
from typing import Any

import datasets
import pytest
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from pipeline import make_windows, mine_negatives
from pipeline.export_pairs import ExportPairsSettings, export_pairs
from pipeline.models.model_folder import quiet
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import load_tokenizer
from tests.helpers.commands import words
from tests.helpers.mining import save_generator
from tests.helpers.pretrained import untrained
from training.energy.classifier import save_classifier
from training.energy.folder import open_energy_model

pytestmark = pytest.mark.usefixtures("one_thread")
TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
STEPS = {"max_steps": 2, "per_device_train_batch_size": 4, "report_to": "none", "save_strategy": "no"}
STEPS |= {"use_cpu": True, "bf16": False, "logging_steps": 1, "disable_tqdm": True}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tokenizer: str) -> Path:
    """Negatives of a few windows, two of each."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "text.txt").write_text(words(200, 0))
    given = f"--input {folder}/text.txt --corpus words --split train --tokenizer {tokenizer} --shards 2"
    make_windows.main(f"{given} --window 24 --stride 24 --output {folder}/windows".split())
    encoder = load_tokenizer(tokenizer)
    encoder.save(save_generator(folder / "lm", vocab_size=encoder.vocabulary_size, n_positions=32))
    given = f"--windows {folder}/windows --generator {folder}/lm --engine torch --negatives 2 --context_lengths 12"
    mine_negatives.main(f"{given} --output {folder}/store".split())
    return folder / "store"


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "WANDB_DISABLED"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")


@pytest.fixture
def model(tmp_path: Path, tokenizer: str) -> str:
    """A classifier of one label, with a tokenizer that knows what padding is and how messages are written."""
    theirs = AutoTokenizer.from_pretrained(tokenizer)
    theirs.pad_token, theirs.sep_token, theirs.chat_template = theirs.eos_token, theirs.eos_token, TEMPLATE
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 16}
    config = BertConfig(vocab_size=len(theirs), **sizes, num_labels=1, pad_token_id=theirs.pad_token_id)
    with quiet():
        BertForSequenceClassification(config).save_pretrained(tmp_path / "model")
    theirs.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def exported(store: Path, folder: Path, **settings: Any) -> datasets.Dataset:
    export_pairs(ExportPairsSettings(store=str(store), output=str(folder / "pairs"), **settings))
    return datasets.load_dataset(str(folder / "pairs"), split="train", cache_dir=str(folder / "cache"))


@pytest.mark.parametrize("conversational", [False, True])
def test_trls_reward_trainer_trains_on_preferences(store, model, tmp_path, conversational):
    trl = pytest.importorskip("trl", reason="pip install trl")
    pairs = exported(store, tmp_path, conversational=conversational)
    trainer = trl.RewardTrainer(
        model=BertForSequenceClassification.from_pretrained(model),
        args=trl.RewardConfig(output_dir=str(tmp_path / "out"), gradient_checkpointing=False, **STEPS),
        train_dataset=pairs,
        processing_class=(theirs := AutoTokenizer.from_pretrained(model)),
    )
    # What it reads is what we wrote: all pairs, the prompt before each answer.
    assert len(trainer.train_dataset) == len(pairs) == 2 * len(Store(str(store)))
    for read, pair in zip(trainer.train_dataset, pairs, strict=True):
        for name in ("chosen", "rejected"):
            if conversational:
                text = "".join(f"{one['role']}: {one['content']}\n" for one in pair["prompt"] + pair[name])
            else:
                text = pair["prompt"] + pair[name] + theirs.eos_token
            assert theirs.decode(read[f"{name}_ids"]) == text
    trainer.train()
    assert trainer.state.global_step == 2


@pytest.mark.parametrize(
    ("form", "loss", "texts"),
    [
        ("triplet", "MultipleNegativesRankingLoss", 3),
        ("n-tuple", "MultipleNegativesRankingLoss", 4),
        ("list", "LambdaLoss", 2),
        ("labelled-pair", "BinaryCrossEntropyLoss", 2),
    ],
)
def test_sentence_transformers_cross_encoder_trains_on(store, model, tmp_path, form, loss, texts):
    pytest.importorskip("sentence_transformers", reason="pip install sentence-transformers")
    from sentence_transformers import cross_encoder

    pairs = exported(store, tmp_path, format=form)
    encoder = cross_encoder.CrossEncoder(model, num_labels=1, device="cpu", local_files_only=True)
    seen: list[list[list[str]]] = []
    judged = getattr(cross_encoder.losses, loss)(encoder)
    judged.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    trainer = cross_encoder.CrossEncoderTrainer(
        model=encoder,
        args=cross_encoder.CrossEncoderTrainingArguments(output_dir=str(tmp_path / "out"), **STEPS),
        train_dataset=pairs,
        loss=judged,
    )
    trainer.train()
    assert trainer.state.global_step == 2
    # The columns arrive in the order in which they mean something: what stands before, then what follows it.
    names = [name for name in pairs.column_names if name not in ("label", "labels")]
    rows = [[row[name] for name in names] for row in pairs]
    assert [len(columns) for columns in seen] == [texts] * 2
    assert all(list(row) in rows for columns in seen for row in zip(*columns, strict=True))


def test_labelled_pairs_are_the_real_completion_once_and_each_generated_one(store, tmp_path):
    pairs = exported(store, tmp_path, format="labelled-pair")
    triplets = exported(store, tmp_path / "other", format="triplet")
    assert pairs.features["label"].names == ["generated", "real"]
    wanted = []
    for number, row in enumerate(triplets):
        wanted += [] if number % 2 else [(row["anchor"], row["positive"], 1)]
        wanted.append((row["anchor"], row["negative"], 0))
    assert [(row["anchor"], row["text"], row["label"]) for row in pairs] == wanted


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_an_energy_models_folder_is_a_reward_of_trls(store, tmp_path, kind):
    """GRPO's reward of what the policy writes is the score that we give the same text."""
    trl = pytest.importorskip("trl", reason="pip install trl")
    encoder, folder = load_tokenizer(str(store)), str(tmp_path / "energy")
    network, first, _ = untrained(kind, encoder, tmp_path)
    save_classifier(network, folder, network.state_dict(), {}, encoder, first.own)
    policy = AutoTokenizer.from_pretrained(str(store.parent / "lm"))
    policy.pad_token = policy.eos_token
    args = trl.GRPOConfig(
        output_dir=str(tmp_path / "out"), num_generations=4, max_completion_length=6, bf16=False, use_cpu=True,
        max_steps=1, per_device_train_batch_size=4, report_to="none", save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=str(store.parent / "lm"),
        reward_funcs=folder,
        args=args,
        train_dataset=datasets.Dataset.from_dict({"prompt": [words(4, 1), words(4, 2)]}),
        processing_class=policy,
    )
    seen = []
    trainer.reward_funcs[0].register_forward_hook(
        lambda module, given, kept, output: seen.append((kept, output.logits[:, 0].tolist())), with_kwargs=True
    )
    trainer.train()
    own = trainer.reward_processing_classes[0]
    for kept, rewards in seen:
        rows = zip(kept["input_ids"], kept["attention_mask"], strict=True)
        ids = [row[mask.bool()] for row, mask in rows]
        scores = [-open_energy_model(folder).load()(row[None]).item() for row in ids]
        assert rewards == pytest.approx(scores, abs=1e-4)
        assert all(own.decode(row, skip_special_tokens=True) for row in ids)
    assert seen

"""Energy models that are sequence classifiers of transformers' own: what their folders hold.

config.json names the family's class, with one label and logit = -E, and the tokenizer beside it is the one that it
reads text with: whoever opens such a folder needs nothing of this project. What else this project has to know stands
in config.json under a name of its own, and the tokenizer of the windows that it was trained on in a file of its own.
"""

import copy
import os
from typing import Any

import torch
from torch import Tensor
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from pipeline.models.language_model import OWN
from pipeline.models.model_folder import ModelFolder, quiet
from pipeline.runtime.errors import UserError, first_line
from pipeline.text.tokenizer import TextEncoder
from training.energy.model import Classifier, EnergyConfig, EnergyModel, Head, head_of
from training.energy.names import BIT, CLASSIFIER, UNIT
from training.language.dropout import without_dropout

FACTS = "residual_ebm"  # in config.json
WINDOWS_TOKENIZER = "windows_tokenizer.json"
LABEL = "REAL"
PAD = "<|pad|>"
PREFIX = "network.classifier."  # of the weights' names, in memory alone


def load_own_tokenizer(folder: ModelFolder) -> PreTrainedTokenizerFast:
    """The tokenizer that a model came with, as transformers has it: its special tokens included."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder.folder, trust_remote_code=False)
    except Exception as error:
        raise UserError(f"{folder.name}: its tokenizer cannot be loaded ({first_line(error)})") from None
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise UserError(f"{folder.name}: {type(tokenizer).__name__} has no fast version, which is needed here")
    return tokenizer


def encoder_config(folder: ModelFolder, own: PreTrainedTokenizerFast, vocabulary: int) -> EnergyConfig:
    """Any encoder, which reads text with the tokenizer that it came with."""
    separator = own.sep_token or own.eos_token or " "
    pad = own.pad_token_id or 0  # where attention is masked, it makes no difference
    check_has_classifier(folder)
    return classifier_energy(folder.config, vocabulary, pad, own_tokenizer=True, separator=separator)


def decoder_config(
    folder: ModelFolder, own: PreTrainedTokenizerFast, vocabulary: int, same_vocabulary: bool
) -> EnergyConfig:
    """Any causal language model: of the windows' own vocabulary it reads their ids, of another one their text.

    The energy is read off at a sequence's last token, which families find by the padding that follows: a token that
    no text contains, so that a window that ends with a document does not lose its end.
    """
    added = own("")["input_ids"]  # what it begins every text with
    reads_ids = same_vocabulary and len(added) <= 1
    start = added[0] if reads_ids and added else None
    if own.pad_token is None or own.pad_token in (own.eos_token, own.bos_token):
        own.add_special_tokens({"pad_token": PAD})
    separator = "" if reads_ids else own.eos_token or " "
    check_has_classifier(folder)
    config = classifier_energy(folder.config, vocabulary, own.pad_token_id, start, not reads_ids, separator)
    config.network["vocab_size"] = max(config.network["vocab_size"], own.pad_token_id + 1)
    return config


def check_has_classifier(folder: ModelFolder) -> None:
    """Refuses families of which transformers has no sequence classifier."""
    if type(folder.config) not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        kind = folder.config.model_type
        way_out = "" if str(kind).startswith(OWN) else ": take --preset unmasked"
        raise UserError(f"--init {folder.name}: transformers has no sequence classifier of {kind} models{way_out}")


def classifier_energy(config: PretrainedConfig, vocabulary: int, pad: int, *options: Any, **named: Any) -> EnergyConfig:
    """A family's configuration as that of a classifier of one label, inside of ours."""
    network = without_dropout(config, heads=True)
    for name in (FACTS, "provenance"):
        if hasattr(network, name):
            delattr(network, name)
    network.id2label, network.label2id = {0: LABEL}, {LABEL: 0}
    network.problem_type = "multi_label_classification"  # whose one probability is sigmoid(logit)
    network.pad_token_id = pad
    network.is_decoder = False  # of a family that is both: nothing is generated
    return EnergyConfig(CLASSIFIER, vocabulary, network.to_dict(), *options, **named)


def is_classifier(config: PretrainedConfig) -> bool:
    """Whether a folder's configuration is that of an energy model of this kind."""
    return isinstance(getattr(config, FACTS, None), dict)


def energy_config(config: PretrainedConfig, name: str) -> EnergyConfig:
    """What a folder's configuration says in our terms."""
    facts, network = getattr(config, FACTS), config.to_dict()
    if not isinstance(facts.get("vocabulary_size"), int):
        raise UserError(f"{name}: config.json: {FACTS} names no vocabulary_size: copy the folder again")
    for own in (FACTS, "provenance"):
        network.pop(own, None)
    options = {field: facts.get(field) for field in ("start_id", "own_tokenizer", "separator")}
    found = EnergyConfig(CLASSIFIER, facts["vocabulary_size"], network, **options)
    found.provenance = getattr(config, "provenance", {})
    found.eos_token, found.family = facts.get("eos_token"), facts.get("family", BIT)
    found.dtype, found.architectures = config.dtype, config.architectures
    return found


def with_classifier(config: EnergyConfig, classifier: PreTrainedModel) -> EnergyModel:
    """An energy model around a classifier that is there."""
    with torch.device("meta"):
        model = EnergyModel(config)
    assert isinstance(model.network, Classifier)
    head_of(classifier).__class__ = Head
    model.network.classifier = classifier
    return model.eval()


def save_classifier(
    model: EnergyModel,
    folder: str,
    state: dict[str, Tensor],
    provenance: dict[str, Any],
    encoder: TextEncoder,
    own: PreTrainedTokenizerFast,
) -> None:
    """Writes the folder: weights and configuration of the family's own class, and both tokenizers."""
    config: EnergyConfig = model.config
    assert isinstance(model.network, Classifier)
    plain = copy.deepcopy(model.network.classifier.config)
    plain.provenance = provenance
    setattr(
        plain,
        FACTS,
        {
            "vocabulary_size": config.vocab_size,
            "start_id": config.start_id,
            "own_tokenizer": config.own_tokenizer,
            "separator": config.separator,
            "eos_token": encoder.eos_token,
            "family": UNIT if model.network.is_decoder else BIT,
        },
    )
    with torch.device("meta"):
        written = AutoModelForSequenceClassification.from_config(plain)
    weights = {name.removeprefix(PREFIX): tensor for name, tensor in state.items()}
    written.load_state_dict(weights, assign=True)
    written.save_pretrained(folder)
    own = copy.deepcopy(own)
    own.model_max_length = config.positions or own.model_max_length
    own.save_pretrained(folder)
    with open(os.path.join(folder, WINDOWS_TOKENIZER), "w", encoding="utf-8") as file:
        file.write(encoder.backend.to_str())


def first_classifier_weights(model: EnergyModel, folder: ModelFolder) -> tuple[dict[str, Tensor], list[str]]:
    """A pretrained model's weights as its family's classifier has them, and the names of those that are new."""
    assert isinstance(model.network, Classifier)
    config = copy.deepcopy(model.network.classifier.config)
    size, config.vocab_size = config.vocab_size, folder.config.vocab_size
    if size > config.vocab_size:
        config.pad_token_id = None  # comes with the rows that are added below
    try:
        with quiet():
            found, report = AutoModelForSequenceClassification.from_pretrained(
                folder.folder,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # a head of several labels
            )
    except Exception as error:  # transformers stumbles in many ways
        raise UserError(f"--init {folder.name}: the model cannot be loaded ({first_line(error)})") from None
    new = sorted({*report["missing_keys"], *(entry[0] for entry in report["mismatched_keys"])})
    body = [name for name in new if name.startswith(f"{found.base_model_prefix}.") and "pooler" not in name]
    if body:
        raise UserError(f"--init {folder.name}: {body[0]} is not in its weights: not those of its config.json")
    if size > config.vocab_size:
        found.resize_token_embeddings(size, mean_resizing=False)  # a padding that no text contains
    return found.state_dict(), new

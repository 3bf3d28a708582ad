"""An energy model's first weights: from a language model, a masked one, RoBERTa, any encoder, or an energy model."""

from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerFast

from pipeline.models.language_model import LanguageModelFolder, open_language_model
from pipeline.models.model_folder import ModelFolder, open_model_folder, quiet
from pipeline.runtime.errors import UserError, first_line
from pipeline.text.tokenizer import TextEncoder, load_tokenizer
from schemas.division import RIGHT_TO_LEFT
from training.energy.classifier import (
    PREFIX,
    decoder_config,
    encoder_config,
    first_classifier_weights,
    is_classifier,
    load_own_tokenizer,
)
from training.energy.folder import EnergyModelFolder, open_energy_model
from training.energy.model import Classifier, EnergyConfig, EnergyModel, TransformerEnergy, is_causal, unused_positions
from training.energy.names import BIT, CLASSIFIER, UNIT
from training.language.dropout import without_dropout

EMBEDDINGS, POSITIONS = "embeddings.word_embeddings.weight", ("position_embeddings.weight", "wpe.weight")
MOST_MISSING = 0.01  # of the store's pieces: beyond it, the vocabularies only look alike


@dataclass(frozen=True)
class FirstWeights:
    """Where first weights come from, what they make of the architecture, and with which tokenizer."""

    folder: ModelFolder
    config: EnergyConfig | None = None
    own: PreTrainedTokenizerFast | None = None  # that a classifier came with


@dataclass(frozen=True)
class Report:
    """Which weights were taken and which are new."""

    source: str
    taken: int
    parameters: int
    new: list[str]
    remarks: list[str]

    def __str__(self) -> str:
        new = f"{', '.join(self.new[:6])}{', …' if len(self.new) > 6 else ''}" if self.new else "nothing"
        lines = [
            f"{self.taken} tensors, {self.parameters / 1e6:,.2f} million parameters, from {self.source}; new: {new}"
        ]
        return "; ".join(lines + self.remarks)


def find_first_weights(init: str, preset: str | None, tokenizer: dict[str, Any]) -> FirstWeights:
    """Opens what --init names; it decides on the shape where the preset does not: encoder, decoder, unmasked, none."""
    folder, vocabulary = open_model_folder(init), tokenizer["vocabulary_size"]
    if preset == "encoder":
        own = load_own_tokenizer(folder)
        return FirstWeights(folder, encoder_config(folder, own, vocabulary), own)
    if preset == "decoder":
        model = left_to_right(init)
        own, same = load_own_tokenizer(folder), model.tokenizer_digest == tokenizer["digest"]
        return FirstWeights(folder, decoder_config(folder, own, vocabulary, same), own)
    if preset == "unmasked":
        network = without_dropout(open_language_model(init).config, heads=True).to_dict() | {"is_causal": False}
        return FirstWeights(folder, EnergyConfig(BIT, folder.config.vocab_size, network, tokenizer["eos_token_id"]))
    if isinstance(folder.config, EnergyConfig) or is_classifier(folder.config):
        energy = open_energy_model(init)
        own = load_own_tokenizer(energy) if energy.config.kind == CLASSIFIER else None
        return FirstWeights(energy, None if preset else energy.config, own)
    return FirstWeights(folder)


def copy_first_weights(model: EnergyModel, first: FirstWeights, encoder: TextEncoder, window: int) -> Report:
    """Copies what there is into the model; a tensor that does not fit is named."""
    folder, kind = first.folder, model.config.kind
    folder.check_weights()
    if isinstance(folder, EnergyModelFolder):
        folder.check_fits(window, encoder.description, "the store")
        return transplant(folder.load().state_dict(), model, folder.name, "")
    if isinstance(model.network, Classifier):
        state, new = first_classifier_weights(model, folder)
        return transplant(state, model.network.classifier, folder.name, PREFIX, new=new)
    if kind == UNIT or (kind == BIT and not is_causal(transformer_of(model).config)):
        return _from_language_model(model, folder.name, encoder, window)
    if kind != BIT:
        raise UserError(
            f"--init {folder.name}: a {kind} model starts from nothing, or from another {kind} energy model"
        )
    state, remarks = _as_bert(_encoder_state(folder), folder, model, encoder)
    return transplant(state, transformer_of(model), folder.name, "network.transformer.", remarks, model)


def transformer_of(model: EnergyModel) -> PreTrainedModel:
    """The Transformer inside of a unit or a bit."""
    assert isinstance(model.network, TransformerEnergy)
    return model.network.transformer


def _from_language_model(model: EnergyModel, name: str, encoder: TextEncoder, window: int) -> Report:
    lm = left_to_right(name)
    lm.check_fits(window, encoder.description, "the store")
    state = lm.load().base_model.state_dict()
    return transplant(state, transformer_of(model), name, "network.transformer.", [], model)


def left_to_right(name: str) -> LanguageModelFolder:
    """A language model that reads as energy models do."""
    lm = open_language_model(name)
    if lm.direction == RIGHT_TO_LEFT:
        raise UserError(f"--init {name}: it reads right to left, an energy model reads left to right")
    return lm


def _encoder_state(folder: ModelFolder) -> dict[str, Tensor]:
    try:
        with quiet():
            options = {"dtype": torch.float32, "use_safetensors": True, "trust_remote_code": False}
            model = AutoModel.from_pretrained(folder.folder, **options)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise UserError(f"--init {folder.name}: the model cannot be loaded ({first_line(error)})") from None
    return {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("pooler.")}


def _as_bert(
    state: dict[str, Tensor], folder: ModelFolder, model: EnergyModel, encoder: TextEncoder
) -> tuple[dict[str, Tensor], list[str]]:
    """An encoder's weights with a row for every id of the store: embeddings are found by piece, not by number."""
    if EMBEDDINGS not in state:
        raise UserError(
            f"--init {folder.name}: a {folder.config.model_type} model has no {EMBEDDINGS}: take --preset encoder"
        )
    ids = _ids_by_piece(folder, encoder)
    missing = int((ids[: encoder.vocabulary_size] < 0).sum())
    if missing > MOST_MISSING * encoder.vocabulary_size:
        raise UserError(
            f"--init {folder.name}: {missing:,} of the store's {encoder.vocabulary_size:,} pieces are not in its "
            f"vocabulary: take --preset encoder, which reads with the encoder's own tokenizer"
        )
    old, new = state[EMBEDDINGS], transformer_of(model).state_dict()[EMBEDDINGS]
    if old.shape[1] == new.shape[1]:
        rows = new.clone()
        rows[ids >= 0] = old[ids[ids >= 0]]
        state = state | {EMBEDDINGS: rows}
    place = "embeddings.position_embeddings.weight"
    state = state | {place: state[place][unused_positions(folder.config) :]}
    return state, [f"{missing:,} pieces are new" if missing else "every piece was found"]


def _ids_by_piece(folder: ModelFolder, encoder: TextEncoder) -> Tensor:
    """For every id of the store, then `<s>` and `<mask>`, the encoder's id; -1 where it has none."""
    size = encoder.vocabulary_size
    if getattr(folder.config, "start_id", None) == size:  # our own masked language model
        if load_tokenizer(folder.folder).digest != encoder.digest:
            raise UserError(f"--init {folder.name}: it was trained on windows of another vocabulary")
        return torch.arange(size + 2)
    theirs = load_own_tokenizer(folder)
    known = theirs.get_vocab()
    ids = torch.full((size + 2,), -1)
    for piece, id in encoder.backend.get_vocab(with_added_tokens=True).items():
        ids[id] = known.get(piece, -1)
    specials = {encoder.eos_token_id: theirs.eos_token or theirs.sep_token}
    specials |= {size: theirs.cls_token or theirs.bos_token, size + 1: theirs.mask_token}
    for id, piece in specials.items():
        if ids[id] < 0 and piece is not None:
            ids[id] = known.get(piece, -1)
    return ids


def transplant(
    source: dict[str, Tensor],
    target: nn.Module,
    name: str,
    prefix: str,
    remarks: list[str] | None = None,
    whole: nn.Module | None = None,
    new: list[str] | None = None,
) -> Report:
    """Copies every tensor of the source, `new` ones among them; of positions, as many as the target has."""
    own, remarks = target.state_dict(), list(remarks or [])
    for tensor in sorted(source.keys() | own.keys()):
        there, here = source.get(tensor), own.get(tensor)
        if there is not None and here is not None and tensor.endswith(POSITIONS) and len(there) > len(here):
            remarks.append(f"the first {len(here)} of {len(there)} positions")
            source = source | {tensor: (there := there[: len(here)])}
        shapes = [tuple(found.shape) if found is not None else "absent" for found in (there, here)]
        if shapes[0] != shapes[1]:
            raise UserError(f"--init {name}: {tensor} is {shapes[0]} there and {shapes[1]} here: not the same shape")
    target.load_state_dict(source)
    source = {tensor: value for tensor, value in source.items() if tensor not in (new or [])}
    taken = {prefix + tensor for tensor in source}
    names = (whole or target).state_dict()
    left = [tensor for tensor in names if (tensor if whole else prefix + tensor) not in taken]
    return Report(name, len(source), sum(value.numel() for value in source.values()), left, remarks)

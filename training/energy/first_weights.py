"""An energy model's first weights: from a language model, a masked one, RoBERTa, any encoder, or an energy model."""

from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

from pipeline.models.language_model import open_language_model
from pipeline.models.model_folder import ModelFolder, open_model_folder, quiet
from pipeline.runtime.errors import UserError, first_line
from pipeline.text.tokenizer import TextEncoder, load_tokenizer
from schemas.division import RIGHT_TO_LEFT
from training.energy.folder import EnergyModelFolder, open_energy_model
from training.energy.model import EnergyConfig, EnergyModel, TransformerEnergy, is_causal, unused_positions
from training.energy.names import BIT, UNIT
from training.language.dropout import without_dropout

EMBEDDINGS, POSITIONS = "embeddings.word_embeddings.weight", ("position_embeddings.weight", "wpe.weight")
MOST_MISSING = 0.01  # of the store's pieces: beyond it, the vocabularies only look alike


@dataclass(frozen=True)
class FirstWeights:
    """Where first weights come from, what they make of the architecture, and with which tokenizer."""

    folder: ModelFolder
    config: EnergyConfig | None = None
    own_tokenizer: str | None = None


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
    folder = open_model_folder(init)
    if preset == "encoder":
        return _own_encoder(folder, tokenizer)
    if preset == "decoder":
        network = without_dropout(open_language_model(init).config, heads=True).to_dict()
        return FirstWeights(folder, EnergyConfig(UNIT, folder.config.vocab_size, network, tokenizer["eos_token_id"]))
    if preset == "unmasked":
        network = without_dropout(open_language_model(init).config, heads=True).to_dict() | {"is_causal": False}
        return FirstWeights(folder, EnergyConfig(BIT, folder.config.vocab_size, network, tokenizer["eos_token_id"]))
    if isinstance(folder.config, EnergyConfig):
        energy = open_energy_model(init)
        return FirstWeights(energy, None if preset else energy.config, energy.own_tokenizer)
    return FirstWeights(folder)


def _own_encoder(folder: ModelFolder, tokenizer: dict[str, Any]) -> FirstWeights:
    """Any encoder with the tokenizer that it came with."""
    own = load_own_tokenizer(folder)
    network = without_dropout(folder.config, heads=True).to_dict()
    config = EnergyConfig(BIT, tokenizer["vocabulary_size"], network, own_tokenizer=True)
    config.separator = own.sep_token or own.eos_token or " "
    return FirstWeights(folder, config, own.backend_tokenizer.to_str())


def load_own_tokenizer(folder: ModelFolder) -> PreTrainedTokenizerFast:
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder.folder, trust_remote_code=False)
    except Exception as error:
        raise UserError(f"--init {folder.name}: its tokenizer cannot be loaded ({first_line(error)})") from None
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise UserError(f"--init {folder.name}: {type(tokenizer).__name__} has no fast version, which is needed here")
    return tokenizer


def copy_first_weights(model: EnergyModel, first: FirstWeights, encoder: TextEncoder, window: int) -> Report:
    """Copies what there is into the model; a tensor that does not fit is named."""
    folder, kind = first.folder, model.config.kind
    folder.check_weights()
    if isinstance(folder, EnergyModelFolder):
        folder.check_fits(window, encoder.description, "the store")
        return transplant(folder.load().state_dict(), model, folder.name, "")
    if kind == UNIT or (kind == BIT and not is_causal(transformer_of(model).config)):
        return _from_language_model(model, folder.name, encoder, window)
    if kind != BIT:
        raise UserError(
            f"--init {folder.name}: a {kind} model starts from nothing, or from another {kind} energy model"
        )
    state = _encoder_state(folder)
    remarks: list[str] = []
    if not model.config.own_tokenizer:
        state, remarks = _as_bert(state, folder, model, encoder)
    return transplant(state, transformer_of(model), folder.name, "network.transformer.", remarks, model)


def transformer_of(model: EnergyModel) -> PreTrainedModel:
    """The Transformer inside of a unit or a bit."""
    assert isinstance(model.network, TransformerEnergy)
    return model.network.transformer


def _from_language_model(model: EnergyModel, name: str, encoder: TextEncoder, window: int) -> Report:
    lm = open_language_model(name)
    lm.check_fits(window, encoder.description, "the store")
    if lm.direction == RIGHT_TO_LEFT:
        raise UserError(f"--init {name}: it reads right to left, an energy model reads left to right")
    state = lm.load().base_model.state_dict()
    return transplant(state, transformer_of(model), name, "network.transformer.", [], model)


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
) -> Report:
    """Copies every tensor of the source; of positions, as many as the target has."""
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
    taken = {prefix + tensor for tensor in source}
    new = [tensor for tensor in (whole or target).state_dict() if tensor not in taken]
    return Report(name, len(source), sum(value.numel() for value in source.values()), new, remarks)

"""Trained energy models in folders, and how they read the windows of a store."""

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from pipeline.models.language_model import LanguageModelFolder, open_language_model
from pipeline.models.model_folder import ModelFolder, open_model_folder
from pipeline.runtime.errors import UserError
from pipeline.text.tokenizer import TextEncoder, load_tokenizer, read_tokenizer
from training.energy.inputs import PlainReader, Reader, RetokenisingReader
from training.energy.names import BIT, CLASSIFIER

if TYPE_CHECKING:
    from training.energy.model import EnergyConfig, EnergyModel


@dataclass(frozen=True)
class EnergyModelFolder(ModelFolder):
    """A trained energy model, known by its folder; its weights are read only when they are asked for."""

    config: "EnergyConfig"

    def load(self, device: str = "cpu", precision: str | None = None) -> "EnergyModel":
        """The network, ready to be used."""
        from transformers import AutoModelForSequenceClassification

        from training.energy.classifier import with_classifier
        from training.energy.model import EnergyModel

        if self.config.kind == CLASSIFIER:
            return with_classifier(self.config, self.load_as(AutoModelForSequenceClassification, device, precision))
        return self.load_as(EnergyModel, device, precision)

    @property
    def family(self) -> str:
        """Its kind by the paper's names: a classifier reads both ways, as a bit, or it does not, as a unit."""
        return str(self.config.family) if self.config.kind == CLASSIFIER else self.config.kind

    @cached_property
    def encoder(self) -> TextEncoder:
        """The tokenizer of the windows that it was trained on."""
        from training.energy.classifier import WINDOWS_TOKENIZER

        if self.config.kind == CLASSIFIER:
            return read_tokenizer(os.path.join(self.folder, WINDOWS_TOKENIZER), self.config.eos_token)
        return load_tokenizer(self.folder)

    @cached_property
    def tokenizer_digest(self) -> str:
        return self.encoder.digest

    @property
    def own_tokenizer(self) -> str | None:
        """The tokenizer of a classifier that reads text, as JSON."""
        if not self.config.own_tokenizer:
            return None
        path = os.path.join(self.folder, "tokenizer.json")
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except OSError as error:
            raise UserError(f"{path}: the tokenizer of {self.name} cannot be read ({error})") from None

    def reader(self) -> Reader:
        own = self.own_tokenizer
        return PlainReader() if own is None else reader_for(self.config, self.encoder, own)

    def check_fits(self, window: int, tokenizer: dict[str, Any], of: str) -> None:
        """Refuses windows (of `window` tokens, with a manifest's `tokenizer`) that this model cannot read."""
        if self.tokenizer_digest != tokenizer["digest"]:
            raise UserError(
                f"{of} and {self.name} have different vocabularies: take windows made with --tokenizer {self.name}"
            )
        check_length(self.config, window, of, self.name)


def open_energy_model(name: str) -> EnergyModelFolder:
    """From an energy model's folder, here or in a bucket, or from the hub by its name."""
    model = open_either(name)
    if not isinstance(model, EnergyModelFolder):
        raise UserError(f"{name}: a {model.config.model_type} model, not an energy model")
    return model


def open_either(name: str) -> EnergyModelFolder | LanguageModelFolder:
    """An energy model, or a language model in its place, whose energy is minus the log-probability."""
    from training.energy.classifier import energy_config, is_classifier
    from training.energy.model import EnergyConfig  # its type becomes known to transformers, before it reads the folder

    found = open_model_folder(name, "energy model")
    if is_classifier(found.config):
        return EnergyModelFolder(found.name, found.folder, energy_config(found.config, name))
    if not isinstance(found.config, EnergyConfig):
        return open_language_model(name)
    if found.config.kind == BIT and found.config.own_tokenizer:
        raise UserError(f"{name}: an encoder of a form that is no longer read: train it again")
    return EnergyModelFolder(found.name, found.folder, found.config)


def reader_for(config: "EnergyConfig", encoder: TextEncoder, own: str | None) -> Reader:
    """How a model reads windows of the ids that `encoder` explains."""
    if own is None:
        return PlainReader()
    return RetokenisingReader(encoder, Tokenizer.from_str(own), config.separator, config.positions)


def check_length(config: "EnergyConfig", window: int, of: str, name: str) -> None:
    if not config.own_tokenizer and config.longest is not None and window > config.longest:
        raise UserError(
            f"{of}: windows of {window} tokens do not fit the {config.positions} positions of {name}: make windows of "
            f"at most {config.longest}"
        )

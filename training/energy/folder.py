"""Trained energy models in folders, and how they read the windows of a store."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from pipeline.models.language_model import LanguageModelFolder, open_language_model
from pipeline.models.model_folder import ModelFolder, open_model_folder
from pipeline.runtime.errors import UserError
from pipeline.text.tokenizer import load_tokenizer
from training.energy.inputs import PlainReader, Reader, RetokenisingReader

if TYPE_CHECKING:
    from training.energy.model import EnergyConfig, EnergyModel

OWN_TOKENIZER = "encoder_tokenizer.json"


@dataclass(frozen=True)
class EnergyModelFolder(ModelFolder):
    """A trained energy model, known by its folder; its weights are read only when they are asked for."""

    config: "EnergyConfig"

    def load(self, device: str = "cpu", precision: str | None = None) -> "EnergyModel":
        """The network, ready to be used."""
        from training.energy.model import EnergyModel

        return self.load_as(EnergyModel, device, precision)

    @property
    def own_tokenizer(self) -> str | None:
        """The tokenizer of an encoder that has one of its own, as JSON."""
        if not self.config.own_tokenizer:
            return None
        path = os.path.join(self.folder, OWN_TOKENIZER)
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except OSError as error:
            raise UserError(f"{path}: the tokenizer of {self.name} cannot be read ({error})") from None

    def reader(self) -> Reader:
        return reader_for(self.config, self.folder, self.own_tokenizer)

    def check_fits(self, window: int, tokenizer: dict[str, Any], of: str) -> None:
        """Refuses windows (of `window` tokens, with a manifest's `tokenizer`) that this model cannot read."""
        if self.tokenizer_digest != tokenizer["digest"]:
            raise UserError(
                f"{of} and {self.name} have different vocabularies: take windows made with --tokenizer {self.name}"
            )
        check_length(self.config, window, of, self.name)


def open_energy_model(name: str) -> EnergyModelFolder:
    """From an energy model's folder, here or in a bucket, or from the hub by its name."""
    from training.energy.model import EnergyConfig  # its type becomes known to transformers, before it reads the folder

    found = open_model_folder(name, "energy model")
    if not isinstance(found.config, EnergyConfig):
        raise UserError(f"{name}: a {found.config.model_type} model, not an energy model")
    return EnergyModelFolder(found.name, found.folder, found.config)


def open_either(name: str) -> EnergyModelFolder | LanguageModelFolder:
    """An energy model, or a language model in its place, whose energy is minus the log-probability."""
    from training.energy.model import EnergyConfig

    is_energy = isinstance(open_model_folder(name).config, EnergyConfig)
    return open_energy_model(name) if is_energy else open_language_model(name)


def reader_for(config: "EnergyConfig", tokenizer: str, own: str | None) -> Reader:
    """How a model reads windows of the ids that `tokenizer` (a folder) explains."""
    if own is None:
        return PlainReader()
    separator = str(getattr(config, "separator", ""))
    return RetokenisingReader(load_tokenizer(tokenizer), Tokenizer.from_str(own), separator, config.positions)


def check_length(config: "EnergyConfig", window: int, of: str, name: str) -> None:
    if not config.own_tokenizer and config.longest is not None and window > config.longest:
        raise UserError(
            f"{of}: windows of {window} tokens do not fit the {config.positions} positions of {name}: make windows of "
            f"at most {config.longest}"
        )

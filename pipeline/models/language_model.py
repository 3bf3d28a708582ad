"""Language models in folders: in which direction they read, and whether they fit the windows at hand."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pipeline.models.model_folder import ModelFolder, open_model_folder
from pipeline.runtime.errors import UserError
from pipeline.text.tokenizer import load_tokenizer
from schemas.division import DIRECTIONS, LEFT_TO_RIGHT

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

OWN = "residual_ebm_"  # begins the model types that are this project's own, which nobody else's engine knows


@dataclass(frozen=True)
class LanguageModelFolder(ModelFolder):
    """A trained language model, known by its folder; its weights are read only when they are asked for."""

    @property
    def direction(self) -> str:
        """Right-to-left models read reversed windows; whoever trained one said so in its configuration."""
        return getattr(self.config, "direction", LEFT_TO_RIGHT)

    @property
    def vocabulary_size(self) -> int:
        return int(self.config.vocab_size)

    @property
    def positions(self) -> int | None:
        """How many tokens it can read, the first one, which precedes the window, included; None: any number."""
        return positions_of(self.config)

    @cached_property
    def start_token_id(self) -> int:
        """The token that precedes every window: BOS, or EOS where there is no BOS."""
        for id in (getattr(self.config, "bos_token_id", None), getattr(self.config, "eos_token_id", None)):
            if isinstance(id, int) and 0 <= id < self.vocabulary_size:
                return id
        return load_tokenizer(self.folder).eos_token_id

    def load(self, device: str = "cpu", precision: str | None = None) -> "PreTrainedModel":
        """The network, ready to be used."""
        from transformers import AutoModelForCausalLM

        return self.load_as(AutoModelForCausalLM, device, precision)

    def check_runs_elsewhere(self) -> None:
        """Refuses what no other engine than this project's own knows."""
        if str(self.config.model_type).startswith(OWN):
            raise UserError(f"{self.name}: vLLM has no {self.config.model_type} models: use --engine torch")

    def check_fits(self, window: int, tokenizer: dict[str, Any], of: str) -> None:
        """Refuses windows (of `window` tokens, with a manifest's `tokenizer`) that this model cannot read."""
        if self.tokenizer_digest != tokenizer["digest"]:
            raise UserError(
                f"{of} and {self.name} have different vocabularies: make the windows with --tokenizer {self.name}, "
                f"or take a model that was trained on such windows"
            )
        if self.vocabulary_size < tokenizer["vocabulary_size"]:
            raise UserError(
                f"{self.name}: the model knows {self.vocabulary_size} tokens, but its own tokenizer has "
                f"{tokenizer['vocabulary_size']}: the folder's files do not belong together"
            )
        if self.positions is not None and window + 1 > self.positions:
            raise UserError(
                f"{of}: windows of {window} tokens and the one that precedes them do not fit the {self.positions} "
                f"positions of {self.name}: make windows of at most {self.positions - 1}"
            )


def open_language_model(name: str) -> LanguageModelFolder:
    """From a model's folder, here or in a bucket, or from the hub by its name."""
    found = open_model_folder(name, "language model")
    config, model = found.config, LanguageModelFolder(found.name, found.folder, found.config)
    if not hasattr(config, "vocab_size"):
        raise UserError(f"{name}: config.json is not a language model's, there is no vocab_size in it")
    if any(architecture.endswith("MaskedLM") for architecture in config.architectures or []):
        raise UserError(f"{name}: a masked language model, which gives texts no probability and cannot sample")
    if model.direction not in DIRECTIONS:
        raise UserError(
            f"{name}: config.json has the direction {model.direction!r}, not one of {', '.join(DIRECTIONS)}"
        )
    return model


def positions_of(config: "PretrainedConfig") -> int | None:
    from pipeline.models.residual_lm import RalmConfig

    if isinstance(config, RalmConfig):
        both = [positions_of(part) for part in (config.base_config, config.residual_config)]
        return min((positions for positions in both if positions is not None), default=None)
    return getattr(config, "max_position_embeddings", None)

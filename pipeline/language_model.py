"""Language models in folders: which one it is, what it was trained on, and whether it fits the windows at hand."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.utils import logging

import pipeline.conv_lm  # noqa: F401  (its model type becomes known to transformers)
from pipeline import files
from pipeline.errors import UserError, first_line
from pipeline.residual_lm import RalmConfig
from pipeline.tokenizer import load_tokenizer

LEFT_TO_RIGHT, RIGHT_TO_LEFT = "left_to_right", "right_to_left"
DIRECTIONS = (LEFT_TO_RIGHT, RIGHT_TO_LEFT)
OWN = "residual_ebm_"  # begins the model types that are this project's own, which nobody else's engine knows
WEIGHTS = (".safetensors", ".bin")


@dataclass(frozen=True)
class LanguageModel:
    """A trained language model, known by its folder; its weights are read only when they are asked for."""

    name: str
    folder: str
    config: PretrainedConfig

    @property
    def direction(self) -> str:
        """Right-to-left models read reversed windows; whoever trained one said so in its configuration."""
        return getattr(self.config, "direction", LEFT_TO_RIGHT)

    @property
    def provenance(self) -> dict[str, Any]:
        """What its trainer wrote down: preset, corpus, seed, …; nothing for models from elsewhere."""
        return dict(getattr(self.config, "provenance", None) or {})

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

    @cached_property
    def tokenizer_digest(self) -> str:
        return load_tokenizer(self.folder).digest

    @cached_property
    def weights_digest(self) -> str:
        """Of the weight files: two folders with the same digest are the same model."""
        digest = hashlib.sha256()
        for path in self._weight_files():
            digest.update(os.path.basename(path).encode())
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()

    def load(self, device: str = "cpu") -> PreTrainedModel:
        """The network, ready to be used: fp32 on CPU, its own precision elsewhere."""
        self.check_weights()
        dtype = torch.float32 if device == "cpu" else "auto"
        try:
            with quiet():
                model = AutoModelForCausalLM.from_pretrained(self.folder, dtype=dtype)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise UserError(f"{self.name}: the model cannot be loaded ({first_line(error)})") from None
        return model.to(device).eval()

    def check_weights(self) -> None:
        """Refuses weights that are not numbers: everything made from them would be noise."""
        for path in self._weight_files():
            for tensor_name, tensor in _tensors(path):
                if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                    raise UserError(f"{path}: {tensor_name} has values that are not finite numbers: train it again")

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

    def _weight_files(self) -> list[str]:
        names = sorted(os.listdir(self.folder))
        for ending in WEIGHTS:
            if found := [name for name in names if name.endswith(ending)]:
                return [os.path.join(self.folder, name) for name in found]
        raise UserError(f"{self.name}: there are no weights in {self.folder} (*.safetensors)")


def open_language_model(name: str) -> LanguageModel:
    """From a model's folder, here or in a bucket, or from the hub by its name."""
    folder = _local_folder(name)
    if not os.path.isfile(os.path.join(folder, "config.json")):
        way_out = (
            "its training has not ended" if os.path.isdir(os.path.join(folder, "checkpoints")) else "check the path"
        )
        raise UserError(f"{name}: not a model's folder, there is no config.json: {way_out}")
    try:
        config = AutoConfig.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{name}: config.json is not a language model's ({first_line(error)})") from None
    model = LanguageModel(name, folder, config)
    if not hasattr(config, "vocab_size"):
        raise UserError(f"{name}: config.json is not a language model's, there is no vocab_size in it")
    if model.direction not in DIRECTIONS:
        raise UserError(
            f"{name}: config.json has the direction {model.direction!r}, not one of {', '.join(DIRECTIONS)}"
        )
    return model


def positions_of(config: PretrainedConfig) -> int | None:
    if isinstance(config, RalmConfig):
        both = [positions_of(part) for part in (config.base_config, config.residual_config)]
        return min((positions for positions in both if positions is not None), default=None)
    return getattr(config, "max_position_embeddings", None)


def _local_folder(name: str) -> str:
    if not files.is_local(name):
        return _from_bucket(name)
    return name if os.path.isdir(name) else _from_hub(name)


def _from_bucket(url: str) -> str:
    """A copy of the folder on this machine, made once, and again if a file has changed."""
    found = [(name, files.info(files.join(url, name))) for name in files.names_in(url)]
    wanted = [(name, info) for name, info in found if info.is_file]
    if not any(name == "config.json" for name, _ in wanted):
        raise UserError(f"{url}: not a model's folder, there is no config.json: check the path")
    key = json.dumps([url, [(name, info.size, info.mtime_ns) for name, info in wanted]])
    folder = os.path.join(tempfile.gettempdir(), f"residual-ebm-model-{hashlib.sha256(key.encode()).hexdigest()[:32]}")
    if not os.path.isdir(folder):
        temporary = tempfile.mkdtemp(dir=tempfile.gettempdir())
        for name, _ in wanted:
            with (
                files.open_random(files.join(url, name)) as source,
                open(os.path.join(temporary, name), "wb") as target,
            ):
                shutil.copyfileobj(source, target, 1 << 24)
        with suppress(OSError):  # somebody else was faster
            os.rename(temporary, folder)
    return folder


def _from_hub(name: str) -> str:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return snapshot_download(name, ignore_patterns=["*.h5", "*.msgpack", "*.onnx", "*.gguf", "*.ot", "*.tflite"])
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise UserError(
            f"{name}: neither a model's folder nor a hub name that can be reached ({first_line(error)})"
        ) from None


def _tensors(path: str) -> Iterator[tuple[str, torch.Tensor]]:
    try:
        if path.endswith(".safetensors"):
            with safe_open(path, framework="pt") as file:
                for name in list(file.keys()):  # it is no dictionary, and knows no other way
                    yield name, file.get_tensor(name)
        else:
            yield from torch.load(path, map_location="cpu", weights_only=True).items()
    except (OSError, SafetensorError, RuntimeError) as error:
        raise UserError(f"{path}: these weights cannot be read ({first_line(error)})") from None


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars of transformers' own while a model is read or written: ours say what is going on."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()

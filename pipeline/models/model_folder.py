"""Models in folders, here, in a bucket or on the hub: which one it is, and whether its files are sound."""

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from safetensors import SafetensorError, safe_open

from pipeline.models.file_digests import check_file, file_digest, known_digests
from pipeline.models.precision import BF16, FP16, FP32, hardware_of, loading_dtype
from pipeline.runtime import files
from pipeline.runtime.errors import UserError, first_line
from pipeline.runtime.hub import HUB, is_hub, reason
from pipeline.runtime.private import private_folder
from pipeline.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel

WEIGHTS = ".safetensors"  # alone: other files of weights are pickles, which can run what whoever made them wants
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
STORED = {"F32": FP32, "BF16": BF16, "F16": FP16}
Network = TypeVar("Network", bound="PreTrainedModel")


@dataclass(frozen=True)
class ModelFolder:
    """A trained model, known by its folder; its weights are read only when they are asked for."""

    name: str
    folder: str
    config: "PretrainedConfig"

    @property
    def provenance(self) -> dict[str, Any]:
        """What its trainer wrote down: preset, corpus, seed, …; nothing for models from elsewhere."""
        known = getattr(self.config, "provenance", None) or {}
        if not isinstance(known, dict):
            raise UserError(f"{self.name}: config.json: provenance is no object, but {type(known).__name__}")
        return dict(known)

    @cached_property
    def tokenizer_digest(self) -> str:
        return load_tokenizer(self.folder).digest

    @cached_property
    def weights_digest(self) -> str:
        """Of the weight files: two folders with the same digest are the same model."""
        digest = hashlib.sha256()
        for path in self._weight_files():
            digest.update(os.path.basename(path).encode())
            digest.update(bytes.fromhex(file_digest(path)))
        return digest.hexdigest()

    @cached_property
    def parameters(self) -> int:
        """How many numbers there are in the weight files."""
        total = 0
        for path in self._weight_files():
            with _reading(path), safe_open(path, framework="pt") as file:
                total += sum(math.prod(file.get_slice(name).get_shape()) for name in list(file.keys()))
        return total

    @cached_property
    def precision(self) -> str:
        """That of most of the weights."""
        sizes: dict[str, int] = {}
        for path in self._weight_files():
            with _reading(path), safe_open(path, framework="pt") as file:
                for name in list(file.keys()):
                    own = file.get_slice(name)
                    kind = STORED.get(own.get_dtype(), FP32)
                    sizes[kind] = sizes.get(kind, 0) + math.prod(own.get_shape())
        return max(sizes, key=lambda kind: sizes[kind], default=FP32)

    def check_weights(self) -> None:
        """Refuses weights that are not those of the training, or not numbers: what is made of them would be noise."""
        for path in self._weight_files():
            check_file(path)
            for tensor_name, tensor in _tensors(path):
                if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                    raise UserError(f"{path}: {tensor_name} has values that are not finite numbers: train it again")

    def load_as(self, kind: type[Network], device: str, precision: str | None = None) -> Network:
        """The network, ready to be used: fp32 on CPU, its own precision elsewhere. `kind` has `from_pretrained`."""
        self.check_weights()
        dtype = loading_dtype(precision, getattr(self.config, "dtype", None), hardware_of(device))
        try:
            with quiet():
                model = kind.from_pretrained(self.folder, dtype=dtype, use_safetensors=True, trust_remote_code=False)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise UserError(f"{self.name}: the model cannot be loaded ({first_line(error)})") from None
        return model.to(device).eval()

    def _weight_files(self) -> list[str]:
        names = sorted(os.listdir(self.folder))
        if found := [name for name in names if name.endswith(WEIGHTS)]:
            return [os.path.join(self.folder, name) for name in found]
        if pickles := [name for name in names if name.endswith(PICKLES)]:
            raise UserError(
                f"{os.path.join(self.folder, pickles[0])}: a pickle, which can run programs of whoever made it, and is "
                f"not read: convert it to model.safetensors where you trust it (from_pretrained, save_pretrained)"
            )
        raise UserError(f"{self.name}: there are no weights in {self.folder} (*.safetensors)")


def open_model_folder(name: str, kind: str = "model") -> ModelFolder:
    """From a model's folder, here or in a bucket, or from the hub by its name."""
    from transformers import AutoConfig  # seconds, which no flag needs

    import pipeline.models.residual_lm  # noqa: F401  (conv's type and ralm's become known to transformers)

    folder = _local_folder(name)
    if not os.path.isfile(os.path.join(folder, "config.json")):
        way_out = (
            "its training has not ended" if os.path.isdir(os.path.join(folder, "checkpoints")) else "check the path"
        )
        raise UserError(f"{name}: not a model's folder, there is no config.json: {way_out}")
    for other in known_digests(folder):
        if not other.endswith(WEIGHTS):  # these are large, and checked when they are read
            check_file(os.path.join(folder, other))
    try:
        # A config.json may name a class in a file beside it (auto_map). That is a program of whoever made the folder:
        # without this word transformers would ask at the terminal whether to run it.
        return ModelFolder(name, folder, AutoConfig.from_pretrained(folder, trust_remote_code=False))
    except Exception as error:  # transformers checks little, and stumbles in many ways
        raise UserError(f"{name}: config.json is not that of a {kind} ({first_line(error)})") from None


def _local_folder(name: str) -> str:
    if is_hub(name):
        return _from_hub(name.removeprefix(HUB))
    if not files.is_local(name):
        return _from_bucket(name)
    if os.path.isdir(name):
        return name
    if os.path.isabs(name) or name.startswith((".", "~")) or name.count("/") > 1:  # what no hub name looks like
        raise UserError(f"{name}: there is no such folder: check the path")
    return _from_hub(name)


def _from_bucket(url: str) -> str:
    """A copy of the folder on this machine, made once, and again if a file has changed."""
    found = [(name, files.info(files.join(url, name))) for name in files.names_in(url)]
    wanted = [(name, info) for name, info in found if info.is_file]
    if not any(name == "config.json" for name, _ in wanted):
        raise UserError(f"{url}: not a model's folder, there is no config.json: check the path")
    key = json.dumps([url, [(name, info.size, info.mtime_ns) for name, info in wanted]])
    own = private_folder()  # nobody else can put weights there first
    folder = os.path.join(own, f"model-{hashlib.sha256(key.encode()).hexdigest()[:32]}")
    if not os.path.isdir(folder):
        temporary = tempfile.mkdtemp(dir=own)
        for name, info in wanted:
            target = os.path.join(temporary, name)
            files.copy(files.join(url, name), target)
            if os.path.getsize(target) != info.size:
                raise UserError(f"{files.join(url, name)}: it changed while it was copied: run the same command again")
        with suppress(OSError):  # somebody else was faster
            os.rename(temporary, folder)
    return folder


NOT_READ = ["*.h5", "*.msgpack", "*.onnx", "*.gguf", "*.ot", "*.tflite", *(f"*{ending}" for ending in PICKLES)]


def _from_hub(name: str) -> str:
    """The folder of a hub name, `user/name` or `user/name@revision`, in the hub's own cache."""
    from huggingface_hub import snapshot_download

    repo, _, revision = name.partition("@")
    try:
        return snapshot_download(repo, revision=revision or None, ignore_patterns=NOT_READ)
    except Exception as error:
        if (why := reason(error)) is None and not isinstance(error, OSError):
            raise
        raise UserError(
            f"{name}: neither a model's folder nor a hub name that can be reached ({why or first_line(error)})"
        ) from None


def _tensors(path: str) -> "Iterator[tuple[str, torch.Tensor]]":
    with _reading(path), safe_open(path, framework="pt") as file:
        for name in list(file.keys()):  # it is no dictionary, and knows no other way
            yield name, file.get_tensor(name)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        raise UserError(f"{path}: these weights cannot be read ({first_line(error)})") from None


@contextmanager
def quiet() -> Iterator[None]:
    """No bars and tables of transformers' own while a model is read or written: ours say what is going on."""
    from transformers.utils import logging

    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()

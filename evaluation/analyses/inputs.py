"""What analyses read: stores, models, samples of the joint model, and the settings that name them.

What is missing is named with the command that makes it.
"""

import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from evaluation.joint.scorers import LikelihoodScorer, Scorer, energy_scorer
from pipeline.models.language_model import LanguageModelFolder, open_language_model
from pipeline.models.model_folder import ModelFolder
from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from pipeline.runtime.settings import setting
from pipeline.stores.manifest import MANIFEST, read_record
from pipeline.stores.reader import Store
from schemas.division import join
from schemas.results import SAMPLES_FILE
from training.energy.folder import EnergyModelFolder, open_energy_model
from training.energy.inputs import Sequences, pad

MADE_BY = {
    "windows": "python pipeline/make_windows.py --input TEXTS --split test --output {}",
    "negatives": "python pipeline/mine_negatives.py --windows STORE --generator LM --output {}",
    "energies": "python evaluation/score.py --energy MODEL --store NEGATIVES --output {}",
    "samples": "python evaluation/sample_joint.py --energy MODEL --generator LM --windows STORE --output {}",
    "energy": "deepspeed training/train_energy.py --preset NAME --train NEGATIVES --valid NEGATIVES --output {}",
    "language": "deepspeed training/train_lm.py --preset NAME --train WINDOWS --valid WINDOWS --output {}",
}
Tokens = NDArray[np.int32]


def energy_setting(help: str = "an energy model") -> Any:
    return setting(help=help, metavar="DIR_OR_NAME")


def generator_setting(help: str = "the language model") -> Any:
    return setting(help=help, metavar="DIR_OR_NAME")


def samples_setting() -> Any:
    return setting(help="made by evaluation/sample_joint.py", metavar="DIR")


def store_setting(help: str = "negatives", several: bool = False) -> Any:
    return setting(help=help, metavar="STORE", several=several)


def limit_setting(default: int) -> Any:
    return setting(default, help=f"the first N windows (default: {default})", metavar="N", least=1)


def seed_setting(of: str) -> Any:
    return setting(0, help=f"of {of} (default: 0)")


def store_of(path: str, kind: str) -> Store:
    """A finished store of windows, negatives or energies."""
    if not files.is_file(files.join(path, MANIFEST)):
        raise UserError(f"{path}: no finished store of {kind} there: {MADE_BY[kind].format(path)}")
    return Store(path, kind=kind)


def energy_of(name: str) -> EnergyModelFolder:
    try:
        return open_energy_model(name)
    except UserError as error:
        raise _with_way_out(error, name, "energy") from None


def language_model_of(name: str) -> LanguageModelFolder:
    try:
        return open_language_model(name)
    except UserError as error:
        raise _with_way_out(error, name, "language") from None


def scorers_for(store: Store, energy: EnergyModelFolder, generator: LanguageModelFolder) -> tuple[Scorer, Scorer]:
    """Both models, as what gives the store's windows energies: E, and minus the log-probability."""
    window = int(store.manifest.settings["window"])
    for model in (energy, generator):
        model.check_fits(window, store.manifest.tokenizer, store.path)
    return energy_scorer(energy), LikelihoodScorer(generator.name, window)


def energies_of(windows: Sequence[Tokens], scorer: Scorer) -> NDArray[np.float64]:
    """Of windows of any length that have nothing in common."""
    padded = pad(windows)
    return scorer.energies(Sequences(padded.ids[None], padded.lengths[None]), 0)[0]


@dataclass(frozen=True)
class JointSamples:
    """The rows of evaluation/sample_joint.py, and the settings that it wrote down."""

    path: str
    digest: str
    settings: dict[str, Any]
    table: pa.Table

    def completions(self, name: str) -> list[Tokens]:
        """The real ones, those of the base model, or those chosen by the joint one: real, base, chosen, best, worst."""
        if name not in self.table.column_names:
            way_out = "with --energy MODEL" if self.settings.get("energy") is None else "without --autoregressive"
            raise UserError(f"{self.path}: {name!r} completions are not there: sample {way_out}")
        if self.table[name].null_count:
            raise UserError(f"{self.path}: prompts have no real completion: sample with --windows STORE")
        return [np.array(ids, np.int32) for ids in self.table[name].to_pylist()]

    def contexts(self) -> list[Tokens]:
        return [np.array(ids, np.int32) for ids in self.table["context"].to_pylist()]

    @property
    def direction(self) -> str:
        return str(self.settings["direction"])

    def windows(self, name: str) -> list[Tokens]:
        """Contexts and completions put together, in text order."""
        pairs = zip(self.contexts(), self.completions(name), strict=True)
        return [join(context, completion, self.direction) for context, completion in pairs]

    @property
    def has_real(self) -> bool:
        return not self.table["real"].null_count

    def check_model(self, model: ModelFolder, role: str) -> None:
        """Refuses another generator or energy than the one these samples come from."""
        if model.weights_digest != self.settings[role]:
            raise UserError(f"--{role} {model.name}: the samples of {self.path} are another model's")


AnalysisInput = Store | ModelFolder | JointSamples


def describe_input(option: str, given: AnalysisInput) -> dict[str, str]:
    """An input as analysis.json lists it."""
    if isinstance(given, ModelFolder):
        return {"option": option, "path": given.name, "digest": given.weights_digest}
    digest = given.manifest.digest if isinstance(given, Store) else given.digest
    return {"option": option, "path": given.path, "digest": digest}


def samples_of(path: str) -> JointSamples:
    """The folder that evaluation/sample_joint.py made."""
    url, record = files.join(path, SAMPLES_FILE), read_record(path)
    if not files.is_file(url) or record is None:
        raise UserError(f"{path}: no samples of a joint model there: {MADE_BY['samples'].format(path)}")
    content = files.read(url)
    try:
        table = pq.read_table(io.BytesIO(content))
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{url}: cannot be read ({error}): {MADE_BY['samples'].format(path)} --overwrite") from None
    if "base" not in table.column_names or "direction" not in record.settings:
        raise UserError(
            f"{path}: made before the base model's samples were kept: {MADE_BY['samples'].format(path)} --overwrite"
        )
    return JointSamples(path, hashlib.sha256(content).hexdigest(), record.settings, table)


def _with_way_out(error: UserError, name: str, kind: str) -> UserError:
    missing = files.is_local(name) and not os.path.isdir(name)
    return UserError(f"{error}: {MADE_BY[kind].format(name)}") if missing else error

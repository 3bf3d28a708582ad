"""A trained sequence classifier at work in vLLM: a decoder's contexts are read once for all of their completions."""

import numpy as np

from evaluation.joint.scorers import Energies
from pipeline.engines.choice import EngineOptions
from pipeline.engines.vllm_classifier import VllmClassifier
from pipeline.models.model_folder import ModelFolder, open_model_folder
from pipeline.runtime.errors import UserError
from training.energy.folder import EnergyModelFolder
from training.energy.inputs import Sequences
from training.energy.names import CLASSIFIER


class VllmScorer:
    """An energy model of the presets encoder and decoder."""

    def __init__(self, model: ModelFolder, window: int, precision: str | None = None):
        if not isinstance(model, EnergyModelFolder) or model.config.kind != CLASSIFIER:
            raise UserError(
                f"--engine vllm: {model.name} is no sequence classifier (those of --preset encoder and decoder are): "
                f"use --engine torch"
            )
        self.reader, self.start = model.reader(), [] if model.config.start_id is None else [model.config.start_id]
        longest = window + len(self.start) if not model.config.own_tokenizer else model.config.positions
        options = EngineOptions(precision=precision)
        self.engine = VllmClassifier(open_model_folder(model.name), longest or window * 4, options)

    def energies(self, windows: Sequences, context_length: int) -> Energies:
        read = self.reader.read(windows)
        ids, lengths = read.ids.reshape(-1, read.ids.shape[-1]), read.lengths.ravel()
        sequences = [np.array([*self.start, *row[:length]]) for row, length in zip(ids, lengths, strict=True)]
        return -self.engine.logits(sequences).reshape(read.lengths.shape)

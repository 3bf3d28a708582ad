"""Sequence classifiers in vLLM's pooling runner: the logit of each sequence, contexts shared where they can be."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.engines.choice import USUAL, EngineOptions
from pipeline.engines.vllm_process import LOCK, VllmProcess
from pipeline.models.model_folder import ModelFolder


class VllmClassifier(VllmProcess):
    """A classifier of one label, of sequences of at most so many tokens."""

    def __init__(self, model: ModelFolder, longest: int, options: EngineOptions = USUAL):
        self.window_length = longest
        super().__init__(model, options)

    def logits(self, sequences: Sequence[NDArray[np.integer]]) -> NDArray[np.float64]:
        """Raw ones, one a sequence of ids."""
        with LOCK:
            llm = self.started()
            from vllm import PoolingParams

            inputs = [{"prompt_token_ids": ids.tolist()} for ids in sequences]
            try:
                outputs = llm.encode(
                    inputs, PoolingParams(use_activation=False), pooling_task="classify", use_tqdm=False
                )
            except BaseException:
                self.close()  # requests that are half done must not come back with the next call's
                raise
        return np.array([float(output.outputs.data) for output in outputs])

    def settings(self) -> dict[str, Any]:
        return {"runner": "pooling", "max_model_len": self.window_length}

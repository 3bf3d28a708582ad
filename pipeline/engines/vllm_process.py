"""vLLM in this process, whatever it is for: one engine at a time, with what the machine has.

vLLM is imported only when an engine starts. A process can hold one engine at a time: starting or using another one
closes the one before it.
"""

import contextlib
import gc
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch

from pipeline.engines.choice import EngineOptions
from pipeline.engines.environment import prepare_environment
from pipeline.engines.vllm_models import check_heads_on_cpu, head_size
from pipeline.models.model_folder import ModelFolder
from pipeline.models.precision import FP32, dtype_of
from pipeline.runtime.errors import UserError, first_line

SEQUENCES = 256  # at once, vLLM's own default
CPU_BLOCK = 32  # tokens of the cache that are shared as one: vLLM's default of 128 would share no context of 120

LOCK = threading.RLock()
_running: "VllmProcess | None" = None


class VllmProcess(ABC):
    """A model in an engine of vLLM's, which sequences of so many tokens fit."""

    window_length: int

    def __init__(self, model: ModelFolder, options: EngineOptions):
        self.model, self.options = model, options
        self._llm: Any = None
        model.check_weights()
        with LOCK:
            self.started()

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What vLLM is told of the work."""

    def close(self) -> None:
        """Gives memory and vLLM's place in the process back; the engine starts again if it is used again."""
        global _running
        with LOCK:
            if self._llm is not None:
                self._llm.llm_engine.engine_core.shutdown()
                self._llm = None
                _running = None
                gc.collect()

    def started(self) -> Any:
        """vLLM's own engine; started if another one has taken its place in the meantime."""
        global _running
        if self._llm is None:
            if _running is not None:
                _running.close()
            self._llm = self._start()
            _running = self
        return self._llm

    def _start(self) -> Any:
        prepare_environment()
        try:
            from vllm import LLM
            from vllm.distributed.parallel_state import cleanup_dist_env_and_memory
        except ImportError as error:
            raise UserError(
                f"--engine vllm: vLLM cannot be imported ({first_line(error)}): install the extra mining-cpu or "
                f"mining-gpu, or use --engine torch"
            ) from None
        place = self._gpu_settings() if torch.cuda.is_available() else self._cpu_settings()
        logging.getLogger(__name__).info("%s: an engine of vLLM with %s", self.model.name, place)
        try:
            with _threads_left_alone():
                return LLM(
                    model=self.model.folder,
                    trust_remote_code=False,
                    use_tqdm_on_load=False,
                    seed=0,
                    **place,
                    **self.settings(),
                )
        except Exception as error:  # whatever vLLM has against a model, it says with an exception of any kind
            cleanup_dist_env_and_memory()  # or no other engine could start in this process
            raise UserError(f"{self.model.name}: vLLM cannot load it ({error}): use --engine torch") from error

    def _dtype(self, usual: str) -> torch.dtype:
        return dtype_of(self.options.precision or usual)

    def _gpu_settings(self) -> dict[str, Any]:
        """In the weights' own precision: vLLM's would be 16 bits, and log-probabilities those of another model."""
        return {
            "dtype": self._dtype(self.model.precision),
            "gpu_memory_utilization": self.options.gpu_memory,
            "max_num_seqs": self.options.sequences or SEQUENCES,
            "tensor_parallel_size": self.options.tensor_parallel,
        }

    def _cpu_settings(self) -> dict[str, Any]:
        import psutil

        check_heads_on_cpu(self.model)
        config = self.model.config
        # Without a limit vLLM takes nearly all of the memory. A quarter of what is free is enough for any batch that
        # is worth having, and no more is taken than so many sequences fill.
        blocks = -(-(self.window_length + 1) // CPU_BLOCK)
        heads = int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)
        token = 2 * 4 * int(config.num_hidden_layers) * head_size(self.model) * heads
        sequence = blocks * CPU_BLOCK * token
        sequences = self.options.sequences or max(1, min(SEQUENCES, psutil.virtual_memory().available // 4 // sequence))
        return {
            "dtype": self._dtype(FP32),
            "enforce_eager": True,
            "block_size": CPU_BLOCK,
            "max_num_seqs": sequences,
            "kv_cache_memory_bytes": (sequences + 1) * sequence,
        }


@contextlib.contextmanager
def _threads_left_alone() -> Iterator[None]:
    """vLLM takes `torch.set_num_threads` away from the whole process, for good; what comes after must have it back."""
    set_num_threads = torch.set_num_threads
    try:
        yield
    finally:
        torch.set_num_threads = set_num_threads

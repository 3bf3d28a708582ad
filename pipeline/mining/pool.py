"""The generators of a mining run on one machine: each loaded once, whatever the number of worker processes.

With one worker process and one engine they are in that process. Otherwise each is a process of its own, which the
workers of a machine share: a vLLM engine fills an accelerator, and a process can hold only one.
"""

import logging
import threading
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from pipeline.engines.choice import VLLM, EngineOptions
from pipeline.engines.generator import Generator, open_generator
from pipeline.engines.sampling import NUCLEUS, Sampling
from pipeline.mining.job import MiningJob, StoreJob
from pipeline.mining.rows import Sampler
from pipeline.runtime.digests import digest_of
from pipeline.runtime.private import meeting_folder, private_key
from pipeline.stores.reader import Store

MEETING = "mining"  # where the workers of a machine find out which process holds a generator, and the key to it
_here: dict[str, Generator] = {}  # of this process, loaded by whichever worker thread came first
_loading = threading.Lock()


class GeneratorPool:
    """The generators of a job, loaded when they are first asked for."""

    def __init__(self, job: MiningJob):
        self.job = job
        self.window = int(Store(job.settings.windows).manifest.settings["window"])
        self.shared: dict[str, tuple[Any, Any]] = {}

    def get(self, number: int) -> Sampler:
        """The generator of a store; stores that differ in a rule that the engine can change share one."""
        store = self.job.stores[number]
        # Which log-probabilities vLLM reports is fixed when it starts, so nucleus sampling has an engine of its own.
        nucleus = store.sampling.rule == NUCLEUS
        key = digest_of({"model": store.description, "engine": store.engine, "nucleus": nucleus})
        if not self.job.shared:
            with _loading:
                if key not in _here:
                    _here[key] = opened(store, self.window, self.job.options)
                return _here[key].with_sampling(store.sampling)
        if key not in self.shared:
            self.shared[key] = self._acquire(store, key)
        return _RemoteGenerator(self.shared[key][1], store.sampling)

    def _acquire(self, store: StoreJob, key: str) -> tuple[Any, Any]:
        from apache_beam.utils import multi_process_shared
        from apache_beam.utils.multi_process_shared import MultiProcessShared

        folder = meeting_folder(MEETING, self.job.run)
        # The server unpickles whatever it gets from a process that knows the key. Beam's own is the same everywhere and
        # known to all; this one is of this run, and can be read by this user alone.
        multi_process_shared.AUTH_KEY = private_key(folder)
        constructor = partial(_GeneratorServer, store, self.window, self.job.options)
        shared = MultiProcessShared(constructor, key[:16], path=folder, always_proxy=True, spawn_process=True)
        return shared, shared.acquire()

    def forget(self) -> None:
        """Lets go of engines that may be broken: they are started anew when they are asked for again."""
        self.shared = {}
        close_all()

    def release(self) -> None:
        """Lets go of the engines; those that this process started end."""
        for shared, proxy in self.shared.values():
            with suppress(OSError, EOFError, RuntimeError):  # it may have ended by itself
                shared.release(proxy)
                if hasattr(shared, "_life_line"):
                    shared.unsafe_hard_delete()
        self.shared = {}


class _GeneratorServer:
    """A generator in a process of its own; rules come with each call."""

    def __init__(self, store: StoreJob, window: int, options: EngineOptions):
        logging.disable(logging.WARNING)  # Beam's server speaks of its coming and going; what fails is raised
        self.generator = opened(store, window, options)

    def sample(self, sampling: Sampling, *request: Any) -> Any:
        return self.generator.with_sampling(sampling).sample(*request)

    def sample_and_score(self, sampling: Sampling, *request: Any) -> Any:
        return self.generator.with_sampling(sampling).sample_and_score(*request)


class _RemoteGenerator:
    """A generator in another process, as one here."""

    def __init__(self, proxy: Any, sampling: Sampling):
        self.proxy, self.sampling = proxy, sampling

    def sample(self, *request: Any) -> Any:
        return self.proxy.sample(self.sampling, *request)

    def sample_and_score(self, *request: Any) -> Any:
        return self.proxy.sample_and_score(self.sampling, *request)


def opened(store: StoreJob, window: int, options: EngineOptions) -> Generator:
    """A generator for mining, which scores as many completions as it samples."""
    generator = open_generator(store.generator, store.sampling, store.engine, window_length=window, options=options)
    on_cpu = store.engine == VLLM and not torch.cuda.is_available()
    return generator.scored_by_torch() if on_cpu else generator


def close_all() -> None:
    """Closes the generators of this process."""
    while _here:
        _here.popitem()[1].close()

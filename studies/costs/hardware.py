"""Machines: what they can do at most, what is assumed to be reached of it, and how long work takes on them."""

from dataclasses import dataclass

FP32, TF32, BF16, FP16 = "fp32", "tf32", "bf16", "fp16"
BYTES = {FP32: 4, TF32: 4, BF16: 2, FP16: 2}  # of a number
CACHE_SHARE = 0.9  # of a GPU's memory that vLLM fills with weights and caches, its default
DAY = 86_400.0


@dataclass(frozen=True)
class Accelerator:
    """The maker's figures: FLOP/s of dense products by precision, bytes/s, bytes; and vLLM's default sequences."""

    flops: dict[str, float]
    bandwidth: float
    memory: float
    sequences: int = 256


def _gpu(
    sixteen: float, tf32: float, fp32: float, bandwidth: float, memory: float, sequences: int = 256
) -> Accelerator:
    """From TFLOP/s, TB/s and GB."""
    flops = {FP16: sixteen, BF16: sixteen, TF32: tf32, FP32: fp32}
    return Accelerator({name: 1e12 * rate for name, rate in flops.items()}, 1e12 * bandwidth, 1e9 * memory, sequences)


# NVIDIA's data sheets, without sparsity. vLLM runs 1024 sequences at once on GPUs of 70 GiB and more that are no A100.
ACCELERATORS = {
    "a100": _gpu(312, 156, 19.5, 2.04, 80),
    "a100-40gb": _gpu(312, 156, 19.5, 1.56, 40),
    "h100": _gpu(989, 495, 67, 3.35, 80, 1024),
    "h200": _gpu(989, 495, 67, 4.8, 141, 1024),
    "l40s": _gpu(362, 183, 91.6, 0.864, 48),
    "l4": _gpu(121, 60, 30.3, 0.3, 24),
    "v100": Accelerator({FP16: 125e12, FP32: 15.7e12}, 0.9e12, 32e9),
    "t4": Accelerator({FP16: 65e12, FP32: 8.1e12}, 0.32e12, 16e9),
    # One core of the machine that this was written on (AVX2, measured), which has no use for 16 bits.
    "cpu-core": Accelerator({FP32: 67e9}, 10e9, 8e9),
}


@dataclass(frozen=True)
class Machine:
    """An accelerator, and what is assumed of how well it is used."""

    accelerator: Accelerator
    train_utilisation: float
    score_utilisation: float
    sample_utilisation: float
    fp32_utilisation: float
    bandwidth_utilisation: float
    sample_ms: float
    tokens_per_second: float | None = None

    def precision(self, wanted: str) -> str:
        """What a network really runs in: fp32 where there is no unit for 16 bits, the other 16 bits where one is."""
        if wanted in self.accelerator.flops:
            return wanted
        return FP16 if wanted == BF16 and FP16 in self.accelerator.flops else FP32

    def rate(self, precision: str, utilisation: float) -> float:
        """FLOP/s that are reached; plain fp32 has its own share, being far slower to compute than to fetch."""
        precision = self.precision(precision)
        share = self.fp32_utilisation if precision == FP32 else utilisation
        return self.accelerator.flops[precision] * share

    def train_seconds(self, flops: float, precision: str) -> float:
        return flops / self.rate(precision, self.train_utilisation)

    def score_seconds(self, flops: float, precision: str) -> float:
        return flops / self.rate(precision, self.score_utilisation)

    def sample_seconds(self, work: "Sampling") -> float:
        """Reading the contexts, then one token of every sequence at a time: as fast as the slowest of three allows."""
        if self.tokens_per_second is not None:
            return work.generated / self.tokens_per_second
        reading = work.read_flops / self.rate(work.precision, self.sample_utilisation)
        return reading + max(self.compute_seconds(work), self.memory_seconds(work), self.engine_seconds(work))

    def compute_seconds(self, work: "Sampling") -> float:
        """The generated tokens' arithmetic."""
        return work.generated * work.token_flops / self.rate(work.precision, self.sample_utilisation)

    def memory_seconds(self, work: "Sampling") -> float:
        """Every step fetches all weights once, and of every sequence what it remembers of the tokens before."""
        steps = work.generated / self.sequences(work)
        fetched = steps * work.weight_bytes + work.generated * work.length * work.cache_bytes
        return fetched / (self.accelerator.bandwidth * self.bandwidth_utilisation)

    def engine_seconds(self, work: "Sampling") -> float:
        """The engine's own work on every request, on the host."""
        return work.samples * self.sample_ms / 1000

    def sequences(self, work: "Sampling") -> float:
        """How many are sampled at once: as many as the engine takes, there are, and memory holds."""
        free = self.accelerator.memory * CACHE_SHARE - work.weight_bytes
        fits = free / (work.length * work.cache_bytes) if work.cache_bytes else float("inf")
        return max(1.0, min(work.sequences or self.accelerator.sequences, work.samples, fits))


@dataclass(frozen=True)
class Sampling:
    """Completions to be drawn, as far as a machine has to know."""

    samples: float
    generated: float  # tokens
    length: float  # of a sequence, context included, on average while it grows
    read_flops: float  # for the contexts, each once for all of its samples
    token_flops: float  # of one generated token
    weight_bytes: float
    cache_bytes: float  # that a sequence has for each of its tokens
    precision: str
    sequences: int | None = None  # at once, where the engine has a limit of its own

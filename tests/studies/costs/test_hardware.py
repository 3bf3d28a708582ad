"""How long work takes: closed forms, and a rate that somebody has measured and published."""

from dataclasses import replace

import pytest

from studies.costs.hardware import ACCELERATORS, BF16, FP16, FP32, Machine, Sampling

A100 = Machine(ACCELERATORS["a100"], 0.4, 0.5, 0.4, 0.65, 0.7, 1.5)
WORK = Sampling(
    samples=1e6,
    generated=4e7,
    length=140,
    read_flops=1e12,
    token_flops=4e8,
    weight_bytes=4e8,
    cache_bytes=5e4,
    precision=BF16,
)


def test_arithmetic_takes_its_share_of_the_peak():
    assert A100.train_seconds(312e12, FP16) == pytest.approx(1 / 0.4)
    assert A100.score_seconds(312e12, BF16) == pytest.approx(1 / 0.5)
    assert A100.train_seconds(19.5e12, FP32) == pytest.approx(1 / 0.65)


def test_machines_without_a_unit_for_a_precision_take_what_they_have():
    assert replace(A100, accelerator=ACCELERATORS["v100"]).precision(BF16) == FP16
    assert replace(A100, accelerator=ACCELERATORS["cpu-core"]).precision(FP16) == FP32


def test_sampling_is_as_slow_as_the_slowest_of_three():
    """256 at once: a step has 256 tokens, the weights once, and 140 tokens of 256 sequences."""
    steps = 4e7 / 256
    compute = 4e7 * 4e8 / (312e12 * 0.4)
    memory = steps * (4e8 + 256 * 140 * 5e4) / (2.04e12 * 0.7)
    engine = 1e6 * 1.5e-3
    read = 1e12 / (312e12 * 0.4)
    assert A100.compute_seconds(WORK) == pytest.approx(compute)
    assert A100.memory_seconds(WORK) == pytest.approx(memory)
    assert compute < memory < engine
    assert A100.sample_seconds(WORK) == pytest.approx(read + engine)
    quick = replace(A100, sample_ms=0.0)
    assert quick.sample_seconds(WORK) == pytest.approx(read + memory)
    large = replace(WORK, token_flops=4e9, cache_bytes=0.0)
    assert quick.sample_seconds(large) == pytest.approx(read + 10 * compute)
    assert replace(A100, tokens_per_second=1e4).sample_seconds(WORK) == pytest.approx(4e3)


def test_no_more_sequences_run_at_once_than_memory_holds():
    assert A100.sequences(WORK) == 256
    assert A100.sequences(replace(WORK, samples=10)) == 10
    assert A100.sequences(replace(WORK, sequences=32)) == 32
    assert A100.sequences(replace(WORK, length=10_000)) == pytest.approx((0.9 * 80e9 - 4e8) / (10_000 * 5e4))


def test_a_published_rate_is_met():
    """Hugging Face's FinePhrase: 9,200 tokens/s of SmolLM2-1.7B on one H100, 359 tokens a text.

    24 layers of 2048, all heads with keys of their own. How long the documents before them are is not said; of a
    thousand tokens or so. (Theirs guesses tokens ahead, which this knows nothing of.)
    """
    parameters, prompt, made = 1.71e9, 1000, 359
    work = Sampling(
        samples=1e6,
        generated=1e6 * made,
        length=prompt + made / 2,
        read_flops=1e6 * prompt * 2 * parameters,
        token_flops=2 * parameters,
        weight_bytes=2 * parameters,
        cache_bytes=2 * 2 * 24 * 2048,
        precision=BF16,
    )
    machine = replace(A100, accelerator=ACCELERATORS["h100"])
    assert work.generated / machine.sample_seconds(work) == pytest.approx(9_200, rel=0.25)

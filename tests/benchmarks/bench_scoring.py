"""How fast a store is scored, against a bare forward loop, and what sharing a context saves a causal energy.

All contenders take turns in one process, with the models loaded; windows of 160 tokens, contexts of 120, 100 samples.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
import pyarrow as pa
import torch
from side_by_side import Duel, print_duels, print_header, show

import schemas
from evaluation.joint.energy_scorer import EnergyScorer
from evaluation.joint.scorers import score_rows
from training.energy.inputs import PlainReader, completed
from training.energy.model import EnergyModel
from training.energy.presets import PRESETS

ROUNDS, ROWS, SAMPLES, PIECES = 5, 4, 100, 4096


def main() -> None:
    rows = make_rows()
    scorers = {name: scorer(name) for name in ("bit-tiny", "unit-tiny")}
    contenders: dict[str, Callable[[], object]] = {
        "score, bit": lambda: score_rows(rows, scorers["bit-tiny"]),
        "bare loop, bit": lambda: bare(rows, scorers["bit-tiny"].model),
        "score, unit": lambda: score_rows(rows, scorers["unit-tiny"]),
        "bare loop, unit": lambda: bare(rows, scorers["unit-tiny"].model),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(ROUNDS + 1):  # the first round warms up
        for name, work in contenders.items():
            started = time.perf_counter()
            work()
            if number:
                seconds[name].append(time.perf_counter() - started)
            show(f"round {number} of {ROUNDS}: {name}")
    show("")
    print_header(f"Scoring {ROWS} rows of {1 + SAMPLES} windows of 160 tokens that share 120, {ROUNDS} rounds")
    duels = [Duel("score, bit", "bare loop, bit", ">= 1"), Duel("score, unit", "bare loop, unit", ">= 3.5")]
    print_duels(seconds, duels, ROWS * (1 + SAMPLES), "windows/s")


def make_rows() -> pa.Table:
    rng = np.random.default_rng(0)
    columns = {
        "window_id": [str(number) for number in range(ROWS)],
        "corpus": ["random"] * ROWS,
        "split": ["test"] * ROWS,
        "tokens": rng.integers(0, PIECES, (ROWS, 160)).tolist(),
        "direction": ["left_to_right"] * ROWS,
        "context_length": [120] * ROWS,
        "positive_log_p": [-1.0] * ROWS,
        "first_sample": [0] * ROWS,
        "negatives": rng.integers(0, PIECES, (ROWS, SAMPLES, 40)).tolist(),
        "log_p": [[-1.0] * SAMPLES] * ROWS,
        "log_q": [[-1.0] * SAMPLES] * ROWS,
        "seed": [0] * ROWS,
    }
    return pa.table(columns).cast(schemas.NEGATIVES)


def scorer(preset: str) -> EnergyScorer:
    build = PRESETS[preset].build
    assert build is not None
    made = EnergyScorer.__new__(EnergyScorer)  # without a folder: the weights do not matter here
    made.model = EnergyModel(build({"vocabulary_size": PIECES, "eos_token_id": PIECES - 1}, 161)).eval()
    made.device, made.reader, made.batch_size = "cpu", PlainReader(), 64
    return made


@torch.inference_mode()
def bare(rows: pa.Table, model: EnergyModel) -> None:
    windows = torch.from_numpy(completed(rows, SAMPLES, np.arange(ROWS)).ids).flatten(0, 1)
    for batch in windows.split(64):
        model(batch)


if __name__ == "__main__":
    main()

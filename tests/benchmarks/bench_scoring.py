"""How fast a store is scored, against a bare forward loop, and what sharing a context saves a causal energy.

All contenders take turns in one process, with the models loaded; windows of 160 tokens, contexts of 120, 100 samples.
Then sequence classifiers, an encoder and a decoder, in torch and in vLLM's pooling runner: a process each.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
import pyarrow as pa
import torch
from side_by_side import Duel, print_duels, print_header, show
from transformers import BertConfig, LlamaConfig, PreTrainedTokenizerFast

import schemas
from evaluation.joint.energy_scorer import EnergyScorer
from evaluation.joint.scorers import open_scorer, score_rows
from pipeline.engines.choice import TORCH, VLLM
from pipeline.text.tokenizer import character_tokenizer
from training.energy.classifier import classifier_energy, save_classifier
from training.energy.inputs import PlainReader, completed
from training.energy.model import EnergyModel
from training.energy.presets import PRESETS

ROUNDS, ROWS, SAMPLES, PIECES = 5, 4, 100, 4096


def main() -> None:
    if len(sys.argv) > 1:
        score_in_turns(*sys.argv[1:])
        return
    measure_sharing()
    measure_classifiers()


def measure_sharing() -> None:
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


def measure_classifiers() -> None:
    """Each engine's own process scores the rows once a round; starting it is not timed."""
    with tempfile.TemporaryDirectory() as scratch:
        for kind in ("encoder", "decoder"):
            save_classifier_of(kind, Path(scratch, kind))
            seconds = {engine: rounds_of(engine, Path(scratch, kind)) for engine in (VLLM, TORCH)}
            print_header(f"Scoring by an {kind}, a sequence classifier of 4 layers, d 256: {ROUNDS} rounds")
            print_duels(seconds, [Duel(VLLM, TORCH)], ROWS * (1 + SAMPLES), "windows/s")


def rounds_of(engine: str, folder: Path) -> list[float]:
    command = [sys.executable, __file__, engine, str(folder)]
    turn = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return [float(word) for word in turn.stdout.splitlines()[-1].split()]


def score_in_turns(engine: str, folder: str) -> None:
    """The seconds of each round, the first of which is left out. Every round has other windows: nothing is cached."""
    model = open_scorer(folder, 160, engine=engine)
    times = []
    for number in range(ROUNDS + 1):
        rows = make_rows(number)
        started = time.perf_counter()
        score_rows(rows, model)
        times.append(time.perf_counter() - started)
    print(*times[1:])


def save_classifier_of(kind: str, folder: Path) -> None:
    """Of random weights and random ids: a tokenizer of as many pieces as there are ids, one a character."""
    encoder = character_tokenizer("".join(chr(0x4E00 + number) for number in range(PIECES - 1)))
    own = PreTrainedTokenizerFast(tokenizer_object=encoder.backend, eos_token=encoder.eos_token, pad_token="\u4e00")
    sizes = {"vocab_size": PIECES, "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4}
    sizes |= {"max_position_embeddings": 512, "intermediate_size": 1024}
    network = (BertConfig if kind == "encoder" else LlamaConfig)(**sizes)
    config = classifier_energy(network, PIECES, 0, own_tokenizer=kind == "encoder")
    model = EnergyModel(config)
    folder.mkdir()
    save_classifier(model, str(folder), model.state_dict(), {}, encoder, own)


def make_rows(seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
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

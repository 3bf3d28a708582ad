"""Mining at the smallest size: sums of one line, a generator of random weights, the torch engine."""

from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from pipeline import make_windows, mine_negatives
from pipeline.models.model_folder import quiet
from pipeline.text.builtin_corpora import ALPHABET
from pipeline.text.tokenizer import character_tokenizer

SIZES = {"vocab_size": 14, "n_embd": 32, "n_layer": 2, "n_head": 1, "n_positions": 16, "initializer_range": 0.3}


def save_generator(folder: Path, direction: str = "left_to_right", seed: int = 0, **changes: object) -> str:
    torch.manual_seed(seed)
    provenance = {"preset": "transf-nano", "corpus": "sums", "seed": seed}
    ids = {"bos_token_id": 13, "eos_token_id": 13}
    config = GPT2Config(**SIZES | changes, **ids, direction=direction, provenance=provenance)
    with quiet():
        GPT2LMHeadModel(config).save_pretrained(folder)
    character_tokenizer(ALPHABET).save(str(folder))
    return str(folder)


def make_sums(folder: Path) -> str:
    """120 windows of one sum in six shards."""
    make_windows.main(f"--input builtin:sums:lines=120 --split train --shards 6 --output {folder}".split())
    return str(folder)


def arguments(windows: str, generator: str, output: Path, flags: str = "") -> list[str]:
    given = ["--windows", windows, "--generator", generator, "--output", str(output), "--context_lengths=0,5,8"]
    engine = [] if "--engine" in flags else ["--engine", "torch"]
    return [*given, *engine, *flags.split()]


def mine(*given, **options) -> int:
    return mine_negatives.main(arguments(*given, **options))

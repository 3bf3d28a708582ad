"""How fast negatives are mined, against vLLM and transformers alone, what sharing a prefix saves, and the memory.

Ours is the whole job, from a windows store to a finished store of negatives, with an engine that is already running.
Bare contenders give the very same requests to the same engine in one call: those that sample alone, which is less than
the job, and with them those that score the true completions, as one would with vLLM alone. Contenders take turns in one
process: engines do not survive a fork.
"""

import contextlib
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
import torch
from bench_sampling import SIZES, generate
from side_by_side import Duel, documents, print_duels, print_header, print_table, seconds_of, show, tokenizer_folder
from transformers import GPT2Config, GPT2LMHeadModel

from pipeline import make_windows, mine_negatives
from pipeline.engines.environment import prepare_environment
from pipeline.engines.generator import open_generator
from pipeline.engines.sampling import Sampling
from pipeline.mining import pool as generators
from pipeline.models.model_folder import quiet
from pipeline.stores.reader import Store
from pipeline.text.builtin_corpora import ALPHABET
from pipeline.text.tokenizer import character_tokenizer, load_tokenizer

WINDOWS = 256
ROUNDS = 5
SAMPLES = 300


def main() -> None:
    if len(sys.argv) > 1:
        mine_and_print_memory(sys.argv[1:])
        return
    prepare_environment()
    with tempfile.TemporaryDirectory() as scratch:
        windows, model = make_parts(Path(scratch))
        measure_speed(windows, model, Path(scratch, "negatives"))
        measure_prefix(model)
        measure_memory(Path(scratch))


def make_parts(scratch: Path) -> tuple[str, str]:
    text, windows, model = scratch / "text.txt", str(scratch / "windows"), str(scratch / "model")
    text.write_text("\n".join(documents(2)), encoding="utf-8")
    tokenizer = load_tokenizer(tokenizer_folder(scratch))
    torch.manual_seed(0)
    with quiet():
        GPT2LMHeadModel(GPT2Config(vocab_size=tokenizer.vocabulary_size, **SIZES)).save_pretrained(model)
    tokenizer.save(model)
    flags = f"--corpus books --split train --input {text} --tokenizer {model} --limit {WINDOWS} --shards 2"
    silently(make_windows.main, [*flags.split(), "--output", windows])
    return windows, model


def silently(work: Callable[[list[str]], Any], arguments: list[str]) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        work(arguments)


def measure_speed(windows: str, model: str, output: Path) -> None:
    flags = ["--windows", windows, "--generator", model, "--output", str(output), "--context_lengths", "120,140"]
    generators.close_all = lambda: None  # type: ignore[assignment]  # the engine stays for the next turn
    silently(mine_negatives.main, flags)  # starts the engine, and warms it up
    (generator,) = generators._here.values()
    llm: Any = generator.engine._llm  # type: ignore[attr-defined]
    requests: list[tuple[Any, Any]] = []
    scored: list[tuple[Any, Any]] = []
    requests_done: list[bool] = []
    original = llm.generate

    def recorded(inputs: list[Any], params: list[Any], **options: Any) -> Any:
        (scored if requests_done else requests).extend(zip(inputs, params, strict=True))
        return original(inputs, params, **options)

    def ours(*more: str) -> None:
        shutil.rmtree(output, ignore_errors=True)
        llm.reset_prefix_cache()
        silently(mine_negatives.main, [*flags, *more])

    llm.generate = recorded
    ours()
    rows = list(Store(str(output)).rows(["tokens", "context_length"]))
    requests_done.append(True)
    parts = [(row["tokens"][: row["context_length"]], row["tokens"][row["context_length"] :]) for row in rows]
    start = np.array([generator.model.start_token_id], np.int32)
    generator.engine.log_prob([np.concatenate([start, context]) for context, _ in parts], [rest for _, rest in parts])
    llm.generate = original

    def bare(which: list[tuple[Any, Any]]) -> None:
        llm.reset_prefix_cache()
        inputs, params = zip(*which, strict=True)
        llm.generate(list(inputs), list(params), use_tqdm=False)

    plain = open_generator(model, Sampling(), "torch", window_length=160)
    contexts = {
        length: [row["tokens"][:length] for row in rows if row["context_length"] == length] for length in (120, 140)
    }

    def transformers() -> None:
        for length, group in contexts.items():
            generate(plain, group, 160 - length)

    contenders: dict[str, Callable[[], None]] = {
        "mine_negatives": ours,
        "mine_negatives, unscored": lambda: ours("--positives", "unscored"),
        "mine_negatives, torch engine": lambda: ours("--engine", "torch"),
        "bare vLLM, samples and scores": lambda: bare(requests + scored),
        "bare vLLM, samples alone": lambda: bare(requests),
        "transformers' generate": transformers,
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(ROUNDS):
        shift = number % len(contenders)
        for name in [*list(contenders)[shift:], *list(contenders)[:shift]]:
            seconds[name].append(seconds_of(contenders[name]))
            show(f"round {number + 1} of {ROUNDS}: {name}, {seconds[name][-1]:.1f} s")
    show("")
    tokens = sum(160 - row["context_length"] for row in rows)
    print_header(f"Mining {WINDOWS} windows of 160, one negative each, 4 layers d 256, vLLM, {ROUNDS} rounds")
    duels = [
        Duel("mine_negatives", "bare vLLM, samples and scores", ">= 0.95"),
        Duel("mine_negatives", "bare vLLM, samples alone", ">= 0.75"),
        Duel("mine_negatives, unscored", "bare vLLM, samples alone", ">= 0.95"),
        Duel("mine_negatives, torch engine", "bare vLLM, samples alone", ">= 0.75"),
        Duel("mine_negatives", "transformers' generate", "> 1"),
    ]
    print_duels(seconds, duels, tokens, "tokens/s")
    generator.close()
    generators._here.clear()


def measure_prefix(model: str) -> None:
    """Many samples of one context: one request, or as many requests that share nothing."""
    context = np.arange(120, dtype=np.int32)
    generator = open_generator(model, Sampling(), window_length=160)
    generator.sample([context], [2], [0])
    together = seconds_of(lambda: generator.sample([context], [40], [0], n=SAMPLES))
    # Contexts that differ in their first token share no prefix, and cost the same otherwise.
    apart = [np.concatenate([[1000 + number], context[1:]]).astype(np.int32) for number in range(SAMPLES)]
    separate = seconds_of(lambda: generator.sample(apart, [40] * SAMPLES, list(range(SAMPLES))))
    generator.close()
    print_header(f"{SAMPLES} samples of 40 tokens after a context of 120")
    print_table(
        [
            ("", "seconds"),
            ("one request", f"{together:.1f}"),
            ("as many requests, nothing shared", f"{separate:.1f}"),
            ("ratio", f"{separate / together:.2f}"),
        ]
    )


def measure_memory(scratch: Path) -> None:
    model = str(scratch / "small")
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 1, "n_positions": 16}
    with quiet():
        GPT2LMHeadModel(GPT2Config(vocab_size=14, bos_token_id=13, eos_token_id=13, **sizes)).save_pretrained(model)
    character_tokenizer(ALPHABET).save(model)
    rows = [("windows", "peak memory, MB")]
    for lines in (4_000, 40_000):
        windows = f"{scratch}/sums-{lines}"
        silently(
            make_windows.main,
            f"--input builtin:sums:lines={lines} --split train --shards {lines // 1000} --output {windows}".split(),
        )
        flags = (
            f"--windows {windows} --generator {model} --engine torch --context_lengths 8 --output {windows}-negatives"
        )
        turn = subprocess.run([sys.executable, __file__, *flags.split()], check=True, capture_output=True, text=True)
        rows.append((f"{lines:,}", turn.stdout.splitlines()[-1]))
    print_header("Memory of a whole run, torch engine, shards of 1,000 windows")
    print_table(rows)


def mine_and_print_memory(flags: list[str]) -> None:
    silently(mine_negatives.main, flags)
    # Of this process alone: getrusage would count what its parent, which holds an engine, once had.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(f"{int(peak.split()[1]) / 1e3:,.0f}")


if __name__ == "__main__":
    main()

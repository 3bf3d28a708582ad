"""How fast a language model is trained, against a plain PyTorch loop, and how far the loader is ahead of it.

Both contenders train the same model on the same batches with torch's Adam, on one rank; what is timed are the steps,
not the start. The loader is timed alone: it must never be what training waits for.
"""

import contextlib
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import torch
from side_by_side import Duel, apart, documents, print_duels, print_header, show
from torch.nn import functional as F
from transformers import AutoModelForCausalLM

from pipeline import make_windows
from pipeline.runtime.progress import Bar
from pipeline.stores.reader import Store
from training import train_lm
from training.data.loader import Loader
from training.language.presets import PRESETS
from training.loop import ranks
from training.loop.run import read_run_settings
from training.loop.trainer import Trainer

ROUNDS = 5
WARM = 3  # steps that are not timed
PIECES = 4096


def main() -> None:
    if len(sys.argv) > 1:
        contender, preset, path, steps = sys.argv[1:]
        print(CONTENDERS[contender](preset, Path(path), int(steps)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        books, sums, text = Path(scratch, "books"), Path(scratch, "sums"), Path(scratch, "text.txt")
        text.write_text("\n".join(documents(6)), encoding="utf-8")
        make(f"--input {text} --corpus books --split train --train_tokenizer {PIECES} --output {books}")
        make(f"--input builtin:sums --split train --output {sums}")
        measure("transf-tiny", books, steps=12)
        measure("transf-nano", sums, steps=100)


def make(flags: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        apart(lambda: make_windows.main(flags.split()))


def measure(preset: str, path: Path, steps: int) -> None:
    """Every contender once a round, each turn in a process of its own: torch's threads do not survive a fork."""
    seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for number in range(ROUNDS):
        shift = number % len(CONTENDERS)
        for name in [*list(CONTENDERS)[shift:], *list(CONTENDERS)[:shift]]:
            command = [sys.executable, __file__, name, preset, str(path), str(steps)]
            turn = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            seconds[name].append(float(turn.stdout.splitlines()[-1]))
            show(f"round {number + 1} of {ROUNDS}: {name}, {seconds[name][-1]:.2f} s")
    show("")
    store, batch = Store(str(path)), PRESETS[preset].recipe.batch_size
    window, vocabulary = store.manifest.settings["window"], store.manifest.tokenizer["vocabulary_size"]
    print_header(f"Training {preset}: windows of {window}, {vocabulary:,} pieces, batches of {batch}, {ROUNDS} rounds")
    duels = [
        Duel("train_lm, ZeRO 1", "plain loop", ">= 0.9"),
        Duel("train_lm, ZeRO 0", "plain loop", ">= 0.9"),
        Duel("loader", "train_lm, ZeRO 1", ">= 20"),
    ]
    print_duels(seconds, duels, steps * batch, "windows/s")


def train(preset: str, path: Path, steps: int, stage: int) -> float:
    """The trainer's own steps, with everything that a run does at each of them."""
    flags = f"--preset {preset} --train {path} --valid {path} --output {path.parent / 'model'} --max_steps 1000"
    zero = Path(train_lm.__file__).parent / f"zero/stage{stage}.json"
    given = [*flags.split(), "--deepspeed_config", str(zero)]
    settings, sources = read_run_settings(train_lm.LanguageModelSettings, given, None), train_lm.Sources()
    stores = train_lm.open_stores(settings)
    config, plan = train_lm.choose_architecture(settings, stores[0], sources), train_lm.plan_of(settings, stores[0])
    ranks.start()
    model = train_lm.build(config, 0, sources)
    trainer = Trainer(train_lm.task_of(model, train_lm.choose_direction(settings, sources), *stores, {}), plan)
    started = 0.0
    with Bar(total=WARM + steps, initial=0, desc="", unit="", hidden=True) as bar:
        for batch in trainer.batches(WARM + steps):
            if trainer.step == WARM:
                started = time.perf_counter()
            trainer._train_on(batch)
            trainer.step += 1
            trainer._look(bar)
    return time.perf_counter() - started


def plain_loop(preset: str, path: Path, steps: int) -> float:
    """What one writes in an afternoon: tensors in memory, forward, backward, clip, step."""
    store = Store(str(path))
    recipe, vocabulary = PRESETS[preset].recipe, store.manifest.tokenizer["vocabulary_size"]
    window = store.manifest.settings["window"]
    micro = min(recipe.batch_size, train_lm.LOGITS_BYTES["cpu"] // (4 * window * vocabulary))
    model = AutoModelForCausalLM.from_config(PRESETS[preset].build(vocabulary, max(256, window + 1), None))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
    loader = Loader(store, ["tokens"], recipe.batch_size, 0)
    batches = [torch.tensor(rows["tokens"].to_pylist()) for rows, _ in loader.batches(0, WARM + steps)]
    started = 0.0
    for step, windows in enumerate(batches):
        if step == WARM:
            started = time.perf_counter()
        optimiser.zero_grad()
        for part in windows.split(micro):
            inputs = torch.cat([torch.full((len(part), 1), vocabulary - 1), part[:, :-1]], dim=1)
            logits = model(input_ids=inputs, use_cache=False).logits
            loss = F.cross_entropy(logits.flatten(0, 1), part.flatten()) * len(part) / len(windows)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
        optimiser.step()
    return time.perf_counter() - started


def load(preset: str, path: Path, steps: int) -> float:
    """Two hundred times as many batches, divided by it: a few would only be read ahead."""
    times, size = 200, PRESETS[preset].recipe.batch_size
    started = time.perf_counter()
    for rows, _ in Loader(Store(str(path)), ["tokens"], size, 0).batches(0, steps * times):
        if len(rows["tokens"]) != size:
            raise SystemExit(f"a batch of {len(rows)} rows, not {size}")
    return (time.perf_counter() - started) / times


CONTENDERS: dict[str, Callable[[str, Path, int], float]] = {
    "train_lm, ZeRO 1": lambda preset, path, steps: train(preset, path, steps, 1),
    "train_lm, ZeRO 0": lambda preset, path, steps: train(preset, path, steps, 0),
    "plain loop": plain_loop,
    "loader": load,
}

if __name__ == "__main__":
    main()

"""How fast an energy model is trained, against a plain PyTorch loop, and how fast its rows are read, against peers.

Both trainers train the same model on the same batches with torch's Adam, on one rank; what is timed are the steps, not
the start. The loader is timed alone, from Parquet to the tensors that a model reads. The peers, Hugging Face `datasets`
in streaming mode and mosaicml-streaming, read the same rows in shuffled batches and do no more with them than that;
mosaicml-streaming asks for older versions of numpy and transformers than ours and for torchvision, which cannot load
beside the CPU build of torch: it is installed apart, without what it asks for, and with an empty torchvision to import.
"""

import contextlib
import io
import os
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
from transformers import GPT2Config, GPT2LMHeadModel

from pipeline import make_windows, mine_negatives
from pipeline.models.model_folder import quiet
from pipeline.runtime.progress import Bar
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import load_tokenizer
from training import train_energy
from training.data.loader import Loader, ahead
from training.data.mixture import Mixture
from training.energy.inputs import COLUMNS, completed
from training.energy.model import EnergyModel
from training.energy.presets import PRESETS
from training.loop import ranks
from training.loop.run import read_run_settings
from training.loop.trainer import Trainer

ROUNDS = 5
WARM = 3  # steps that are not timed
PIECES = 4096
WINDOWS = 4096
EPOCHS = 10  # that a loader reads
PEERS = Path(".cache/bench-peers")
PEER = ["mosaicml-streaming==0.13.0", "xxhash", "zstd", "Brotli", "python-snappy", "cramjam", "catalogue"]
TORCHVISION = {  # as much of it as is imported by what reads no images
    "__init__.py": "",
    "datasets.py": "class VisionDataset: ...",
    "transforms/__init__.py": "",
    "transforms/functional.py": "to_tensor = None",
}


def main() -> None:
    if len(sys.argv) > 1:
        contender, preset, path, steps = sys.argv[1:]
        print(CONTENDERS[contender](preset, Path(path), int(steps)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        store = make_store(Path(scratch))
        trainers = ["train_energy, ZeRO 1", "train_energy, ZeRO 0", "plain loop", "loader"]
        preset, steps = "bit-tiny", 12
        seconds = take_turns(trainers, preset, store, steps)
        batch = PRESETS[preset].recipe(None, preset).batch_size
        print_header(f"Training {preset}: windows of 160, {PIECES:,} pieces, batches of {batch} and their negatives")
        duels = [Duel(name, "plain loop", ">= 0.9") for name in trainers[:2]]
        duels.append(Duel("loader", trainers[0], ">= 20"))
        print_duels(seconds, duels, steps * batch, "rows/s")
        peers = ["loader", "datasets, streaming"]
        if has_peer():
            peer(WRITE_MDS, store, f"{store}-mds")
            peers.append("mosaicml-streaming")
        seconds = take_turns(peers, preset, store, WINDOWS * EPOCHS // 32)
        print_header(f"Reading {WINDOWS:,} rows of negatives {EPOCHS} times, in shuffled batches of 32")
        print_duels(seconds, [Duel("loader", peer, ">= 2") for peer in peers[1:]], WINDOWS * EPOCHS, "rows/s")


def make_store(scratch: Path) -> Path:
    """Negatives of a language model that was never trained: only their number and length count here."""
    text, windows, lm, output = (scratch / name for name in ("text.txt", "windows", "lm", "negatives"))
    text.write_text("\n".join(documents(3)), encoding="utf-8")
    flags = (
        f"--input {text} --corpus books --split train --train_tokenizer {PIECES} --limit {WINDOWS} --output {windows}"
    )
    with contextlib.redirect_stdout(io.StringIO()), quiet():
        apart(lambda: make_windows.main(flags.split()))
        ends = {"bos_token_id": PIECES - 1, "eos_token_id": PIECES - 1}
        config = GPT2Config(vocab_size=PIECES, n_embd=32, n_layer=1, n_head=1, n_positions=256, **ends)
        GPT2LMHeadModel(config).save_pretrained(lm)
        load_tokenizer(str(windows)).save(str(lm))
        mine_negatives.main(f"--windows {windows} --generator {lm} --engine torch --output {output}".split())
    return output


def take_turns(names: list[str], preset: str, path: Path, steps: int) -> dict[str, list[float]]:
    """Every contender once a round, each turn in a process of its own."""
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(ROUNDS):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            if name == "mosaicml-streaming":
                seconds[name].append(float(peer(READ_MDS, f"{path}-mds")))
            else:
                command = [sys.executable, __file__, name, preset, str(path), str(steps)]
                turn = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                seconds[name].append(float(turn.stdout.splitlines()[-1]))
            show(f"round {number + 1} of {ROUNDS}: {name}, {seconds[name][-1]:.2f} s")
    show("")
    return seconds


def train(preset: str, path: Path, steps: int, stage: int) -> float:
    """The trainer's own steps, with everything that a run does at each of them."""
    zero = Path(train_energy.__file__).parent / f"zero/stage{stage}.json"
    flags = f"--preset {preset} --train {path} --valid {path} --output {path.parent / 'model'} --max_steps 1000"
    settings = read_run_settings(
        train_energy.EnergySettings, [*flags.split(), "--deepspeed_config", str(zero), "--negatives", "1"], None
    )
    rows, valid = train_energy.open_stores(settings)
    config, plan = train_energy.choose_architecture(settings, rows, valid, None), train_energy.plan_of(settings)
    ranks.start()
    encoder = load_tokenizer(str(path))
    model = train_energy.build(config, 0, None, encoder, 160)
    trainer = Trainer(train_energy.task_of(model, settings.objective, 1, rows, valid, encoder, None, {}), plan)
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
    store, recipe = Store(str(path)), PRESETS[preset].recipe(None, preset)
    build = PRESETS[preset].build
    assert build is not None
    model = EnergyModel(build(store.manifest.tokenizer, 161))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
    loader = Loader(store, COLUMNS, recipe.batch_size, 0)
    batches = [torch.from_numpy(completed(rows, 1, places).ids) for rows, places in loader.batches(0, WARM + steps)]
    started = 0.0
    for step, windows in enumerate(batches):
        if step == WARM:
            started = time.perf_counter()
        optimiser.zero_grad()
        for part in windows.split(min(recipe.batch_size, train_energy.ROWS_AT_ONCE)):
            labels = torch.tensor([1.0, 0.0]).expand(len(part), 2)
            scores = -model(part.flatten(0, 1)).view(-1, 2)
            loss = F.binary_cross_entropy_with_logits(scores, labels) * len(part) / len(windows)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
        optimiser.step()
    return time.perf_counter() - started


def load(preset: str, path: Path, steps: int) -> float:
    """From Parquet to tensors; a few steps would only be read ahead, so there are many, and the time is a share."""
    size = PRESETS[preset].recipe(None, preset).batch_size
    many = max(steps, 20 * WINDOWS // size)
    loader = Loader(Mixture([Store(str(path))]), COLUMNS, size, 0)
    started = time.perf_counter()
    count = 0
    for ids in ahead(lambda found: torch.from_numpy(completed(found[0], 1, found[1]).ids), loader.batches(0, many)):
        count += len(ids)
    if count != many * size:
        raise SystemExit(f"{count} rows, not {many * size}")
    return (time.perf_counter() - started) * steps / many


def stream(preset: str, path: Path, steps: int) -> float:
    """`datasets` as its guide says for sets that do not fit in memory: a shuffle buffer, batches of rows."""
    import datasets

    files = [str(file) for file in sorted((path / "shards").iterdir())]
    rows = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True, columns=list(COLUMNS))
    started = time.perf_counter()
    count = 0
    for epoch in range(EPOCHS):
        for batch in rows.shuffle(seed=epoch, buffer_size=1024).iter(batch_size=32):
            count += len(batch["tokens"])
    if count != WINDOWS * EPOCHS:
        raise SystemExit(f"{count} rows, not {WINDOWS * EPOCHS}")
    return time.perf_counter() - started


WRITE_MDS = """
import sys
from pathlib import Path
import numpy as np, pyarrow.parquet as pq
from streaming import MDSWriter
source, target = sys.argv[1:]
columns = {"tokens": "ndarray:int32", "direction": "str", "context_length": "int", "negatives": "ndarray:int32"}
with MDSWriter(out=target, columns=columns) as writer:
    for file in sorted(Path(source, "shards").iterdir()):
        for row in pq.read_table(file, columns=list(columns)).to_pylist():
            row["tokens"], row["negatives"] = np.int32(row["tokens"]), np.int32(row["negatives"][0])
            writer.write(row)
"""
READ_MDS = f"""
import sys, time
from streaming import StreamingDataset
from torch.utils.data import DataLoader
rows = StreamingDataset(local=sys.argv[1], shuffle=True, batch_size=32)
loader = DataLoader(rows, batch_size=32, collate_fn=list)
started, count = time.perf_counter(), 0
for epoch in range({EPOCHS}):
    for batch in loader:
        count += len(batch)
assert count == {WINDOWS * EPOCHS}, count
print(time.perf_counter() - started)
"""


def has_peer() -> bool:
    """Installs mosaicml-streaming into a folder of its own, once; False where that is not to be had."""
    if not (PEERS / ".installed").exists():
        show(f"installing {PEER[0]} into {PEERS}")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(PEERS), *PEER]
        if subprocess.run(command, capture_output=True).returncode:
            print(f"{PEER[0]} cannot be installed here: it is left out")
            return False
        for name, content in TORCHVISION.items():
            path = PEERS / "torchvision" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        (PEERS / ".installed").touch()
    return True


def peer(script: str, *arguments: object) -> str:
    """Runs a script with mosaicml-streaming in reach, and returns what it prints last."""
    environment = os.environ | {"PYTHONPATH": str(PEERS.absolute())}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    ended = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    return ended.stdout.strip().rpartition("\n")[2]


CONTENDERS: dict[str, Callable[[str, Path, int], float]] = {
    "train_energy, ZeRO 1": lambda preset, path, steps: train(preset, path, steps, 1),
    "train_energy, ZeRO 0": lambda preset, path, steps: train(preset, path, steps, 0),
    "plain loop": plain_loop,
    "loader": load,
    "datasets, streaming": stream,
}

if __name__ == "__main__":
    main()

"""Making and reading tokens beside datatrove, which made FineWeb: where it is installed, as it need not be.

Both read the same .jsonl in one process and write all its tokens, shuffled: datatrove a stream of documents, we windows
of 160 that do not overlap, with ids, digests and checksums. Then both read every window of 160 in the order in which
they stand in the files, as arrays that can be trained on.
"""

import contextlib
import importlib.util
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from bench_windows import WINDOW, write_jsonl
from side_by_side import Duel, documents, import_what_is_used, print_duels, print_header, take_turns, tokenizer_folder

from pipeline import make_windows
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import load_tokenizer

MEGABYTES, ROUNDS = 24, 5
OURS, THEIRS = "make_windows", "datatrove"
READ, READ_THEIRS = "Store.batches", "DatatroveFolderDataset"


def main() -> None:
    if importlib.util.find_spec("datatrove") is None:
        print("\ndatatrove is not installed: pip install datatrove humanize, and run this again")
        return
    with tempfile.TemporaryDirectory() as scratch:
        measure(Path(scratch))


def measure(scratch: Path) -> None:
    texts = list(documents(MEGABYTES))
    size = sum(len(text.encode()) for text in texts)
    given = scratch / "texts"
    given.mkdir()
    text = write_jsonl(texts, given / "text.jsonl")
    few = scratch / "few"
    few.mkdir()
    write_jsonl(texts[:50], few / "text.jsonl")
    encoder = load_tokenizer(tokenizer_folder(scratch))
    encoder.save(str(scratch / "own"))
    outputs = scratch / "outputs"

    def ours(source: Path, output: Path) -> None:
        flags = f"--corpus b --split train --tokenizer {scratch}/own --window {WINDOW} --stride {WINDOW}"
        with contextlib.redirect_stdout(io.StringIO()):
            make_windows.main(["--input", str(source), *flags.split(), "--output", str(output)])

    print_header(f"Making tokens beside datatrove: {size / 1e6:.1f} MB of text, {ROUNDS} rounds")
    import_what_is_used(lambda: (ours(few / "text.jsonl", outputs / "a"), theirs(few, scratch, outputs / "b")))
    shutil.rmtree(outputs)
    making: dict[str, Callable[[], object]] = {
        OURS: lambda: ours(text, outputs / "store"),
        THEIRS: lambda: theirs(given, scratch, outputs / "shards"),
    }
    seconds = take_turns(making, ROUNDS, lambda: shutil.rmtree(outputs, ignore_errors=True))
    print_duels(seconds, [Duel(OURS, THEIRS, "> 1")], size / 1e6, "MB/s")

    ours(text, scratch / "store")
    theirs(given, scratch, scratch / "shards")
    windows = len(Store(str(scratch / "store")))
    print_header(f"Reading {windows:,} windows of {WINDOW}, {ROUNDS} rounds")
    reading: dict[str, Callable[[], object]] = {
        READ: lambda: read_ours(scratch / "store"),
        READ_THEIRS: lambda: read_theirs(scratch / "shards"),
    }
    print_duels(take_turns(reading, ROUNDS), [Duel(READ, READ_THEIRS, "> 1")], windows, "windows/s")


def theirs(folder: Path, scratch: Path, output: Path) -> None:
    os.environ["DATATROVE_COLORIZE_LOGS"] = "0"
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer
    from loguru import logger

    logger.remove()
    reader = JsonlReader(str(folder), glob_pattern="*.jsonl", doc_progress=False)
    tokenizer = DocumentTokenizer(
        str(output), str(scratch / "own/tokenizer.json"), eos_token="<|endoftext|>", seed=0, shuffle_documents=True
    )
    for _ in tokenizer.run(reader.run(None, 0, 1), 0, 1) or ():
        pass


def read_ours(store: Path) -> int:
    total = 0
    for table in Store(str(store)).batches(["tokens"]):
        tokens = table["tokens"].combine_chunks().flatten().to_numpy().reshape(-1, WINDOW)
        total += int(tokens[:, 0].sum())
    return total


def read_theirs(folder: Path) -> int:
    from datatrove.utils.dataset import DatatroveFolderDataset

    rows = DatatroveFolderDataset(str(folder), WINDOW - 1, filename_pattern="*.ds", recursive=False)
    return sum(int(rows[place]["input_ids"][0]) for place in range(len(rows)))


if __name__ == "__main__":
    main()

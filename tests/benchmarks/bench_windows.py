"""How fast, and in how much memory, text becomes a windows store.

Speed: the whole of make_windows on one process, against the tokenizer alone and against Hugging Face datasets on the
same text. The rivals are given what suits them best: text in memory, or on disk as Arrow, in strings of the length
that they are fastest with; they make no ids, no digests, no shuffle, no files that survive a power cut.
Memory: the peak of a fresh process on some text, and on ten times as much.
"""

import contextlib
import io
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import datasets
import numpy as np
from side_by_side import (
    Duel,
    documents,
    import_what_is_used,
    print_duels,
    print_header,
    print_table,
    show,
    take_turns,
    tokenizer_folder,
)
from transformers import PreTrainedTokenizerFast

from pipeline import make_windows
from pipeline.text.tokenizer import TextEncoder, load_tokenizer

WINDOW, STRIDE = 160, 40
MEGABYTES = 24
ROUNDS = 5
# encode_batch is fastest with four million characters in strings of 4,000 to 8,000, the length of our documents;
# tried were 500 to 200,000 characters a string, and one to four million a call.
STRINGS_AT_ONCE = 500
LEAST_MEGABYTES, TIMES = 10, 10  # of the memory measurement
# VmHWM counts from the start of the program; ru_maxrss would begin with the memory of the process that started it.
MEASURED_RUN = """
import resource, sys
from pathlib import Path
from pipeline.make_windows import main
main(sys.argv[1:])
status = Path("/proc/self/status")
lines = status.read_text().splitlines() if status.exists() else []
peaks = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
print(peaks[0] if peaks else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
JSONL, TEXT = "make_windows, .jsonl", "make_windows, one .txt"
DUELS = [
    *(Duel(ours, "encode_batch", ">= 0.70") for ours in (JSONL, TEXT)),
    *(Duel(ours, "encode_batch_fast") for ours in (JSONL, TEXT)),
    *(Duel(ours, "datasets.map, lists", "> 1") for ours in (JSONL, TEXT)),
    *(Duel(ours, "datasets.map, NumPy", "> 1") for ours in (JSONL, TEXT)),
]


def main() -> None:
    for measure in (measure_speed, measure_memory):
        with tempfile.TemporaryDirectory() as scratch:
            measure(Path(scratch))


def measure_speed(scratch: Path) -> None:
    texts = list(documents(MEGABYTES))
    size = sum(len(text.encode()) for text in texts)
    tokenizer = tokenizer_folder(scratch)
    outputs = scratch / "outputs"
    contenders = speed_contenders(texts, tokenizer, scratch, outputs)
    print_header(f"Speed of making windows: {size / 1e6:.1f} MB of text, {ROUNDS} rounds")
    few = write_jsonl(texts[:50], scratch / "few.jsonl")
    import_what_is_used(lambda: run_make_windows(few, tokenizer, outputs))
    shutil.rmtree(outputs)
    seconds = take_turns(contenders, ROUNDS, lambda: shutil.rmtree(outputs, ignore_errors=True))
    print_duels(seconds, DUELS, size / 1e6, "MB/s")


def speed_contenders(texts: list[str], tokenizer: str, scratch: Path, outputs: Path) -> dict[str, Callable[[], object]]:
    """Everything that a contender needs before its clock starts; what it writes goes into `outputs`."""
    jsonl, text = write_jsonl(texts, scratch / "text.jsonl"), write_text(texts, scratch / "text.txt")
    encoder = load_tokenizer(tokenizer)
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"text": texts}).save_to_disk(scratch / "dataset")
    rows = datasets.load_from_disk(scratch / "dataset")
    return {
        JSONL: lambda: run_make_windows(jsonl, tokenizer, outputs),
        TEXT: lambda: run_make_windows(text, tokenizer, outputs),
        "encode_batch": lambda: encode_all(encoder.backend.encode_batch, texts),
        "encode_batch_fast": lambda: encode_all(encoder.backend.encode_batch_fast, texts),
        "datasets.map, lists": lambda: map_rows(rows, encoder, as_lists, outputs),
        "datasets.map, NumPy": lambda: map_rows(rows, encoder, as_array, outputs),
    }


def run_make_windows(text: Path, tokenizer: str, outputs: Path) -> None:
    """The command as a user gives it, in this process; what it says of the store is not shown."""
    with contextlib.redirect_stdout(io.StringIO()):
        make_windows.main(make_windows_arguments(text, tokenizer, outputs / "store"))


def make_windows_arguments(text: Path, tokenizer: str, output: Path) -> list[str]:
    return [
        *("--input", str(text), "--corpus", "benchmark", "--split", "train", "--tokenizer", tokenizer),
        *("--window", str(WINDOW), "--stride", str(STRIDE), "--output", str(output)),
    ]


def write_jsonl(texts: Iterable[str], path: Path) -> Path:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    return path


def write_text(texts: Iterable[str], path: Path) -> Path:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(text + "\n" for text in texts)
    return path


def encode_all(encode_batch: Callable[..., Sequence[Any]], strings: list[str]) -> None:
    """The tokenizer and nothing else: not even the ids are taken out of what it returns."""
    for start in range(0, len(strings), STRINGS_AT_ONCE):
        encode_batch(strings[start : start + STRINGS_AT_ONCE], add_special_tokens=False)


def map_rows(rows: datasets.Dataset, encoder: TextEncoder, group: Callable[[list[int]], Any], outputs: Path) -> None:
    """Tokenise and group as in the libraries' own examples, one process, into a new Arrow cache file."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=encoder.backend, eos_token=encoder.eos_token)
    eos = tokenizer.eos_token_id

    def tokenise_and_group(batch: dict[str, list[str]]) -> dict[str, Any]:
        ids = tokenizer(batch["text"], return_attention_mask=False)["input_ids"]
        stream = itertools.chain.from_iterable([*document, eos] for document in ids)
        return {"tokens": group(list(stream))}

    outputs.mkdir()
    rows.map(
        tokenise_and_group,
        batched=True,
        remove_columns=["text"],
        keep_in_memory=False,
        load_from_cache_file=False,
        cache_file_name=str(outputs / "cache.arrow"),
    )


def as_lists(stream: list[int]) -> list[list[int]]:
    """Windows as the examples group them."""
    return [stream[start : start + WINDOW] for start in range(0, len(stream) - WINDOW + 1, STRIDE)]


def as_array(stream: list[int]) -> np.ndarray:
    """Windows as someone groups them who has found the lists to be slow."""
    return np.lib.stride_tricks.sliding_window_view(np.array(stream, np.int32), WINDOW)[::STRIDE]


def measure_memory(scratch: Path) -> None:
    sizes = (LEAST_MEGABYTES, LEAST_MEGABYTES * TIMES)
    print_header(f"Peak memory of making windows: a fresh process on {sizes[0]} MB and on {sizes[1]} MB of text")
    tokenizer = tokenizer_folder(scratch)
    rows = [("input", *(f"{size} MB, peak in MB" for size in sizes), "ratio", "target")]
    for name, write in (("many documents, .jsonl", write_jsonl), ("one document, .txt", write_text)):
        peaks = []
        for size in sizes:
            show(f"memory: {name}, {size} MB")
            suffix = name.rpartition(".")[2]
            peaks.append(peak_megabytes(write(documents(size), scratch / f"{size}.{suffix}"), tokenizer, scratch))
        rows.append((name, *(f"{peak:.0f}" for peak in peaks), f"{peaks[1] / peaks[0]:.2f}", "about 1"))
    show("")
    print_table(rows)


def peak_megabytes(text: Path, tokenizer: str, scratch: Path) -> float:
    """The most memory that make_windows holds at any one time; by default it is a single process."""
    output = scratch / "store"
    command = [sys.executable, "-c", MEASURED_RUN, *make_windows_arguments(text, tokenizer, output)]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    shutil.rmtree(output)
    text.unlink()
    return int(said.splitlines()[-1]) * 1024 / 1e6


if __name__ == "__main__":
    main()

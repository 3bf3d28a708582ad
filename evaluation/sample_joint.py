"""Samples from the joint model: for every context, the generator's completions, and the one that the energy chooses.

  python evaluation/sample_joint.py --energy models/books-energy --generator models/books-tiny \\
      --windows stores/books-test --limit 100 --samples 1000 --output results/books-samples

Written is samples.parquet, a row for every context: the completion chosen, the first one drawn, which is a plain sample
of the generator (base), those of the lowest and the highest energy (best, worst), the real one where it is known, their
energies, all samples' energies, and how many of the samples count (effective_samples). A killed run continues when the
same command is given again. --prompts takes a text file, a prompt on each line. --autoregressive goes token by token,
slowly: for each of the generator's 128 likeliest words, --samples completions are drawn and weighed.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from tqdm import tqdm

from evaluation.joint.model import JointModel
from pipeline.engines.environment import prepare_environment
from pipeline.engines.sampling import RULES, TOP_K, Sampling, request_seed
from pipeline.mining.rows import divide
from pipeline.models.model_folder import open_model_folder
from pipeline.runtime import files
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.lock import writing
from pipeline.stores.manifest import Record, read_record, write_record
from pipeline.stores.reader import Store
from pipeline.stores.writer import differences
from pipeline.text.tokenizer import TextEncoder, load_tokenizer

PARTS, RESULT = "parts", "samples.parquet"
AT_ONCE = 8  # contexts: what a kill loses


@dataclass(frozen=True)
class Context:
    """What is to be completed, with its real completion if it is known."""

    name: str
    tokens: NDArray[np.int32]
    length: int
    real: NDArray[np.int32] | None


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = parse(arguments)
    prepare_environment()
    model = open_model(options)
    encoder = load_tokenizer(model.generator.model.folder)
    contexts = list(find_contexts(options, model, encoder))
    record = Record(["evaluation/sample_joint.py", *arguments], os.getcwd(), settings_of(options, contexts, model))
    with writing(options.output):
        prepare(options, record)
        if not files.is_file(files.join(options.output, RESULT)):
            draw(options, model, contexts, encoder)
    describe(options.output)
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--energy", required=True, metavar="DIR_OR_NAME", help="an energy model")
    parser.add_argument(
        "--generator", required=True, metavar="DIR_OR_NAME", help="the language model it was trained for"
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--windows", metavar="STORE", help="windows whose beginnings are completed")
    source.add_argument("--prompts", metavar="FILE", help="a text file, a prompt on each line")
    parser.add_argument("--context_length", type=int, metavar="N", help="of windows (default: three quarters of them)")
    parser.add_argument("--tokens", type=int, default=40, metavar="N", help="that follow a prompt (default: 40)")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N windows or prompts (default: all)")
    parser.add_argument("--samples", type=int, default=10_000, metavar="N", help="of each context (default: 10000)")
    parser.add_argument("--sampling", choices=RULES, default=TOP_K, help="of the generator (default: top_k)")
    parser.add_argument("--top_k", type=int, default=10, metavar="K", help="of top_k (default: 10)")
    parser.add_argument("--top_p", type=float, default=0.9, metavar="P", help="of nucleus (default: 0.9)")
    parser.add_argument("--autoregressive", action="store_true", help="token by token, marginalising the future")
    parser.add_argument(
        "--engine", choices=("vllm", "torch"), default="torch", help="of the generator (default: torch)"
    )
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    parser.add_argument("--output", required=True, metavar="DIR", help="where samples.parquet goes")
    parser.add_argument("--overwrite", action="store_true", help="replace samples made with other settings")
    options = parser.parse_args(arguments)
    for flag in ("samples", "tokens", "limit"):
        if getattr(options, flag) is not None and getattr(options, flag) < 1:
            raise UserError(f"--{flag} {getattr(options, flag)}: at least 1")
    if not 0 <= options.seed < 2**62:
        raise UserError(f"--seed {options.seed}: between 0 and 2^62 - 1")
    if options.autoregressive and options.engine != "torch":
        raise UserError("--autoregressive: needs every token's probability, which --engine torch has")
    return options


def open_model(options: argparse.Namespace) -> JointModel:
    window = int(Store(options.windows, kind="windows").manifest.settings["window"]) if options.windows else None
    sampling = Sampling(options.sampling, options.top_k, options.top_p)
    model = JointModel(options.generator, options.energy, sampling, options.engine, window)
    if open_model_folder(options.energy).tokenizer_digest != model.generator.model.tokenizer_digest:
        raise UserError(f"{options.energy} and {options.generator} have different vocabularies")
    if options.windows:
        store = Store(options.windows, kind="windows")
        model.generator.model.check_fits(int(window or 0), store.manifest.tokenizer, store.path)
    return model


def find_contexts(options: argparse.Namespace, model: JointModel, encoder: TextEncoder) -> Iterator[Context]:
    if options.windows:
        store = Store(options.windows, kind="windows")
        window = int(store.manifest.settings["window"])
        length = window * 3 // 4 if options.context_length is None else options.context_length
        if not 0 <= length < window:
            raise UserError(f"--context_length {length}: between 0 and {window - 1}, windows have {window} tokens")
        for number, row in enumerate(store.rows(["window_id", "tokens"])):
            if number == options.limit:
                return
            context, real = divide(row["tokens"], length, model.generator.model.direction)
            yield Context(row["window_id"], context, len(real), real)
        return
    most = model.generator.window_length - options.tokens
    if most < 0:
        raise UserError(f"--tokens {options.tokens}: a window of the models has {model.generator.window_length}")
    lines = files.read(options.prompts).decode(errors="replace").splitlines()
    for number, line in enumerate(line for line in lines if line.strip()):
        if number == options.limit:
            return
        ids = encoder.encode([line])[0]
        kept = ids[:most] if model.backwards else ids[max(0, len(ids) - most) :]
        yield Context(f"prompt-{number}", np.array(kept, np.int32), options.tokens, None)


def settings_of(options: argparse.Namespace, contexts: list[Context], model: JointModel) -> dict[str, Any]:
    """Everything that the samples depend on."""
    names = ("samples", "sampling", "top_k", "top_p", "autoregressive", "engine", "seed")
    return {name: getattr(options, name) for name in names} | {
        "contexts": [len(contexts), contexts[0].name if contexts else None, contexts[0].length if contexts else None],
        "generator": model.generator.model.weights_digest,
        "direction": model.generator.model.direction,
        "tokenizer": model.generator.model.tokenizer_digest,
        "energy": open_model_folder(options.energy).weights_digest,
    }


def prepare(options: argparse.Namespace, record: Record) -> None:
    """Makes the folder this run's; what was made with other settings is refused, or replaced if that is wanted."""
    there = read_record(options.output)
    if there is None and (strange := [name for name in files.names_in(options.output) if not name.endswith(".tmp")]):
        raise UserError(f"--output {options.output}: there is something else in this folder ({strange[0]})")
    if there is not None and there.settings != record.settings:
        if not options.overwrite:
            raise UserError(
                f"--output {options.output}: made with other settings "
                f"({differences(there.settings, record.settings)}): choose another folder, or see --overwrite"
            )
        files.remove(files.join(options.output, RESULT))
        files.remove(files.join(options.output, PARTS))
    write_record(options.output, record)


def draw(options: argparse.Namespace, model: JointModel, contexts: list[Context], encoder: TextEncoder) -> None:
    """A few contexts at a time, each few written when they are done; then all in one file."""
    if not contexts:
        raise UserError(f"{options.windows or options.prompts}: there is nothing to complete in it")
    rows: list[dict[str, Any]] = []
    with tqdm(total=len(contexts), unit=" contexts", dynamic_ncols=True, disable=None) as bar:
        for start in range(0, len(contexts), AT_ONCE):
            some = contexts[start : start + AT_ONCE]
            part = files.join(options.output, PARTS, f"{start:08d}.json")
            if not files.is_file(part):
                found = by_token(options, model, some) if options.autoregressive else at_once(options, model, some)
                made = [described(row, encoder) for row in found]
                files.put(part, json.dumps(made).encode())
            rows += json.loads(files.read(part))
            bar.update(len(some))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    files.put(files.join(options.output, RESULT), sink.getvalue())
    files.remove(files.join(options.output, PARTS))


def at_once(options: argparse.Namespace, model: JointModel, contexts: list[Context]) -> Iterator[dict[str, Any]]:
    """Algorithm 1: the samples of one context at a time, so that memory holds one context's."""
    for context in contexts:
        seed = request_seed(options.seed, context.name, len(context.tokens))
        (drawn,) = model.complete([context.tokens], [context.length], [seed], options.samples)
        row = common(context, model)
        places = {"chosen": drawn.chosen, "base": 0, "best": int(drawn.energies.argmin()), "worst": drawn.worst}
        for name, place in places.items():
            row |= {name: drawn.completions[place], f"{name}_energy": float(drawn.energies[place])}
        yield row | {"energies": drawn.energies, "effective_samples": drawn.effective_samples}


def by_token(options: argparse.Namespace, model: JointModel, contexts: list[Context]) -> Iterator[dict[str, Any]]:
    for context in contexts:
        seed = request_seed(options.seed, context.name, len(context.tokens))
        chosen = model.complete_by_token(
            context.tokens, context.length, seed, completions=options.samples, top=options.top_k
        )
        (drawn,) = model.generator.sample([context.tokens], [context.length], [seed])
        base = drawn.tokens[0]
        of_chosen, of_base = model.energies(context.tokens, np.stack([chosen, base])).tolist()
        row = common(context, model) | {"chosen": chosen, "chosen_energy": of_chosen}
        yield row | {"base": base, "base_energy": of_base}


def common(context: Context, model: JointModel) -> dict[str, Any]:
    real = context.real
    energy = None if real is None else float(model.energies(context.tokens, real[None])[0])
    return {"window_id": context.name, "context": context.tokens, "real": real, "real_energy": energy}


def described(row: dict[str, Any], encoder: TextEncoder) -> dict[str, Any]:
    """A row as it is written: ids as lists, and the text of each beside them."""
    plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in row.items()}
    for name in ("context", "real", "chosen", "base", "best", "worst"):
        if plain.get(name) is not None:
            plain[f"{name}_text"] = encoder.decode(plain[name])
    return plain


def describe(output: str) -> None:
    with files.open_random(files.join(output, RESULT)) as source:
        rows = pq.read_table(source)
    print(f"samples {files.join(output, RESULT)}: {len(rows):,} contexts")
    if "effective_samples" in rows.column_names:
        effective = np.median(rows["effective_samples"].to_numpy())
        print(f"  effective  {effective:,.1f} of {len(rows['energies'][0]):,} samples (median)")
    for row in rows.slice(0, 3).to_pylist():
        print(f"  context    …{row['context_text'][-60:]!r}")
        print(f"  chosen     {row['chosen_text'][:100]!r}, energy {row['chosen_energy']:.2f}")


if __name__ == "__main__":
    exit_with(main)

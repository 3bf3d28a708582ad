"""Samples from the joint model: for every context, the generator's completions, and the one that the energy chooses.

  python evaluation/sample_joint.py --energy models/books-energy --generator models/books-tiny \\
      --windows stores/books-test --limit 100 --samples 1000 --output results/books-samples

Written is samples.parquet, a row for every context: the completion chosen, the first one drawn, which is a plain sample
of the generator (base), those of the lowest and the highest energy (best, worst), the real one where it is known, their
energies, all samples' energies, and how many of the samples count (effective_samples). A killed run continues when the
same command is given again. --prompts takes a text file, a prompt on each line. --autoregressive goes token by token,
slowly: for each of the generator's 128 likeliest words, --samples completions are drawn and weighed.

Without --energy, the generator alone is sampled, such as one that is to be compared with a joint model (BALM): one
completion of each context, called base, and no energies.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from evaluation.joint.model import JointModel, open_proposal
from evaluation.results.parquet_file import write_parquet
from pipeline.engines.environment import prepare_environment
from pipeline.engines.generator import Generator
from pipeline.engines.sampling import RULES, TOP_K, Sampling, request_seed
from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.progress import Bar
from pipeline.runtime.settings import Settings, read_settings, setting
from pipeline.stores.manifest import Record, read_record, write_record
from pipeline.stores.reader import Store
from pipeline.stores.writer import OutputFolder
from pipeline.text.tokenizer import TextEncoder, load_tokenizer
from schemas.division import divide, nearest
from schemas.results import COMPLETIONS, SAMPLES, SAMPLES_FILE
from training.energy.folder import open_either

SCRIPT = "evaluation/sample_joint.py"
PARTS = "parts"
AT_ONCE = 8  # contexts: what a kill loses
SAMPLES_DRAWN = 10_000  # of each context, for an energy to choose from


@dataclass(frozen=True, kw_only=True)
class JointSamplesSettings(Settings):
    """Two models (or a language model alone), what they complete, and how the generator draws."""

    energy: str | None = setting(
        None, help="an energy model (default: none, a sample of the generator alone)", metavar="DIR_OR_NAME"
    )
    generator: str = setting(help="the language model it was trained for", metavar="DIR_OR_NAME")
    windows: str | None = setting(None, help="windows whose beginnings are completed", metavar="STORE")
    prompts: str | None = setting(None, help="a text file, a prompt on each line", metavar="FILE")
    context_length: int | None = setting(None, help="of windows (default: three quarters of them)", metavar="N")
    tokens: int = setting(40, help="that follow a prompt (default: 40)", metavar="N", least=1)
    limit: int | None = setting(None, help="the first N windows or prompts (default: all)", metavar="N", least=1)
    samples: int | None = setting(
        None, help=f"of each context (default: {SAMPLES_DRAWN}, without --energy 1)", metavar="N", least=1
    )
    sampling: str = setting(TOP_K, help="of the generator (default: top_k)", choices=RULES)
    top_k: int = setting(10, help="of top_k (default: 10)", metavar="K")
    top_p: float = setting(0.9, help="of nucleus (default: 0.9)", metavar="P")
    autoregressive: bool = setting(False, help="token by token, marginalising the future")
    engine: str = setting("torch", help="of the generator (default: torch)", choices=("vllm", "torch"))
    seed: int = setting(0, help="(default: 0)")
    output: str = setting(help="where samples.parquet goes", metavar="DIR")
    overwrite: bool = setting(False, help="replace samples made with other settings")

    def check(self) -> None:
        if self.windows is not None and self.prompts is not None:
            raise UserError("argument --prompts: not allowed with argument --windows: see --help")
        if self.windows is None and self.prompts is None:
            raise UserError("one of the arguments --windows --prompts is required: see --help")
        if not 0 <= self.seed < 2**62:
            raise UserError(f"--seed {self.seed}: between 0 and 2^62 - 1")
        if self.autoregressive and self.engine != "torch":
            raise UserError("--autoregressive: needs every token's probability, which --engine torch has")
        if self.energy is None and self.autoregressive:
            raise UserError("--autoregressive: weighs tokens by their energies: give --energy")
        if self.energy is None and self.drawn > 1:
            raise UserError(f"--samples {self.samples}: nothing chooses among them: give --energy, or leave it out")

    @property
    def drawn(self) -> int:
        """Samples of each context."""
        return self.samples or (1 if self.energy is None else SAMPLES_DRAWN)


@dataclass(frozen=True)
class Context:
    """What is to be completed, with its real completion if it is known."""

    name: str
    tokens: NDArray[np.int32]
    length: int
    real: NDArray[np.int32] | None


Complete = Callable[[list[Context]], Iterator[dict[str, Any]]]


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(JointSamplesSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    describe(sample_joint(settings), settings.output)
    return 0


def sample_joint(settings: JointSamplesSettings) -> pa.Table:
    """The rows of samples.parquet, drawn if they are not there."""
    prepare_environment()
    generator = open_sampled(settings)
    encoder = load_tokenizer(generator.model.folder)
    contexts = list(find_contexts(settings, generator, encoder))
    folder = OutputFolder(settings.output, Record.of(SCRIPT, settings, result_of(settings, contexts, generator)))
    complete = completing(settings, generator)  # what is wrong with a model comes up before the folder is claimed
    url = files.join(settings.output, SAMPLES_FILE)
    with folder.held():
        prepare(folder, settings.overwrite)
        if not files.is_file(url):
            draw(settings, complete, contexts, encoder)
        files.remove(settings.output, PARTS)  # also if it was a run before that wrote the file, and was killed then
    with files.open_random(url) as source:
        return pq.read_table(source)


def open_sampled(settings: JointSamplesSettings) -> Generator:
    """The generator, which has to fit the energy model and the windows."""
    window = int(Store(settings.windows, kind="windows").manifest.settings["window"]) if settings.windows else None
    sampling = Sampling(settings.sampling, settings.top_k, settings.top_p)
    generator = open_proposal(settings.generator, sampling, settings.engine, window)
    tokenizer = generator.model.tokenizer_digest
    if settings.energy is not None and open_either(settings.energy).tokenizer_digest != tokenizer:
        raise UserError(f"{settings.energy} and {settings.generator} have different vocabularies")
    if settings.windows:
        store = Store(settings.windows, kind="windows")
        generator.model.check_fits(int(window or 0), store.manifest.tokenizer, store.path)
    return generator


def find_contexts(settings: JointSamplesSettings, generator: Generator, encoder: TextEncoder) -> Iterator[Context]:
    """The windows' beginnings (ends, for a right-to-left generator), or the prompts; as many as are wanted."""
    if settings.windows is not None:
        length, direction = settings.context_length, generator.model.direction
        found = contexts_of_windows(Store(settings.windows, kind="windows"), length, direction)
    else:
        found = contexts_of_prompts(str(settings.prompts), settings.tokens, generator, encoder)
    return islice(found, settings.limit)


def contexts_of_windows(store: Store, wanted: int | None, direction: str) -> Iterator[Context]:
    window = int(store.manifest.settings["window"])
    length = window * 3 // 4 if wanted is None else wanted
    if not 0 <= length < window:
        raise UserError(f"--context_length {length}: between 0 and {window - 1}, windows have {window} tokens")
    for row in store.rows(["window_id", "tokens"]):
        context, real = divide(row["tokens"], length, direction)
        yield Context(row["window_id"], context, len(real), real)


def contexts_of_prompts(path: str, tokens: int, generator: Generator, encoder: TextEncoder) -> Iterator[Context]:
    """Of a prompt that is too long for the model's window, what is nearest to the completion."""
    most = generator.window_length - tokens
    if most < 0:
        raise UserError(f"--tokens {tokens}: a window of the models has {generator.window_length}")
    lines = files.read(path).decode(errors="replace").splitlines()
    for number, line in enumerate(line for line in lines if line.strip()):
        ids = np.array(encoder.encode([line])[0], np.int32)
        yield Context(f"prompt-{number}", nearest(ids, most, generator.model.direction), tokens, None)


def result_of(settings: JointSamplesSettings, contexts: list[Context], generator: Generator) -> dict[str, Any]:
    """Everything that the samples depend on."""
    names = ("sampling", "top_k", "top_p", "autoregressive", "engine", "seed")
    return {name: getattr(settings, name) for name in names} | {
        "samples": settings.drawn,
        "contexts": [len(contexts), contexts[0].name if contexts else None, contexts[0].length if contexts else None],
        "generator": generator.model.weights_digest,
        "direction": generator.model.direction,
        "tokenizer": generator.model.tokenizer_digest,
        "energy": None if settings.energy is None else open_either(settings.energy).weights_digest,
    }


def prepare(folder: OutputFolder, overwrite: bool) -> None:
    """Makes the folder this run's; what was made with other settings is refused, or replaced if that is wanted."""
    there = read_record(folder.output)
    folder.check_owner(there, overwrite, "choose another folder, or see --overwrite")
    if there is not None and there.settings != folder.record.settings:
        files.remove(folder.output, SAMPLES_FILE)
        files.remove(folder.output, PARTS)
    write_record(folder.output, folder.record)


def draw(settings: JointSamplesSettings, complete: Complete, contexts: list[Context], encoder: TextEncoder) -> None:
    """A few contexts at a time, each few written when they are done; then all in one file."""
    if not contexts:
        raise UserError(f"{settings.windows or settings.prompts}: there is nothing to complete in it")
    rows: list[dict[str, Any]] = []
    with Bar(total=len(contexts), desc="sampling", unit=" contexts") as bar:
        for start in range(0, len(contexts), AT_ONCE):
            some = contexts[start : start + AT_ONCE]
            part = files.join(settings.output, PARTS, f"{start:08d}.json")
            if not files.is_file(part):
                made = [described(row, encoder) for row in complete(some)]
                files.put(part, json.dumps(made).encode())
            rows += json.loads(files.read(part))
            bar.update(len(some))
    table = pa.Table.from_pylist(rows, pa.schema([SAMPLES.field(name) for name in rows[0]]))
    write_parquet(files.join(settings.output, SAMPLES_FILE), table)


def completing(settings: JointSamplesSettings, generator: Generator) -> Complete:
    """From contexts to the rows of their completions."""
    if settings.energy is None:
        return partial(alone, settings, generator)
    model = JointModel(generator, settings.energy)
    return partial(by_token if settings.autoregressive else at_once, settings, model)


def alone(settings: JointSamplesSettings, generator: Generator, contexts: list[Context]) -> Iterator[dict[str, Any]]:
    """A sample of the generator for each context: the base of the same contexts, seed and rule with an energy."""
    seeds = [request_seed(settings.seed, context.name, len(context.tokens)) for context in contexts]
    drawn = generator.sample([context.tokens for context in contexts], [context.length for context in contexts], seeds)
    for context, completions in zip(contexts, drawn, strict=True):
        yield {
            "window_id": context.name,
            "context": context.tokens,
            "real": context.real,
            "base": completions.tokens[0],
        }


def at_once(settings: JointSamplesSettings, model: JointModel, contexts: list[Context]) -> Iterator[dict[str, Any]]:
    """Algorithm 1: the samples of one context at a time, so that memory holds one context's."""
    for context in contexts:
        seed = request_seed(settings.seed, context.name, len(context.tokens))
        (drawn,) = model.complete([context.tokens], [context.length], [seed], settings.drawn)
        row = common(context, model)
        places = {"chosen": drawn.chosen, "base": 0, "best": int(drawn.energies.argmin()), "worst": drawn.worst}
        for name, place in places.items():
            row |= {name: drawn.completions[place], f"{name}_energy": float(drawn.energies[place])}
        yield row | {"energies": drawn.energies, "effective_samples": drawn.effective_samples}


def by_token(settings: JointSamplesSettings, model: JointModel, contexts: list[Context]) -> Iterator[dict[str, Any]]:
    for context in contexts:
        seed = request_seed(settings.seed, context.name, len(context.tokens))
        chosen = model.complete_by_token(
            context.tokens, context.length, seed, completions=settings.drawn, top=settings.top_k
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
    for name in ("context", *COMPLETIONS):
        if plain.get(name) is not None:
            plain[f"{name}_text"] = encoder.decode(plain[name])
    return plain


def describe(rows: pa.Table, output: str) -> None:
    print(f"samples {files.join(output, SAMPLES_FILE)}: {len(rows):,} contexts")
    if "effective_samples" in rows.column_names:
        effective = np.median(rows["effective_samples"].to_numpy())
        print(f"  effective  {effective:,.1f} of {len(rows['energies'][0]):,} samples (median)")
    for row in rows.slice(0, 3).to_pylist():
        print(f"  context    …{row['context_text'][-60:]!r}")
        if "chosen_text" in row:
            print(f"  chosen     {row['chosen_text'][:100]!r}, energy {row['chosen_energy']:.2f}")
        else:
            print(f"  base       {row['base_text'][:100]!r}")


if __name__ == "__main__":
    exit_with(main)

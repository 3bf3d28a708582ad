"""Makes a store of negatives from pairs that exist already: preferences, lists of candidates, answers of two kinds.

  python pipeline/import_pairs.py --input preferences.parquet --corpus answers --split train \\
      --tokenizer models/encoder --output stores/answers-train

Known by their columns: prompt, chosen, rejected (TRL, also as messages); chosen and rejected alone; anchor or query,
positive, negative (or negative_1, …); query, docs, labels; question, human_answers, chatgpt_answers. Of others,
--prompt, --better and --others say which columns are which. A column may hold a list of texts.

The better text stands where the real one does in other stores, the others where negatives do, and the prompt is their
context. Nobody knows their log-probabilities, and no language model is named: energy models are trained on them
(--objective ranking makes a reranker or a reward model), accuracies are measured, and bounds are refused. What begins
alike in the better text and in all others is context too, where there is no prompt.
"""

import hashlib
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import schemas
from pipeline.pairs.reading import Pair, find_columns, pairs_in, rows_in
from pipeline.runtime import files
from pipeline.runtime.digests import digest_of
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.progress import Bar
from pipeline.runtime.randomness import mix
from pipeline.runtime.settings import Settings, read_settings, setting
from pipeline.runtime.summary import print_summary
from pipeline.stores.manifest import Manifest, Record
from pipeline.stores.shards import TOKENIZER_FOLDER, Shard
from pipeline.stores.writer import StoreWriter
from pipeline.text.tokenizer import TextEncoder, load_tokenizer
from schemas.division import LEFT_TO_RIGHT

SCRIPT = "pipeline/import_pairs.py"
SHARD_ROWS = 8192
AT_ONCE = 1000  # pairs that are tokenised together
PAIRS, ROWS = "the pairs", "the rows"


@dataclass(frozen=True, kw_only=True)
class ImportPairsSettings(Settings):
    """Which columns of which files become rows, and where they go."""

    input: tuple[str, ...] = setting(
        metavar="PATTERN", help=".jsonl (also .gz, .zst) or .parquet; may be given several times", group=PAIRS
    )
    prompt: str | None = setting(None, metavar="COLUMN", help="what stands before both", group=PAIRS, result=True)
    better: str | None = setting(None, metavar="COLUMN", help="of the better text", group=PAIRS, result=True)
    others: tuple[str, ...] = setting(
        (), metavar="COLUMNS", help="of the others, with commas", commas=True, group=PAIRS, result=True
    )
    corpus: str = setting(metavar="NAME", help="of the pairs, for later tables", group=PAIRS, result=True)
    split: str = setting(metavar="NAME", help="train, valid or test", group=PAIRS, result=True)
    tokenizer: str = setting(
        metavar="DIR_OR_NAME", help="of the model to be trained: its folder, a store's, or a hub name", group=ROWS
    )
    window: int = setting(
        256,
        metavar="TOKENS",
        help="at most: half of it, or less, the last of a prompt, the rest the first of a text (default: 256)",
        group=ROWS,
        least=2,
        most=10**6,
        result=True,
    )
    seed: int = setting(0, help="of the order (default: 0)", group=ROWS, least=0, most=2**63 - 1, result=True)
    output: str = setting(metavar="DIR", help="its folder, on any filesystem", group="the store")
    overwrite: bool = setting(False, help="replace a store that was made with other settings", group="the store")


@dataclass(frozen=True)
class TokenPair:
    """A pair in tokens: context, the better completion, the others."""

    context: list[int]
    better: list[int]
    others: list[list[int]]


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(ImportPairsSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    describe(settings.output, import_pairs(settings))
    return 0


def import_pairs(settings: ImportPairsSettings) -> Manifest:
    """Makes a store of negatives from pairs, unless it is there."""
    urls = sorted({url for pattern in settings.input for url in found(pattern)})
    encoder = load_tokenizer(settings.tokenizer)
    result = settings.result() | {
        "context_lengths": list(range(settings.window // 2 + 1)),
        "direction": LEFT_TO_RIGHT,
        "sampling": {"rule": "unknown"},
        "tokenizer": encoder.encoding_digest,
        "inputs": {url.rsplit("/", 1)[-1]: digest_of_file(url) for url in urls},
    }
    writer = StoreWriter(settings.output, Record.of(SCRIPT, settings, result), "negatives")
    with writer.held():
        if (there := writer.made_before(settings.overwrite)) is not None:
            print(f"{settings.output}: finished before, nothing to do")
            return there
        with writer.making():
            return make(settings, read_pairs(settings, urls), encoder, writer)


def found(pattern: str) -> list[str]:
    if not (urls := files.glob(pattern)):
        raise UserError(f"--input {pattern}: no file matches: check the path, and quote the pattern")
    return urls


def digest_of_file(url: str) -> str:
    digest = hashlib.sha256()
    with files.open_random(url) as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def read_pairs(settings: ImportPairsSettings, urls: list[str]) -> list[Pair]:
    pairs: list[Pair] = []
    for url in Bar(urls, desc="reading", unit=" files"):
        columns = None
        for place, row in rows_in(url):
            columns = columns or find_columns(row, place, settings.prompt, settings.better, settings.others)
            pairs += pairs_in(row, columns, place)
    if not pairs:
        raise UserError(f"--input {urls[0]}: there are no pairs in it, nor in others if given")
    return pairs


def make(settings: ImportPairsSettings, pairs: list[Pair], encoder: TextEncoder, writer: StoreWriter) -> Manifest:
    """Tokenises all pairs, then writes the store."""
    rows, empty = rows_of(settings, pairs, encoder)
    if not len(rows):
        raise UserError("--input: of every pair, one of the texts is empty")
    encoder.save(files.join(writer.work, TOKENIZER_FOLDER))
    writer.claim(files.join(writer.work, TOKENIZER_FOLDER))
    negatives = rows["negatives"].combine_chunks()
    return writer.finish(
        write_shards(rows, writer),
        tokenizer=encoder.description,
        parent=None,
        seed=settings.seed,
        counts={
            "windows": len(set(rows["window_id"].to_pylist())),
            "negatives": len(negatives.flatten()),
            "tokens": len(negatives.flatten().flatten()),
            "pairs": len(pairs),
            "empty": empty,
        },
        sampling={"rule": "unknown"},
    )


def rows_of(settings: ImportPairsSettings, pairs: list[Pair], encoder: TextEncoder) -> tuple[pa.Table, int]:
    """The rows in shuffled order, and how many pairs have an empty text and are none."""
    ids, tokens, empty = [], [], 0
    with Bar(total=len(pairs), desc="tokenising", unit=" pairs") as bar:
        for start in range(0, len(pairs), AT_ONCE):
            some = pairs[start : start + AT_ONCE]
            for pair, own in zip(some, token_pairs(some, encoder, settings.window), strict=True):
                if own.better and all(own.others):
                    ids.append(pair_id(settings, pair))
                    tokens.append(own)
                else:
                    empty += 1
            bar.update(len(some))
    keys = np.array([int(id[:16], 16) for id in ids], np.uint64)
    order = np.argsort(mix(keys, settings.seed), kind="stable").tolist()
    seen: Counter[str] = Counter()
    rows = []
    for place in order:
        own = tokens[place]
        row = {
            "window_id": ids[place],
            "corpus": settings.corpus,
            "split": settings.split,
            "tokens": own.context + own.better,
            "direction": LEFT_TO_RIGHT,
            "context_length": len(own.context),
            "first_sample": seen[ids[place]],
            "negatives": own.others,
            "seed": settings.seed,
        }
        seen[ids[place]] += len(own.others)
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=schemas.NEGATIVES), empty


def token_pairs(pairs: list[Pair], encoder: TextEncoder, window: int) -> list[TokenPair]:
    """Pairs in tokens, cut to the window: of a prompt its last tokens are kept, of completions their first."""
    encoded = iter(encoder.encode([text for pair in pairs for text in (pair.prompt, pair.better, *pair.others)]))
    cut = []
    for pair in pairs:
        prompt, better, *others = [next(encoded) for _ in range(2 + len(pair.others))]
        if not pair.prompt:
            prompt, better, *others = common_context([better, *others])
        context = prompt[-min(len(prompt), window // 2) :] if prompt else []
        room = window - len(context)
        cut.append(TokenPair(context, better[:room], [ids[:room] for ids in others]))
    return cut


def common_context(texts: list[list[int]]) -> list[list[int]]:
    """The tokens that all begin with, and what is left of each: at least a token."""
    most = min(map(len, texts)) - 1
    same = next((place for place in range(max(0, most)) if len({ids[place] for ids in texts}) > 1), max(0, most))
    return [texts[0][:same], *(ids[same:] for ids in texts)]


def pair_id(settings: ImportPairsSettings, pair: Pair) -> str:
    """Of a better text and what stands before it, whatever file it is in."""
    names = f"{settings.corpus}\0{settings.split}\0{pair.prompt}\0{pair.better}"
    return hashlib.blake2b(names.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def write_shards(rows: pa.Table, writer: StoreWriter) -> list[Shard]:
    """All rows, except shards that an earlier run wrote."""
    digest, there, shards = digest_of(writer.record.settings), writer.shard_files(), []
    for number, first in enumerate(Bar(range(0, len(rows), SHARD_ROWS), desc="writing", unit=" shards")):
        shard = writer.shard(there.get(number, ()), digest)
        shards.append(shard or writer.write(number, rows.slice(first, SHARD_ROWS).combine_chunks(), digest))
    return shards


def describe(output: str, manifest: Manifest) -> None:
    counts, settings = manifest.counts, manifest.settings
    facts = {
        "pairs": f"{counts['pairs']:,} of {settings['corpus']}, {settings['split']}"
        + (f", of which {counts['empty']:,} have an empty text and are left out" if counts["empty"] else ""),
        "rows": f"{manifest.rows:,}, at most {settings['window']} tokens, {counts['negatives']:,} negatives",
        "shards": f"{len(manifest.shards):,}, {manifest.bytes / 1e6:,.1f} MB",
        "digest": manifest.digest,
    }
    print_summary(f"negatives store {output}", facts)


if __name__ == "__main__":
    exit_with(main)

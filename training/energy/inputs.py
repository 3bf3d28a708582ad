"""From rows of negatives to what an energy model reads: the real window, and those with a sampled completion."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pipeline.runtime.randomness import mix
from pipeline.text.tokenizer import TextEncoder
from schemas.division import LEFT_TO_RIGHT, RIGHT_TO_LEFT, divide, join

Ids = NDArray[np.int64]
COLUMNS = ("tokens", "direction", "context_length", "negatives")
CACHE_WINDOWS = 1 << 17  # windows whose ids under a tokenizer of the model's own are kept


@dataclass(frozen=True)
class Sequences:
    """Sequences of ids, padded with zeros at their end, and how long each is."""

    ids: Ids
    lengths: Ids

    @property
    def padded(self) -> int:
        """Positions that are computed for nothing."""
        return int(self.ids.size - self.lengths.sum())


def completed(rows: pa.Table, negatives: int, places: NDArray[np.int64]) -> Sequences:
    """All windows of the rows, 1 + `negatives` a row: the real one first, then the context with sampled completions.

    Of a row with more negatives, those from a random one on are taken, drawn from the row's place.
    """
    tokens, samples = _lists(rows["tokens"]), _lists(rows["negatives"])
    completions = samples.values
    counts = samples.value_lengths().to_numpy()
    first = samples.offsets.to_numpy()[:-1] + np.where(
        counts > negatives, mix(places.astype(np.uint64)) % np.maximum(counts, 1).astype(np.uint64), 0
    ).astype(np.int64)
    chosen = first[:, None] + np.arange(negatives)
    chosen -= np.where(chosen >= samples.offsets.to_numpy()[1:, None], counts[:, None], 0)  # on from the first again
    backwards = rows["direction"].combine_chunks().to_numpy(zero_copy_only=False) == RIGHT_TO_LEFT
    contexts = rows["context_length"].to_numpy()
    lengths = tokens.value_lengths().to_numpy()
    starts, ends = completions.offsets.to_numpy()[:-1][chosen], completions.offsets.to_numpy()[1:][chosen]
    if (lengths == lengths[0]).all() and (ends - starts == (lengths - contexts)[:, None]).all():
        return _fixed(tokens, completions, starts, contexts, backwards, int(lengths[0]))
    return _ragged(tokens, completions, starts, ends, contexts, backwards)


def _fixed(
    tokens: pa.Array, completions: pa.Array, starts: Ids, contexts: NDArray, backwards: NDArray, length: int
) -> Sequences:
    """Windows that are all as long, as mining makes them: no position is padding, no row is touched by itself."""
    rows, count = starts.shape
    windows = np.repeat(tokens.flatten().to_numpy().reshape(rows, 1, length), 1 + count, axis=1).astype(np.int64)
    places = np.arange(length)
    cut = np.where(backwards, length - contexts, contexts)[:, None]
    sampled = np.where(backwards[:, None], places < cut, places >= cut)
    offset = np.where(backwards[:, None], places, places - cut)  # of a place within its completion
    source = (starts[:, :, None] + offset[:, None, :])[np.broadcast_to(sampled[:, None], (rows, count, length))]
    windows[:, 1:][np.broadcast_to(sampled[:, None], (rows, count, length))] = completions.values.to_numpy()[source]
    return Sequences(windows, np.full((rows, 1 + count), length))


def _ragged(
    tokens: pa.Array, completions: pa.Array, starts: Ids, ends: Ids, contexts: NDArray, backwards: NDArray
) -> Sequences:
    """Texts of any length, as those found in the wild."""
    flat, sampled, found = tokens.values.to_numpy(), completions.values.to_numpy(), []
    bounds = tokens.offsets.to_numpy()
    for row in range(len(starts)):
        window = flat[bounds[row] : bounds[row + 1]]
        direction = RIGHT_TO_LEFT if backwards[row] else LEFT_TO_RIGHT
        context, _ = divide(window, int(contexts[row]), direction)
        found.append(window)
        for start, end in zip(starts[row], ends[row], strict=True):
            found.append(join(context, sampled[start:end], direction))
    padded = pad(found)
    shape = (len(starts), 1 + starts.shape[1])
    return Sequences(padded.ids.reshape(*shape, -1), padded.lengths.reshape(shape))


def pad(sequences: Sequence[np.ndarray]) -> Sequences:
    """Sequences of unequal length in one array."""
    lengths = np.array([len(ids) for ids in sequences], np.int64)
    ids = np.zeros((len(sequences), int(lengths.max(initial=1))), np.int64)
    ids[np.arange(ids.shape[1]) < lengths[:, None]] = np.concatenate(sequences)
    return Sequences(ids, lengths)


def _lists(column: pa.ChunkedArray) -> pa.ListArray:
    """One array whose offsets begin at 0."""
    array = pa.concat_arrays(column.chunks)
    return array if not array.offset and array.offsets[0].as_py() == 0 else array.take(pa.array(range(len(array))))


class Reader(Protocol):
    """How a model reads windows of a store's ids; `cut` counts those that were too long for it."""

    cut: int

    def read(self, windows: Sequences) -> Sequences: ...


class PlainReader:
    """For models of the store's own vocabulary."""

    cut = 0

    def read(self, windows: Sequences) -> Sequences:
        return windows


@dataclass
class RetokenisingReader:
    """For an encoder with a tokenizer of its own: windows become text, the text its ids; what was read is remembered.

    An end of document becomes the encoder's own separator. What exceeds the encoder's positions is cut off at the end,
    before whatever the encoder ends a text with, and counted.
    """

    encoder: TextEncoder
    own: Tokenizer
    separator: str
    longest: int | None
    cut: int = 0
    known: "OrderedDict[bytes, NDArray[np.int32]]" = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)  # the next batch is read while one validates

    def __post_init__(self) -> None:
        self.own.no_truncation()
        if self.longest is not None:
            self.own.enable_truncation(self.longest)
        self.own.no_padding()

    def read(self, windows: Sequences) -> Sequences:
        with self.lock:
            return self._read(windows)

    def _read(self, windows: Sequences) -> Sequences:
        shape, width = windows.lengths.shape, windows.ids.shape[-1]
        flat = windows.ids.reshape(-1, width).astype(np.int32)
        keys = [ids[:length].tobytes() for ids, length in zip(flat, windows.lengths.ravel(), strict=True)]
        new = list(dict.fromkeys(key for key in keys if key not in self.known))
        if new:
            texts = self.encoder.backend.decode_batch(
                [np.frombuffer(key, np.int32).tolist() for key in new], skip_special_tokens=False
            )
            texts = [text.replace(self.encoder.eos_token, self.separator) for text in texts]
            for key, encoding in zip(new, self.own.encode_batch(texts), strict=True):
                self.known[key] = np.array(encoding.ids, np.int32)
                self.cut += bool(encoding.overflowing)
        for key in keys:
            self.known.move_to_end(key)
        found = pad([self.known[key] for key in keys])
        while len(self.known) > CACHE_WINDOWS:
            self.known.popitem(last=False)
        return Sequences(found.ids.reshape(*shape, -1), found.lengths.reshape(shape))

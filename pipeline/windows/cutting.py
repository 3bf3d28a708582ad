"""Windows: a stream of tokens cut at a stride, each window with an id that its text alone decides."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.runtime.randomness import U64, mix

Batch = Sequence[tuple[str, Sequence[int]]]  # documents' names, each with its next tokens
ORDERS = 1 << 64  # how many places there are in the shuffled order of all windows


@dataclass(frozen=True)
class Windows:
    """Some windows of one stream: for each the document that it starts in, its offset there, its tokens."""

    documents: list[str]
    offsets: NDArray[np.int64]
    tokens: NDArray[np.int32]


def document_name(digest: bytes, occurrence: int) -> str:
    """A document's name: the digest of its text, and which of several equal documents it is."""
    return f"{digest.hex()}.{occurrence}" if occurrence else digest.hex()


def cut_windows(
    batches: Iterable[Batch], window: int, stride: int, eos: int, start: int = 0, begun: int | None = None
) -> Iterator[Windows]:
    """Cuts one stream, given as batches of (document, its next tokens): EOS joins documents, the rest is dropped.

    A window starts at every multiple of `stride` from the stream's first token that leaves room for a whole one. Where
    what is given is not all of the stream, it is what comes from position `start` on, and its first document began at
    position `begun`.
    """
    held, first = np.empty(0, np.int32), start  # the tokens still needed, and the position of the first of them
    names: list[str] = []
    starts: list[int] = []  # where in the stream each of `names` begins
    next_window = -(-start // stride) * stride
    for batch in batches:
        pieces, end = [held], first + len(held)
        for name, ids in batch:
            if not names or name != names[-1]:
                if names:
                    pieces.append(np.array([eos], np.int32))
                    end += 1
                starts.append(begun if begun is not None and not names else end)
                names.append(name)
            pieces.append(np.array(ids, np.int32))
            end += len(ids)
        held = np.concatenate(pieces)
        count = max(0, (end - window - next_window) // stride + 1)
        if count:
            positions = next_window + stride * np.arange(count)
            inside = np.searchsorted(starts, positions, side="right") - 1
            tokens = np.lib.stride_tricks.sliding_window_view(held, window)[positions - first]
            yield Windows([names[k] for k in inside], positions - np.array(starts)[inside], tokens)
            next_window += count * stride
        kept = min(next_window, end)
        held, first = held[kept - first :], kept
        current = max(0, int(np.searchsorted(starts, kept, side="right")) - 1)
        names, starts = names[current:], starts[current:]


def window_ids(corpus: str, split: str, windows: Windows) -> NDArray[np.void]:
    """128-bit ids: of corpus, split, document and offset, so the same text has the same id in any file order."""
    prefix = hashlib.blake2b(f"{corpus}\0{split}\0".encode(), digest_size=16)
    ids = bytearray()
    for document, offset in zip(windows.documents, windows.offsets.tolist(), strict=True):
        digest = prefix.copy()
        digest.update(f"{document}\0{offset}".encode())
        ids += digest.digest()
    return np.frombuffer(bytes(ids), np.dtype("V16"))


def shuffled_order(ids: NDArray[np.void], seed: int) -> U64:
    """Each window's place in the shuffled order of all windows: a hash of its id, whatever the number of shards."""
    return mix(ids.view(">u8")[::2].astype(np.uint64), seed)


def shard_start(number: int, shards: int, orders: int) -> int:
    """The first order of a shard: a window is in shard `order * shards // orders`."""
    return -(-number * orders // shards)

"""Stretches of a stream, cut one by one, give the windows of the whole stream."""

import random

import pytest

from pipeline.runtime.errors import ResumableError
from pipeline.windows import streams
from pipeline.windows.cutting import cut_windows
from pipeline.windows.streams import TokenisedStretch, place_stretches, read_tokens, write_tokens

EOS = 9


def rows(windows):
    return [
        row for some in windows for row in zip(some.documents, some.offsets.tolist(), some.tokens.tolist(), strict=True)
    ]


def stretches_of(pieces, folder) -> list[TokenisedStretch]:
    """Each piece, a list of (document, tokens), written as a stretch of its own."""
    made = []
    for number, piece in enumerate(pieces):
        parts, facts = write_tokens([[run] for run in piece], f"{folder}/{number}", 2)
        tokens = sum(len(ids) for _, ids in piece)
        made.append(TokenisedStretch("file", number, parts, **facts, tokens=tokens, repeated=0))
    return made


@pytest.mark.parametrize("seed", range(25))
def test_windows_of_stretches_are_those_of_the_stream(tmp_path, monkeypatch, seed):
    """Documents without tokens, stretches without documents, windows over several of them, documents over several."""
    monkeypatch.setattr(streams, "PART_TOKENS", 20)
    monkeypatch.setattr(streams, "GROUP_RUNS", 2)
    rng = random.Random(seed)
    one_document = seed % 3 == 0  # as a .txt file is
    runs = [
        ("text" if one_document else f"d{number}", rng.choices(range(8), k=rng.choice([0, 0, 1, 3, 30])))
        for number in range(rng.randint(1, 20))
    ]
    edges = sorted(rng.choices(range(len(runs) + 1), k=rng.randint(0, 8)))
    pieces = [runs[start:end] for start, end in zip([0, *edges], [*edges, len(runs)], strict=True)]
    window, stride = rng.randint(2, 25), rng.randint(1, 30)
    placed = list(place_stretches(reversed(stretches_of(pieces, tmp_path)), window))
    found = [
        row
        for place in placed
        for row in rows(cut_windows(place.batches(window), window, stride, EOS, place.position, place.begun))
    ]
    assert found == rows(cut_windows([[run] for run in runs], window, stride, EOS))
    assert all(len(place.later) <= window for place in placed)


def test_damaged_tokens_are_removed_for_the_next_run_to_make_again(tmp_path):
    (stretch,) = stretches_of([[("a", [1, 2, 3] * 500)]], tmp_path)
    (file,) = tmp_path.rglob("*.parquet")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(ResumableError, match="damaged and removed"):
        list(read_tokens(stretch.parts))
    assert not file.exists()

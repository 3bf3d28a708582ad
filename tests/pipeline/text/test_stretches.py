"""Files in stretches of any size are the same documents, rejects and digests as the files themselves."""

import gzip
import io
import json
import random
import re
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from pipeline.text import stretches as stretches_module
from pipeline.text.documents import UnusableDocument, find_sources, read_documents
from pipeline.text.stretches import divide, divide_text, read_stretch, undivided
from pipeline.text.survey import joined_input, survey_file

PIECES = ["a", "é", "中", "\U0001f600", "whale", " ", "  ", ". ", "_", "\t", "'s ", "\r", "\u00a0", "7"]


def some_text(rng: random.Random, least: int = 0, most: int = 60) -> str:
    return "".join(rng.choices(PIECES, k=rng.randint(least, most)))


def write_jsonl(path: Path, rng: random.Random) -> None:
    """Good lines, bad ones, blank ones, some with CRLF, some very long, the last perhaps without an end."""

    def line() -> bytes:
        text = json.dumps({"text": some_text(rng, most=rng.choice([5, 60, 900]))}, ensure_ascii=False).encode()
        bad = [b"no JSON", b'{"text": "\xff"}', b'{"text": "\\ud800"}', b'{"body": 1}', b'{"text": "\0"}', b"", b" \t"]
        return rng.choice([text] * 12 + bad)

    lines = [line() + rng.choice([b"\n", b"\n", b"\r\n", b"\n\n"]) for _ in range(rng.randint(1, 25))]
    mark = rng.choice([b"", b"\xef\xbb\xbf"])
    path.write_bytes(mark + b"".join(lines) + rng.choice([b"", line()]))


def write_parquet(path: Path, rng: random.Random) -> None:
    values = [
        rng.choice([some_text(rng).encode(), None, b"bad \xff", b"nul \0", b""]) for _ in range(rng.randint(1, 40))
    ]
    pq.write_table(pa.table({"text": pa.array(values, pa.binary())}), path, row_group_size=rng.randint(1, 9))


def write_wikitext(path: Path, rng: random.Random) -> None:
    lines = [" = A title = \n", " = Another = \r\n", "\n", "\r\n", "  \n", " = = Section = = \n", " = \n"]
    body = [rng.choice([*lines, *lines[:3], f" {some_text(rng, 1)} \n"]) for _ in range(rng.randint(1, 60))]
    start = rng.choice(["", " = First = \n\n", "\n = First = \n\n", "text \n"])
    data = (start + "".join(body)).encode()
    path.write_bytes(data.replace(b"7", b"\xff", 1) if rng.random() < 0.3 else data)


FORMATS = {"jsonl": write_jsonl, "parquet": write_parquet, "wikitext": write_wikitext}


def documents(source):
    found = []
    for pieces in read_documents(source):
        try:
            found.append("".join(pieces))
        except UnusableDocument as rejected:
            found.append((rejected.reason, rejected.offset))
    return found


@pytest.mark.parametrize("format", FORMATS)
def test_stretches_of_any_size_are_the_documents_of_the_file(tmp_path, format):
    several = 0
    for seed in range(40):
        rng = random.Random(seed)
        path = tmp_path / f"{seed}.any"
        FORMATS[format](path, rng)
        (source,) = find_sources([str(path)], "train", format)
        whole = documents(source)
        survey = survey_file(source)
        for size in (rng.randint(1, source.bytes + 1), -(-source.bytes // 20)):
            divided = divide(source, size)
            assert [document for stretch in divided for document in documents(stretch)] == whole
            assert joined_input(survey_file(stretch) for stretch in divided) == (survey.as_input, survey.rejects)
            several += sum(bool(documents(stretch)) for stretch in divided) > 1
    assert several > 20  # or nothing was divided


def test_a_long_document_is_read_once_and_not_by_the_stretches_inside_of_it(tmp_path, monkeypatch):
    """What no stretch but its own reads of it: a file of one line would else be read as often as it has stretches."""
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "long " * 40_000}) + '\n{"text": "b"}\n')
    (source,) = find_sources([str(tmp_path / "a.jsonl")], "train")
    monkeypatch.setattr("pipeline.text.documents.READ_BYTES", 1000)
    read = []

    class Counted(io.BufferedReader):
        def readline(self, size=-1):
            read.append(size)
            return super().readline(size)

    monkeypatch.setattr(files, "open_stream", lambda url, start=0: counted(url, start))

    def counted(url, start):
        stream = Counted(io.FileIO(url))
        stream.seek(start)
        return stream

    divided = divide(source, 20_000)
    found = [documents(stretch) for stretch in divided]
    assert [len(some) for some in found] == [1] + [0] * (len(found) - 2) + [1]
    assert sum(read) <= source.bytes + 1000 * len(divided)


def test_wikitext_whose_first_title_comes_late_is_not_divided(tmp_path):
    """All before its second title is one article, and no stretch after the first could tell which title it sees."""
    (tmp_path / "a.txt").write_text("text \n" * 50 + "\n = First = \n\n" + "text \n" * 50 + "\n = Second = \n\n x \n")
    (source,) = find_sources([str(tmp_path / "a.txt")], "train", "wikitext")
    assert divide(source, 100) == [source]
    assert len(divide(source, 350)) == 2
    assert [document for stretch in divide(source, 350) for document in documents(stretch)] == documents(source)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_stretches_of_a_text_are_the_text_cut_where_a_tokenizer_may(tmp_path, monkeypatch, encoding):
    monkeypatch.setattr(stretches_module, "CUT_BYTES", 16)
    cuts = 0
    for seed in range(30):
        rng = random.Random(seed)
        path = tmp_path / f"{seed}.txt"
        text = some_text(rng, 5, 300)
        data = text.encode(encoding, "replace")
        path.write_bytes(data if encoding == "latin-1" or rng.random() < 0.7 else b"\xef\xbb\xbf" + data)
        (source,) = find_sources([str(path)], "train", "text", encoding=encoding)
        for size in (rng.randint(1, source.bytes), -(-source.bytes // 20)):
            divided = divide_text(source, size)
            texts = ["".join(read_stretch(divided, number)) for number in range(len(divided))]
            assert "".join(texts) == data.decode(encoding)
            for one, other in pairwise(list(filter(None, texts))):
                assert re.match(r"[^\W_][ \n]|[!-~] ", one[-1] + other[0])
                cuts += 1
    assert cuts > 50


def test_a_text_that_changes_between_its_stretches_is_noticed(tmp_path):
    (tmp_path / "a.txt").write_text("some words here " * 50)
    (source,) = find_sources([str(tmp_path / "a.txt")], "train")
    divided = divide_text(source, 200)
    (tmp_path / "a.txt").write_text("other words now " * 60)
    with pytest.raises(UserError, match=r"a.txt: it changed while it was being read"):
        "".join(read_stretch(divided, 1))


def test_what_cannot_be_divided_is_not_and_if_it_is_large_it_is_said(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n' * 99))
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "a"}\n' * 99)
    (tmp_path / "c.txt").write_bytes("text ".encode("utf-16") * 99)
    (tmp_path / "d.txt").write_bytes(b"text " * 99)
    packed, plain, text = find_sources([f"{tmp_path}/[abd]*"], "train")
    (wide,) = find_sources([f"{tmp_path}/c.txt"], "train", encoding="utf-16")
    assert divide(packed, 10) == [packed]
    assert divide_text(wide, 10) == [wide]
    assert len(divide(plain, 10)) > 10
    assert len(divide_text(text, 10)) > 10
    assert undivided([packed, plain, wide, text], cut=False) == []
    monkeypatch.setattr(stretches_module, "MOST_UNDIVIDED", 10)
    lines = undivided([packed, plain, wide, text], cut=True)
    assert [re.sub(r".*/", "", line).partition(":")[0] for line in lines] == ["a.jsonl.gz", "c.txt"]
    assert "compressed" in lines[0]
    assert "d.txt: 0.0 GB, one document, which this tokenizer needs whole" in undivided([text], cut=False)[0]

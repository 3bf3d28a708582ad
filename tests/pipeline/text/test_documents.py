import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from pipeline.runtime.errors import UserError
from pipeline.text.documents import Source, UnusableDocument, find_sources, read_documents

ARTICLES = [
    " = Horrible Bosses = \n\n A film . \n = = Plot = = \n\n Three friends . \n = not a title = \n\n\n",
    " = E = m = \n\n Text . \n",
]
INVALID = "invalid UTF-8 (see --encoding)"


def documents(pattern, split="train", **options):
    """Each document's text, or the (reason, offset) that it was rejected for."""
    found = []
    for source in find_sources([str(pattern)], split, **options):
        for pieces in read_documents(source):
            try:
                found.append("".join(pieces))
            except UnusableDocument as rejected:
                found.append((rejected.reason, rejected.offset))
    return found


def test_a_text_file_is_one_document_in_pieces(tmp_path):
    text = "né 中文 \U0001f600\n" * 200_000  # characters of 1 to 4 bytes at the edges of blocks
    (tmp_path / "a.txt").write_text(text)
    assert documents(tmp_path / "a.txt") == [text]
    pieces = next(iter(read_documents(Source(str(tmp_path / "a.txt"), "text", "train"))))
    assert max(map(len, pieces)) <= 1 << 20


def test_a_byte_order_mark_is_not_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfabc")
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "abc"}\n')
    assert documents(tmp_path / "a.txt") == documents(tmp_path / "a.jsonl") == ["abc"]
    (tmp_path / "wiki.txt").write_bytes(b"\xef\xbb\xbf" + "".join(ARTICLES).encode())
    assert documents(tmp_path / "wiki.txt") == ARTICLES


def test_a_field_that_is_null_is_an_empty_text(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": null}\n')
    (tmp_path / "set").mkdir()
    pq.write_table(pa.table({"text": [None, "x"]}), tmp_path / "set" / "train.parquet")
    assert documents(tmp_path / "a.jsonl") == [""]
    assert documents(f"hf:{tmp_path}/set") == ["", "x"]


@pytest.mark.parametrize("before", [0, 10, (1 << 20) - 2, 3_000_000])
def test_bad_bytes_of_a_text_file_are_found_where_they_are(tmp_path, before):
    start = ("é" * (before // 2)).encode()
    (tmp_path / "bad.txt").write_bytes(start + b"\xff" + b"tail")
    (tmp_path / "nul.txt").write_bytes(start + b"\0" + b"tail")
    (tmp_path / "cut.txt").write_bytes(start + "中".encode()[:2])
    assert documents(tmp_path / "bad.txt") == [(INVALID, len(start))]
    assert documents(tmp_path / "nul.txt") == [("NUL byte", len(start))]
    assert documents(tmp_path / "cut.txt") == [(INVALID, len(start))]


def test_json_lines_are_documents_and_bad_ones_are_named(tmp_path):
    lines = [
        b'{"text": "one", "id": 1}',
        b"",
        b"not json",
        b'{"body": "x"}',
        b'{"text": 5}',
        b'{"text": "bad \xff"}',
        b'{"text": "nul \\u0000"}',
        b'{"text": "half \\ud800"}',
        b'{"text": "raw \x00"}',
        b"[" * 100_000,
        b'{"text": "last"}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    starts = [sum(len(line) + 1 for line in lines[:k]) for k in range(len(lines))]
    found = documents(tmp_path / "a.jsonl")
    assert [found[0], found[-1]] == ["one", "last"]
    reasons = [document[0] for document in found[1:-1]]
    offsets = [document[1] for document in found[1:-1]]
    assert offsets == [starts[2], starts[3], starts[4], starts[5] + 14, starts[6], starts[7], starts[8] + 14, starts[9]]
    assert reasons[0] == reasons[7] == "not JSON"
    assert "no text in field 'text' (it has: body" in reasons[1]
    assert reasons[3] == INVALID
    assert reasons[4] == reasons[6] == "NUL byte"
    assert "surrogate" in reasons[5]


def test_another_field_can_hold_the_text(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "x"}\n')
    assert documents(tmp_path / "a.jsonl", text_field="body") == ["x"]


def test_rows_of_parquet_are_documents(tmp_path):
    values = [b"one", None, b"bad \xff", b"nul \0", "中".encode()]
    pq.write_table(pa.table({"text": pa.array(values, pa.binary()), "n": [1, 2, 3, 4, 5]}), tmp_path / "a.parquet")
    expected = ["one", "", ("invalid UTF-8", 2), ("NUL byte", 3), "中"]
    assert documents(tmp_path / "a.parquet") == expected
    with pytest.raises(UserError, match=r"a\.parquet: no column 'body', there are text, n: .*--text_field"):
        documents(tmp_path / "a.parquet", text_field="body")


def test_articles_of_wikitext_are_documents(tmp_path):
    (tmp_path / "wiki.txt").write_text("\n" + "".join(ARTICLES))
    assert documents(tmp_path / "wiki.txt") == ["\n" + ARTICLES[0], ARTICLES[1]]
    assert len(documents(tmp_path / "wiki.txt", format="text")) == 1


def test_a_bad_byte_rejects_its_article_alone(tmp_path):
    data = "".join(ARTICLES).encode()
    position = data.index(b"friends")
    (tmp_path / "wiki.txt").write_bytes(data[:position] + b"\xff" + data[position + 1 :])
    assert documents(tmp_path / "wiki.txt") == [(INVALID, position), ARTICLES[1]]


def test_wikitext_from_a_data_set_is_the_same_articles_as_from_the_file(tmp_path):
    (tmp_path / "wiki.txt").write_text("".join(ARTICLES))
    folder = tmp_path / "set"
    folder.mkdir()
    lines = "".join(ARTICLES).splitlines(keepends=True)
    pq.write_table(pa.table({"text": ["" if line == "\n" else line for line in lines]}), folder / "train.parquet")
    assert documents(f"hf:{folder}") == documents(tmp_path / "wiki.txt")


def test_rows_of_a_data_set_are_documents_and_its_files_are_streams(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"text": [f"{number} a", f"{number} b"]}), folder / f"train-{number}-of-3.parquet")
    pq.write_table(pa.table({"text": ["held out"]}), folder / "validation-0-of-1.parquet")
    assert documents(f"hf:{folder}") == ["0 a", "0 b", "1 a", "1 b", "2 a", "2 b"]
    assert len(find_sources([f"hf:{folder}"], "train")) == 3
    assert documents(f"hf:{folder}", split="valid") == ["held out"]
    with pytest.raises(UserError, match=r"--split other: .* has the splits train, validation"):
        documents(f"hf:{folder}", split="other")


def test_compressed_files_are_read_as_what_they_hold(tmp_path):
    data = json.dumps({"text": "packed"}).encode() + b"\n"
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data) + gzip.compress(data))
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(data))
    assert documents(tmp_path / "a.jsonl.gz") == ["packed", "packed"]
    assert documents(tmp_path / "a.jsonl.zst") == ["packed"]


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.zst", "a.parquet"])
def test_a_damaged_file_is_named(tmp_path, name):
    packed = {"gz": gzip.compress, "zst": zstandard.compress}.get(name.rsplit(".")[-1], bytes)(b"text\n" * 9999)
    (tmp_path / name).write_bytes(packed[: len(packed) // 2])
    with pytest.raises(UserError, match=rf"{name}: cannot be read"):
        documents(tmp_path / name)


def test_what_cannot_be_found_or_known_is_named(tmp_path):
    (tmp_path / "a.doc").write_text("x")
    with pytest.raises(UserError, match=r"--input .*none\*: no file matches"):
        documents(tmp_path / "none*")
    with pytest.raises(UserError, match=r"a\.doc: unknown kind of file.*--format"):
        documents(tmp_path / "a.doc")
    assert documents(tmp_path / "a.doc", format="text") == ["x"]
    with pytest.raises(UserError, match="builtin:nothing: the built-in corpora are"):
        documents("builtin:nothing")
    with pytest.raises(UserError, match="--split dev: builtin:sums has the splits train, valid, test"):
        documents("builtin:sums", split="dev")
    with pytest.raises(UserError, match="hf:/nowhere/at/all: the data set cannot be opened"):
        documents("hf:/nowhere/at/all")


def test_other_encodings_are_read_when_they_are_named(tmp_path):
    text = "Cæsar, naïve\n"
    (tmp_path / "a.txt").write_bytes(text.encode("latin-1"))
    (tmp_path / "b.txt").write_bytes(text.encode("utf-16"))
    (tmp_path / "a.jsonl").write_bytes(json.dumps({"text": text}, ensure_ascii=False).encode("cp1252"))
    assert documents(tmp_path / "a.txt") == [(INVALID, 1)]
    assert (
        documents(tmp_path / "a.txt", encoding="latin-1") == documents(tmp_path / "b.txt", encoding="utf-16") == [text]
    )
    assert documents(tmp_path / "a.jsonl", encoding="cp1252") == [text]
    with pytest.raises(UserError, match="--encoding klingon: Python knows no such encoding"):
        documents(tmp_path / "a.txt", encoding="klingon")

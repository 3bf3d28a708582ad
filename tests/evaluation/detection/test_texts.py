"""Texts of files: the same rules as for windows, and the ids by which a file knows them."""

import json
from pathlib import Path

import pytest

from evaluation.detection.texts import find_texts, read_texts, whole_texts
from pipeline.runtime.errors import UserError
from pipeline.text.documents import UnusableDocument, read_documents

LINES = [
    b'{"id": "first", "text": "one"}',
    b"",
    b'{"text": "an escaped \\u0000 byte"}',
    b'{"id": 7, "text": "a raw \0 byte"}',
    b'\xef\xbb\xbf{"id": "mark", "text": "a mark in the middle"}',
    b'{"id": "half", "text": "\\ud800"}',
    b"[1, 2]",
    b'{"id": "other", "body": "no text"}',
    b'{"id": null, "text": "no id"}',
    b'{"id": "nothing", "text": null}',
]


def source_of(path: Path):
    (source,) = find_texts("input", [str(path)], "text", "utf-8")
    return source


def outcome(pieces) -> tuple[str, int] | str:
    try:
        return "".join(pieces)
    except UnusableDocument as error:
        return error.reason, error.offset


def test_what_windows_are_not_made_of_is_not_scored_either(tmp_path):
    (tmp_path / "texts.jsonl").write_bytes(b"\n".join(LINES) + b"\n")
    source = source_of(tmp_path / "texts.jsonl")
    found = [outcome(text.pieces) for text in read_texts(source)]
    assert found == [outcome(document) for document in read_documents(source)]
    assert [text for text in found if isinstance(text, str)] == ["one", "no id", ""]
    assert [text[0] for text in found if not isinstance(text, str)][:2] == ["NUL byte"] * 2


def test_a_line_has_its_own_id_or_its_number(tmp_path):
    (tmp_path / "texts.jsonl").write_bytes(b"\n".join(LINES))
    ids = [text.id for text in read_texts(source_of(tmp_path / "texts.jsonl"))]
    assert ids == ["first", "3", "4", "mark", "half", "7", "other", "9", "nothing"]


def test_other_files_number_their_texts_or_are_one(tmp_path):
    (tmp_path / "one.txt").write_text("a whole\n\ntext")
    assert [text.id for text in read_texts(source_of(tmp_path / "one.txt"))] == ["one.txt"]
    assert list(whole_texts(source_of(tmp_path / "one.txt"))) == ["a whole text"]


def test_texts_that_cannot_be_read_are_empty_and_missing_files_are_named(tmp_path):
    rows = [{"text": " a \n b "}, {"text": 3}]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert list(whole_texts(source_of(tmp_path / "texts.jsonl"))) == ["a b", ""]
    with pytest.raises(UserError, match=r"--real .*nothing.*: no file matches"):
        find_texts("real", [str(tmp_path / "nothing.jsonl")], "text", "utf-8")

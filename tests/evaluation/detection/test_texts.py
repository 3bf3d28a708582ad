"""Texts as detectors read them: white space normalised, and nothing where there is nothing to read."""

import json

from evaluation.detection.texts import whole_texts
from pipeline.text.named_texts import find_texts


def test_white_space_is_normalised_and_texts_that_cannot_be_read_are_empty(tmp_path):
    rows = [{"text": " a \n b "}, {"text": 3}]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "texts.txt").write_text("a whole\n\ntext")
    sources = find_texts("input", [f"{tmp_path}/texts.*"], "text", "utf-8")
    assert [list(whole_texts(source)) for source in sources] == [["a b", ""], ["a whole text"]]

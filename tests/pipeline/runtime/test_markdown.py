"""Values of data in Markdown stay words, whatever is in them."""

import pytest
from markdown_it import MarkdownIt

from pipeline.runtime.markdown import inline, table

HOSTILE = [
    "a | b | c",
    "[click](https://example.com)",
    "![x](y)",
    "<script>alert(1)</script>",
    "`code` **bold** _it_ __it__ ~~no~~ $x$",
    "two\n\n# lines\n---\n",
    "\\| \\` \\\\",
    "&lt;b&gt; &#42;",
    "https://example.com www.example.com",
    "right \u202e left",
]


def test_plain_words_are_left_as_they_are():
    for text in ("rule temperature, top_k 10", "books.v2", "2026-01-02T03:04", "+3.1 % (2 to 4)", "naïve 中文"):
        assert inline(text) == text


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_a_value_is_markup(text):
    markdown = MarkdownIt("gfm-like", {"linkify": False})
    line, *_ = [token for token in markdown.parse(f"- said: {inline(text)}") if token.type == "inline"]
    assert [token.type for token in line.children or []] == ["text"]
    seen = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in " ".join(text.split()))
    assert line.content.endswith(inline(text))
    assert line.children is not None
    assert line.children[0].content == f"said: {seen}"


def test_a_table_keeps_its_shape():
    lines = table(("one", "two"), [[text, None] for text in HOSTILE])
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse("\n".join(lines))
    cells = [tokens[place + 1].content for place, token in enumerate(tokens) if token.type == "td_open"]
    assert len(cells) == 2 * len(HOSTILE)
    assert set(cells[1::2]) == {"unknown"}

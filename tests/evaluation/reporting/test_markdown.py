"""The report as Markdown: read back with a reader of Markdown, it says what was put into it."""

import re

from markdown_it import MarkdownIt

from evaluation import report
from evaluation.reporting.blocks import (
    Cell,
    Completion,
    Fold,
    Gap,
    Heading,
    PageSection,
    Paragraph,
    Picture,
    Sample,
    Table,
)
from evaluation.reporting.headline import Fact, Headline
from evaluation.reporting.markdown import markdown
from evaluation.reporting.warnings import Caution

READER = MarkdownIt("commonmark").enable("table")
HOSTILE = "a|b *c* _d_ <script>x</script> [e](f) `g` # h \\ \x07"


def written(*blocks, facts=(), warnings=()) -> str:
    headline = Headline(list(facts), [], "One sentence.")
    return markdown("A title", headline, list(warnings), [PageSection("id", "Section", list(blocks))], "1.0")


def test_tables_keep_their_cells_whatever_stands_in_them():
    rows = [[Cell(HOSTILE), Cell("two\nlines", small=("small",))], [Cell("x", code=True), Cell("1.5", 1.5)]]
    html = READER.render(written(Table("A caption", ("First", "Second"), rows, ["A note."])))
    cells = re.findall(r"<td[^>]*>(.*?)</td>", html)
    shown = "a|b *c* _d_ &lt;script&gt;x&lt;/script&gt; [e](f) `g` # h \\ ␇"
    assert cells == [shown, "two<br>lines<br><sub>small</sub>", "<code>x</code>", "1.5"]
    assert 'style="text-align:right"' in html  # the column of numbers
    assert "A note." in html


def test_every_kind_of_block_is_written_but_pictures():
    samples = [Sample(n, "context", [Completion("Real", "real", f"text {n}", Cell("0.5", 0.5))]) for n in (1, 2, 3, 4)]
    blocks = [Heading("Head"), Paragraph("Words."), Gap("No bounds.", ["python x.py"]), Picture("data:", "alt", "pic")]
    text = written(*blocks, Fold("More", [Table("Inner", ("A",), [[Cell("1")]])]), *samples)
    html = READER.render(text)
    assert "<h3>Head</h3>" in html
    assert "python x.py" in html
    assert "pic" not in html
    assert text.index("<details><summary>More</summary>") < text.index("| 1 |") < text.index("</details>")
    assert [f"text {n}" in html for n in (1, 2, 3, 4)] == [True, True, True, False]
    assert "(energy 0.5)" in html


def test_headline_and_warnings_come_first():
    facts = [Fact("Perplexity", "20.0", "16.5", "a note"), Fact("Accuracy", "", "90 %", "")]
    html = READER.render(written(Paragraph("Words."), facts=facts, warnings=[Caution("careful", "Bounds", "few.")]))
    assert html.index("One sentence.") < html.index("20.0 → 16.5") < html.index("90 %") < html.index("few.")
    assert html.index("few.") < html.index("Words.")


def test_the_command_writes_it_where_the_name_ends_with_md(results, tmp_path):
    report.main(["--input", str(results), "--output", str(tmp_path / "report.md"), "--title", "Mine"])
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# Mine\n\n")
    assert "**Test perplexity" in text

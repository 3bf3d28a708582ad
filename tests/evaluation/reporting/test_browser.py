"""The report in a real browser."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluation import report
from tests.helpers.pages import Page

pytestmark = pytest.mark.browser

SCRIPT = "<script>document.title = 'taken over'</script> & <b>bold</b>"


@contextmanager
def opened(browser: Any, path: Path, **options: Any) -> Iterator[Any]:
    """The page in a browser window of its own, in which nothing may go wrong."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(120_000)  # a busy machine is slow, not wrong
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:")) else wrong.append(request.url)
    )
    try:
        page.goto(path.as_uri())
        yield page
    finally:
        context.close()
    assert wrong == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_it_without_errors_at_any_width(browser, html, width, scheme):
    with opened(browser, html, viewport={"width": width, "height": 844}, color_scheme=scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        pictures = page.eval_on_selector_all(
            "main img",
            "all => all.map((one) => [one.naturalWidth, one.naturalHeight, one.clientWidth, one.clientHeight])",
        )
        assert len(pictures) == 3
        assert all(size > 100 for sizes in pictures for size in sizes)
        rows = page.eval_on_selector_all(
            "table", "all => all.map((one) => [one.caption.innerText, one.tBodies[0].rows.length])"
        )
        parsed = Page(html.read_text())
        assert dict(rows) == {caption: len(lines) - 1 for caption, lines in parsed.tables.items()}
        assert all(count > 0 for _, count in rows)
        # What is wider than its box can be reached with the keyboard, and has a name.
        boxes = page.eval_on_selector_all(
            "*",
            """all => all.filter((one) => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0
                                 && ["auto", "scroll"].includes(getComputedStyle(one).overflowX))
                         .map((one) => one.tabIndex === 0 && (one.ariaLabel || one.getAttribute("aria-labelledby")))""",
        )
        assert all(boxes)
        assert width > 390 or boxes
        dark = page.evaluate(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((part) => part < 128)"
        )
        assert dark == (scheme == "dark")


def test_text_stays_text_in_a_browser(browser, results, tmp_path):
    folder = tmp_path / SCRIPT.replace("/", "")
    shutil.copytree(results / "results/samples", folder)
    rows = pq.read_table(folder / "samples.parquet").to_pylist()
    for row in rows:
        row |= {"context_text": SCRIPT, "chosen_text": f"{SCRIPT}\x00\u202e"}
    pq.write_table(pa.Table.from_pylist(rows), folder / "samples.parquet")
    output = tmp_path / "report.html"
    report.main(["--input", str(tmp_path), "--output", str(output), "--title", SCRIPT])
    with opened(browser, output) as page:
        assert page.title() == SCRIPT
        assert page.inner_text("h1") == SCRIPT
        assert page.locator(".sample .context").first.inner_text() == SCRIPT
        assert page.locator(".sample .joint p").first.inner_text() == f"{SCRIPT}␀\u202e"
        assert page.locator("b").count() == 0


def test_tables_can_be_copied_and_nothing_needs_a_script(browser, html):
    with opened(browser, html, permissions=["clipboard-read", "clipboard-write"]) as page:
        figure = page.locator("figure.table", has_text="Test perplexity").first
        figure.get_by_role("button").click()
        figure.get_by_text("Copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()").splitlines()
        parsed = Page(html.read_text()).table("Test perplexity")
        assert len(copied) == len(parsed)
        assert copied[0].split("\t") == parsed[0]
    with opened(browser, html, java_script_enabled=False) as page:
        assert page.locator("table").count() == len(Page(html.read_text()).tables)
        assert page.get_by_role("button").count() == 0


def test_it_can_be_printed_with_everything_unfolded(browser, html):
    with opened(browser, html) as page:
        assert page.locator("details").count() > 0
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details:not([open])").count() == 0
        page.emulate_media(media="print")
        assert not page.locator("nav").is_visible()
        assert page.pdf().startswith(b"%PDF")

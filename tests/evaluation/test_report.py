"""The report: its numbers are those of the files, nothing is left out silently, and a real browser shows it well."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from evaluation import accuracy_grid, perplexity_bounds, report, sample_joint
from evaluation.analyses import densities
from evaluation.results.paper import PERPLEXITY
from pipeline import make_windows
from pipeline.runtime.errors import UserError
from pipeline.runtime.provenance import machine
from pipeline.stores.reader import Store
from tests.conftest import run
from tests.evaluation.world import SAMPLES, World
from training.train_energy import describe_store

SCRIPT = "<script>document.title = 'taken over'</script> & <b>bold</b>"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


class Page(HTMLParser):
    """A page's text, ids, links and tables: of each its caption's rows, as texts and as the numbers behind them."""

    def __init__(self, html: str):
        super().__init__()
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.values: list[float] = []
        self.words: list[str] = []
        self._rows: list[list[str]] = []
        self._in: list[str] = []
        self._caption = ""
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        self.attributes += [(tag, name, value) for name, value in known.items()]
        self.ids += [known["id"]] if "id" in known else []
        if tag not in ("meta", "link", "img"):
            self._in.append(tag)
        if tag == "table":
            self._rows, self._caption = [], ""
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
        elif tag == "data":
            self.values.append(float(known["value"]))

    def handle_endtag(self, tag: str) -> None:
        assert self._in.pop() == tag, f"</{tag}> does not close what was opened"
        if tag == "table":
            assert self._caption not in self.tables, f"two tables are called {self._caption}"
            self.tables[self._caption] = self._rows

    def handle_data(self, data: str) -> None:
        if "style" in self._in or "script" in self._in:
            return
        self.words.append(data)
        if "caption" in self._in:
            self._caption += data
        elif {"td", "th"} & set(self._in):
            self._rows[-1][-1] = " ".join([*self._rows[-1][-1].split(" "), *data.split("\n")]).strip()

    def table(self, words: str) -> list[list[str]]:
        """The rows of the table whose caption has these words, its head first."""
        (found,) = [rows for caption, rows in self.tables.items() if words in caption]
        return found


@pytest.fixture(scope="module")
def results(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the real jobs leave: bounds with everything in them, a grid with a cell left out, samples, an analysis."""
    folder = tmp_path_factory.mktemp("report")
    models = {"energy": {"preset": "bit-nano", "objective": "balanced", "accuracy": 0.875, "parameters": 12_345}}
    models["lm0"] = {"preset": "transf-nano", "corpus": "letters", "perplexity": 4.25, "seed": 7, "step": 100}
    models["energy"]["stores"] = [describe_store(Store(world.samples))]
    for name, provenance in models.items():
        shutil.copytree(world.folder / name, folder / "models" / name)
        config = folder / "models" / name / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"provenance": provenance}))
    energy, lm = (str(folder / "models" / name) for name in ("energy", "lm0"))

    documents = [json.dumps({"text": "abcd" * 9})] * 3 + ["{broken"]
    (folder / "texts.jsonl").write_text("\n".join(documents))
    make_windows.main(
        f"--input {folder}/texts.jsonl --corpus letters --split train --tokenizer {world.folder}/tokenizer --window 5 "
        f"--stride 5 --max_reject_fraction 0.5 --output {folder}/stores/train".split()
    )
    shutil.copytree(world.folder / "windows", folder / "stores/test")

    every = world.mine("every", f"--context_lengths 2,3,4 --every_context_length --negatives {SAMPLES}")
    common = f"--negatives {world.samples} --energies {world.energies} --output {folder}/results/bounds"
    perplexity_bounds.main(f"{common} --samples_curve --matches --language_model {world.folder}/lm1".split())
    exact = f"--positions --exact_windows 5 --energy {energy} --generator {lm}"
    scored = world.score("energy", every)
    perplexity_bounds.main(
        f"--negatives {every} --energies {scored} --output {folder}/results/by-position {exact}".split()
    )
    grid = {
        "title": "Letters",
        "paper": "in_domain",
        "row_means": True,
        "rows": [
            {"name": "BiT", "energy": energy, "paper": "UniT"},
            {"name": "Lost", "energy": str(folder / "nowhere")},
        ],
        "columns": [{"name": "letters", "stores": [world.samples], "paper": "Books"}],
    }
    (folder / "grid.yaml").write_text(yaml.safe_dump(grid))
    arguments = f"--grid {folder}/grid.yaml --output {folder}/results/grid --energies {folder}/stores/energies"
    assert accuracy_grid.main(arguments.split()) == 1
    sample_joint.main(
        f"--energy {energy} --generator {lm} --windows {world.folder}/windows --context_length 2 --limit 15 "
        f"--samples 20 --top_k 3 --output {folder}/results/samples".split()
    )
    both = f"--negatives {world.samples} --energies {world.energies}"
    densities.main(f"{both} --output {folder}/results/densities".split())
    return folder


@pytest.fixture(scope="module")
def html(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("page") / "report.html"
    assert report.main(["--input", str(results), "--output", str(output)]) == 0
    return output


def read(path: Path, name: str) -> Any:
    return json.loads((path / name).read_text())


def test_the_numbers_on_the_page_are_those_of_the_files(results, html):
    page = Page(html.read_text())
    bounds, positions = (read(results / "results" / name, "bounds.json") for name in ("bounds", "by-position"))
    wanted = [bounds["base_perplexity"], *bounds["language_models"].values(), *bounds["effective_samples"].values()]
    wanted += [bounds["joint_perplexity"][name] for name in ("lower", "upper")]
    wanted += [point[name] for point in bounds["samples_curve"] for name in ("samples", "lower", "upper")]
    wanted += [bounds["matches"]["base"], *(point["oracle"] for point in bounds["matches"]["joint"])]
    wanted += [value for point in positions["positions"] for value in point.values()]
    wanted += positions["last_position"].values()
    cell = read(results / "results/grid", "grid.json")["cells"][0]
    wanted += [cell["accuracy"], *(part["accuracy"] for part in cell["by_context"].values())]
    wanted += [value for row in read(results / "results/densities", "analysis.json")["rows"] for value in row.values()]
    samples = pq.read_table(results / "results/samples/samples.parquet").to_pylist()
    names = ("real_energy", "chosen_energy", "base_energy", "worst_energy")
    wanted += [row[name] for row in samples[:12] for name in names]
    there = set(page.values)
    assert [value for value in wanted if isinstance(value, int | float) and float(value) not in there] == []
    made_with = {row[0]: row[1] for row in page.table("Code, libraries and times")[1:]}
    assert (made_with["torch"], made_with["Machine"]) == (metadata.version("torch"), machine())
    # And as they are read, rounded.
    base, other, joint, *_ = page.table("Test perplexity")[1:]
    assert base[3] == f"{bounds['base_perplexity']:.3f} exact"
    assert other[3] == f"{next(iter(bounds['language_models'].values())):.3f} exact"
    assert joint[3] == f"{bounds['joint_perplexity']['lower']:.3f}"
    assert joint[4] == f"{bounds['joint_perplexity']['upper']:.3f} asymptotic"
    (_, first, lost) = page.table("Letters (results/grid)")
    assert first[1].startswith(f"{cell['accuracy'] * 100:.1f}\u00a0%")
    assert "in-domain" in first[1]
    assert "paper 91.7\u00a0%" in first[1]
    assert lost[1].startswith("– left out")
    assert len(page.table("The paper, full size")) == 1 + len(PERPLEXITY)
    assert len(re.findall("<article", html.read_text())) == 12
    assert all(f" {row['chosen_text']} " in f" {page.text} " for row in samples[:12] if row["chosen_text"].strip())
    models = page.table("Energy models")[1]
    assert {"bit-nano", "balanced", "12,345", "87.50\u00a0%"} <= set(models)
    assert page.table("Language models")[1][5] == "4.2500"
    windows = {row[0]: row for row in page.table("Corpora")[1:]}
    assert windows["stores/train"][6] == "1"


def test_warnings_stand_near_the_top(results, html):
    text = Page(html.read_text()).text
    box = text[text.index("Contents") : text.index("What was run on what", text.index("Warnings (") + 200)]
    assert "BiT on letters the test negatives are the training generator's own" in box
    assert "Lost on letters" in box
    assert "1 of 4 documents rejected" in box
    for name in ("bounds", "by-position"):
        assert all(
            " ".join(line.split()) in text for line in read(results / "results" / name, "bounds.json")["warnings"]
        )


def test_the_page_is_whole_sound_and_the_same_every_time(results, html, tmp_path):
    content = html.read_text()
    page = Page(content)  # tags close in order, captions differ
    assert len(page.ids) == len(set(page.ids))
    links = [value for tag, name, value in page.attributes if tag == "a" and name == "href"]
    assert links
    assert all(link.startswith("#") and link[1:] in page.ids for link in links)
    sources = [value for _, name, value in page.attributes if name in ("src", "srcset", "data") or "url" in name]
    sources += [value for tag, name, value in page.attributes if tag == "link" and name == "href"]
    assert all(source.startswith("data:") for source in sources)
    assert "@import" not in content
    alts = [value for tag, name, value in page.attributes if tag == "img" and name == "alt"]
    assert len(alts) == 3
    assert all(re.search(r"\d", alt) for alt in alts)
    report.main(["--input", str(results), "--output", str(tmp_path / "again.html")])
    assert (tmp_path / "again.html").read_bytes() == html.read_bytes()


def test_what_is_missing_is_named_with_the_command_that_makes_it(results, tmp_path):
    output = tmp_path / "report.html"
    assert report.main(["--input", str(results / "stores/test"), "--output", str(output)]) == 0
    text = Page(output.read_text()).text
    for words, command in (
        ("No language models", "deepspeed training/train_lm.py"),
        ("No energy models", "deepspeed training/train_energy.py"),
        ("No stores of negatives", "python pipeline/mine_negatives.py"),
        ("No stores of energies", "python evaluation/score.py"),
        ("No perplexities", "python evaluation/perplexity_bounds.py --negatives"),
        ("No bounds against the number of samples", "--samples_curve"),
        ("No perplexity by position", "--positions"),
        ("No shares of correct completions", "--matches"),
        ("No accuracy grids", "python evaluation/accuracy_grid.py --grid"),
        ("No detection of whole texts", "python evaluation/detect.py"),
        ("No samples of the joint model", "python evaluation/sample_joint.py"),
        ("No comparison by human readers", ""),
        ("No analyses of these kinds: densities", "python evaluation/analyses/densities.py"),
    ):
        assert words in text
        assert command in text[text.index(words) :]


def test_what_cannot_be_read_is_named_and_the_rest_is_shown(results, tmp_path):
    folder = tmp_path / "all"
    shutil.copytree(results / "results", folder)
    shutil.copytree(results / "stores/test", folder / "store")
    (folder / "by-position/bounds.json").write_text('{"base_perplexity": 4.')
    (folder / "densities/analysis.json").write_text('{"analysis": "densities", "title": "D", "rows": 3}')
    samples = folder / "samples/samples.parquet"
    samples.write_bytes(samples.read_bytes()[:100])
    manifest = folder / "store/manifest.json"
    manifest.write_text(manifest.read_text().replace('"letters"', '"sretтel"'))
    done = run("evaluation/report.py", "--input", folder, "--output", tmp_path / "report.html")
    assert done.returncode == 1, done.stderr
    page = Page((tmp_path / "report.html").read_text())
    for words in (
        "by-position/bounds.json: broken JSON",
        "densities/analysis.json: not what its job writes (['rows'] 3 is not of type 'array')",
        "samples/samples.parquet: cannot be read",
        "store/manifest.json: its checksum is wrong: run pipeline/verify_store.py",
    ):
        assert words in page.text
        assert words in done.stdout
    assert page.table("Test perplexity")


def test_an_analysis_with_a_broken_figure_keeps_its_numbers(results, tmp_path):
    shutil.copytree(results / "results/densities", tmp_path / "densities")
    figure = tmp_path / "densities/figure.svg"
    figure.write_bytes(figure.read_bytes()[:1000])
    assert report.main(["--input", str(tmp_path), "--output", str(tmp_path / "report.html")]) == 1
    page = Page((tmp_path / "report.html").read_text())
    assert "densities/figure.svg: a broken figure" in page.text
    assert "has no figure.svg that can be read" in page.text
    assert len(page.table("Log-probability of real completions")) == 3


def test_bad_input_is_named(results, tmp_path):
    (tmp_path / "empty").mkdir()
    output = str(tmp_path / "report.html")
    for given, message in (
        (["--input", str(tmp_path / "nowhere"), "--output", output], "there is no such folder"),
        (["--input", str(tmp_path / "empty"), "--output", output], "there are no results in it"),
        (["--input", str(results), "--output", str(tmp_path / "report.pdf")], "a file whose name ends with .html"),
        (["--input", str(results)], "--output"),
    ):
        with pytest.raises(UserError, match=message):
            report.main(given)
    assert not Path(output).exists()


def test_tables_of_human_studies_and_of_detection_are_shown(tmp_path):
    study = {
        "title": "Readers",
        "columns": ["Pair", "Share"],
        "rows": [["joint, base", 0.625], {"Pair": "real, joint"}],
    }
    (tmp_path / "human.json").write_text(json.dumps(study | {"notes": ["3 failed the checks"]}))
    found = {"detector": "energy", "generated": "a/small.jsonl", "balanced_accuracy": 0.93, "interval": [0.9, 0.95]}
    texts = {"file": "a/web.jsonl", "label": "real", "texts": 10, "called_real": 9, "left_out": 1}
    summary = {"energy": {"preset": "bit"}, "files": [texts], "accuracy": [found | {"auroc": 0.98}]}
    (tmp_path / "wild.json").write_text(json.dumps(summary))
    (tmp_path / "wild.parquet").write_bytes(b"")
    report.main(["--input", str(tmp_path), "--output", str(tmp_path / "report.html")])
    page = Page((tmp_path / "report.html").read_text())
    assert page.table("Readers")[1:] == [["joint, base", "0.625"], ["real, joint", "–"]]
    assert "3 failed the checks" in page.text
    assert page.table("Detection with bit")[1][2] == "93.00\u00a0% 90.0 to 95.0\u00a0%"
    assert "1 text without a score" in page.text


def test_examples_of_an_analysis_have_a_line_for_each_entry(tmp_path):
    replaced = [{"position": 13, "old": "\n", "new": "7"}] * 7
    examples = [{"window_id": "0123456789abcdef", "after": "8<3", "score": -1.5, "replaced": replaced}]
    content = {"analysis": "gradient_replacement", "title": "Replaced", "rows": [{"text": "real", "windows": 1}]}
    (tmp_path / "analysis.json").write_text(json.dumps(content | {"examples": examples}))
    report.main(["--input", str(tmp_path), "--output", str(tmp_path / "report.html")])
    head, row = Page((tmp_path / "report.html").read_text()).table("Examples: Replaced")
    assert head == ["Window id", "After", "Score", "Replaced: position · old · new"]
    assert row == ["0123456789ab", "8<3", "−1.5", " ".join(["13 · ↵ · 7"] * 5) + " and 2 more"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium: the machine's, or playwright's own."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e '.[dev]'")
    with api.sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, BROWSERS)), playwright.chromium.executable_path)
        if not os.path.exists(found):
            pytest.skip("no browser on this machine: apt-get install chromium, or playwright install chromium")
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


def opened(browser: Any, path: Path, **options: Any) -> tuple[Any, list[str]]:
    """The page in a browser window of its own, and the list to which everything that goes wrong is added."""
    page = browser.new_context(**options).new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:")) else wrong.append(request.url)
    )
    page.goto(path.as_uri())
    return page, wrong


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_it_without_errors_at_any_width(browser, html, width, scheme):
    page, wrong = opened(browser, html, viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    pictures = page.eval_on_selector_all(
        "main img", "all => all.map((one) => [one.naturalWidth, one.naturalHeight, one.clientWidth, one.clientHeight])"
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
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((part) => part < 128)")
    assert dark == (scheme == "dark")
    assert wrong == []
    page.context.close()


def test_text_stays_text_in_a_browser(browser, results, tmp_path):
    folder = tmp_path / SCRIPT.replace("/", "")
    shutil.copytree(results / "results/samples", folder)
    rows = pq.read_table(folder / "samples.parquet").to_pylist()
    for row in rows:
        row |= {"context_text": SCRIPT, "chosen_text": f"{SCRIPT}\x00\u202e"}
    pq.write_table(pa.Table.from_pylist(rows), folder / "samples.parquet")
    output = tmp_path / "report.html"
    report.main(["--input", str(tmp_path), "--output", str(output), "--title", SCRIPT])
    page, wrong = opened(browser, output)
    assert page.title() == SCRIPT
    assert page.inner_text("h1") == SCRIPT
    assert page.locator(".sample .context").first.inner_text() == SCRIPT
    assert page.locator(".sample .joint p").first.inner_text() == f"{SCRIPT}␀\u202e"
    assert page.locator("b").count() == 0
    assert wrong == []
    page.context.close()


def test_tables_can_be_copied_and_nothing_needs_a_script(browser, html):
    page, wrong = opened(browser, html, permissions=["clipboard-read", "clipboard-write"])
    figure = page.locator("figure.table", has_text="Test perplexity").first
    figure.get_by_role("button").click()
    figure.get_by_text("Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()").splitlines()
    parsed = Page(html.read_text()).table("Test perplexity")
    assert len(copied) == len(parsed)
    assert copied[0].split("\t") == parsed[0]
    assert wrong == []
    page.context.close()
    page, wrong = opened(browser, html, java_script_enabled=False)
    assert page.locator("table").count() == len(Page(html.read_text()).tables)
    assert page.get_by_role("button").count() == 0
    assert wrong == []
    page.context.close()


def test_it_can_be_printed_with_everything_unfolded(browser, html):
    page, _ = opened(browser, html)
    assert page.locator("details").count() > 0
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.pdf().startswith(b"%PDF")
    page.context.close()

"""The report: its numbers are those of the files, and nothing is left out silently."""

import json
import re
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from evaluation import report
from evaluation.results.paper import PERPLEXITY
from pipeline.runtime.errors import UserError
from pipeline.runtime.provenance import machine
from tests.helpers.commands import run
from tests.helpers.imports import watched
from tests.helpers.pages import Page


def read(path: Path, name: str) -> Any:
    return json.loads((path / name).read_text())


@pytest.mark.slow
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
    box = text[text.index("Contents") : text.index("Perplexity", text.index("Warnings (") + 400)]
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
    for name in ("once", "again"):  # html is of the code as it was then
        report.main(["--input", str(results), "--output", str(tmp_path / f"{name}.html")])
    assert (tmp_path / "once.html").read_bytes() == (tmp_path / "again.html").read_bytes()


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


@pytest.mark.slow
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
        "store/manifest.json: it has changed since it was written: run pipeline/verify_store.py",
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


def test_files_of_human_studies_and_of_detection_are_found(tmp_path):
    study = {"title": "Readers", "columns": ["Pair", "Share"], "rows": [["joint, base", 0.625]]}
    (tmp_path / "human.json").write_text(json.dumps(study | {"notes": ["3 failed the checks"]}))
    texts = {"file": "a/web.jsonl", "label": "real", "texts": 10, "called_real": 9, "left_out": 1}
    (tmp_path / "wild.json").write_text(json.dumps({"energy": {"preset": "bit"}, "files": [texts], "accuracy": []}))
    (tmp_path / "wild.parquet").write_bytes(b"")
    report.main(["--input", str(tmp_path), "--output", str(tmp_path / "report.html")])
    page = Page((tmp_path / "report.html").read_text())
    assert page.table("Readers")[1:] == [["joint, base", "0.625"]]
    assert "3 failed the checks" in page.text
    assert page.table("Texts called real by bit")[1][3] == "9"
    assert "1 text without a score" in page.text


def test_a_page_is_made_without_a_network(results, tmp_path):
    ended, loaded = watched("evaluation/report.py", "--input", str(results), "--output", str(tmp_path / "page.html"))
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "page.html").exists()
    assert not loaded & {"torch", "transformers", "sklearn", "apache_beam", "datasets", "arviz_stats"}

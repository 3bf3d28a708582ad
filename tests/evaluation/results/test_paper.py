"""The paper's numbers, against its source where that is at hand."""

import re

import pytest

from evaluation.results import paper
from tests.helpers.commands import ROOT

SOURCE = ROOT.parent / "shared/paper/residual-ebm-text.tex"


@pytest.fixture(scope="module")
def tex() -> str:
    if not SOURCE.exists():
        pytest.skip("the paper's source is not beside this folder")
    return SOURCE.read_text()


def table(tex: str, label: str) -> list[list[str]]:
    r"""The rows of a table, as lists of cells: what stands between \midrule and \bottomrule, without its markup."""
    (found,) = [part for part in re.findall(r"\\begin\{table.*?\\end\{table", tex, re.S) if f"label{{{label}}}" in part]
    body = found[found.index(r"\midrule") : found.index(r"\bottomrule")]
    rows = []
    for line in re.sub(r"\\(midrule|hline)", "", body).split(r"\\"):
        if "&" in line:
            rows.append([plain(cell) for cell in line.split("&")])
    return rows


def plain(cell: str) -> str:
    cell = re.sub(r"\\multirow\{\d+\}\{\*\}", "", cell).replace(r"\le", "≤").replace(r"\%", "").replace(r"\ ", "")
    return re.sub(r"\\(textsc|mathbf|textbf|em|tiny)|[${}]", "", cell).strip()


def numbers(cell: str) -> tuple[float, float] | None:
    found = [float(one) for one in re.findall(r"\d+\.\d+", cell)]
    return (found[0], found[-1]) if found else None


def test_accuracies_are_those_of_the_tables(tex):
    columns = {"in_domain": ("Books", "CCNews", "Wiki"), "cross_corpus": ("Books", "CCNews", "Wiki")}
    columns["cross_architecture"] = ("Conv", "TransfSmall")
    labels = {name: f"tab:{name}" for name in columns} | {"cross_corpus": "tab:cross-corpus"}
    for name, of in columns.items():
        read = {
            row[0]: {column: float(cell) for column, cell in zip(of, row[1:], strict=False) if numbers(cell)}
            for row in table(tex, labels[name])
        }
        assert paper.ACCURACY[name] == read
    means = {row[0]: float(row[3]) for row in table(tex, "tab:cross_architecture")}
    assert means == paper.CROSS_ARCHITECTURE_MEANS


def test_accuracies_in_the_wild_are_those_of_the_table(tex):
    rows, openai = {}, {"in-domain": {}, "cross-architecture": {}}
    for name, *cells in table(tex, "tab:unconditinal"):
        column = " ".join(re.sub(r"\(\d+\)", "", name).split())
        for row, cell in zip(paper.ACCURACY["wild"], cells, strict=True):
            if found := re.findall(r"\d+\.\d+", cell):
                rows.setdefault(row, {})[column] = float(found[0])
                if len(found) > 1:
                    openai[row.removeprefix("BiT ")][column] = float(found[1])
    assert rows == paper.ACCURACY["wild"]
    assert openai == paper.OPENAI


def test_perplexities_are_those_of_the_main_table(tex):
    rows = [row for row in table(tex, "tab:main") if len(row) == 5]
    assert len(rows) == len(paper.PERPLEXITY)
    for row, (name, test), (same, valid) in zip(
        rows, paper.PERPLEXITY.items(), paper.VALID_PERPLEXITY.items(), strict=True
    ):
        assert name == same
        model, _, size = row[0].rpartition(" (")
        model = re.sub(r"^.*\s{2,}", "", model).strip()
        known = "24L" in model or "24L" in size
        assert model.lower().replace("-24l", "") == re.sub(r"-24L| \(24L\)", "", name).lower()
        assert known == ("24L" in name)
        for corpus, places in (("CCNews", (1, 2)), ("Books", (3, 4))):
            assert valid.get(corpus) == numbers(row[places[0]]), (name, corpus)
            assert test.get(corpus) == numbers(row[places[1]]), (name, corpus)


def test_human_rates_are_those_of_the_table(tex):
    rows = table(tex, "tab:human")
    assert len(rows) == len(paper.HUMAN)
    relation = "<"
    for row, known in zip(rows, paper.HUMAN, strict=True):
        relation = "≤" if "≤" in row[1] else relation
        assert (known.model_1.lower(), known.model_2.lower()) == (row[0].lower(), row[2].lower())
        assert (known.relation, known.rate, known.p_value) == (relation, float(row[3]), float(row[4]))


def test_numbers_of_the_text_are_there(tex):
    text = " ".join(tex.split())
    for sentence in (
        "the test perplexity of Conv and TransfSmall are {Conv} and {TransfSmall}, respectively".format(
            **paper.GENERATOR_PERPLEXITY
        ),
        "(Base LM) has a false positive rate of {Base LM}\\% while the joint language model $P_{{\\theta}}$ "
        "(Joint BiT-med) has a much higher false positive rate of {Joint BiT-Med}\\%".format(**paper.FALSE_POSITIVES),
        "accuracy values are {Base LM}\\% and {Joint BiT-Med}\\%".format(**paper.THIRD_DETECTOR),
        "case is {:.2f} whereas the difference is {:.2f} in the joint approach".format(*paper.DENSITIES.values()),
    ):
        assert sentence in text
    for name, ((before, first), (after, second)) in paper.REPLACED.items():
        assert f"Original {name} (score {before:.2f}, PPL {first:.2f})" in text
        assert f"Perturbed {name} (score {after:.2f}, PPL {second:.2f})" in text

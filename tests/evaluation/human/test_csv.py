"""Pages and votes as CSV, there and back."""

import csv
import random
from pathlib import Path

import pytest

from evaluation.human import export, import_votes
from evaluation.human.study.votes import votes_of
from pipeline.runtime.errors import UserError
from tests.evaluation.human.conftest import Prepared
from tests.evaluation.human.test_analyse import simulate


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def turk_results(study: Prepared, pages: Path, workers: int) -> list[dict[str, str]]:
    """Mechanical Turk's batch file: every page by so many workers, who see what is real and prefer model 2."""
    sources = {str(row["id"]): row["left_source"] for row in study.study.reader.execute("SELECT * FROM comparison")}
    return [
        {"HITId": f"h{page['page']}", "WorkerId": f"A{worker}WORKER", "AssignmentStatus": "Approved"}
        | {f"Input.{name}": value for name, value in page.items()}
        | {
            f"Answer.choice_{place}": "left" if sources[page[f"comparison_{place}"]] in ("gold", "model2") else "right"
            for place in range(1, 5)
        }
        for page in rows_of(pages)
        for worker in range(workers)
    ]


def test_pages_go_out_harmless_and_results_come_back_once(prepared, tmp_path):
    study = prepared()
    export.main(["--study", str(study.path), "--items", str(tmp_path / "pages.csv")])
    pages = rows_of(tmp_path / "pages.csv")
    assert len(pages) == 4
    assert not any("<script" in cell or "<img" in cell for page in pages for cell in page.values())
    assert any("&lt;script&gt;" in cell for page in pages for cell in page.values())
    results = turk_results(study, tmp_path / "pages.csv", workers=3)
    for _ in range(2):  # the second time nothing is new
        import_votes.main(["--study", str(study.path), "--votes", str(write(tmp_path / "batch.csv", results))])
        votes = votes_of(study.study)
        assert len(votes) == 36
        assert {vote.preferred for vote in votes} == {"model2"}
        assert all(vote.check_passed for vote in votes)
    assert study.one("SELECT sum(free) FROM comparison") == 0
    assert not any(b"A0WORKER" in path.read_bytes() for path in tmp_path.glob("study.db*"))
    fourth = [row | {"WorkerId": "ANOTHER"} for row in results[:1]]
    import_votes.main(["--study", str(study.path), "--votes", str(write(tmp_path / "more.csv", fourth))])
    assert len(votes_of(study.study)) == 36


def test_votes_go_out_and_come_back_the_same(prepared, tmp_path):
    study, copy = (prepared("--qualification_items 0", name=f"{name}.db") for name in ("study", "copy"))
    for number in range(3):
        simulate(study, number, random.Random(number), careless=0.5, prefers_2=0.7)
    export.main(["--study", str(study.path), "--votes", str(tmp_path / "votes.csv")])
    import_votes.main(["--study", str(copy.path), "--votes", str(tmp_path / "votes.csv")])
    ours, theirs = (
        sorted((vote.comparison, vote.choice, vote.preferred, vote.check_passed) for vote in votes_of(one.study))
        for one in (study, copy)
    )
    assert ours == theirs
    assert {passed for *_, passed in ours} == {True, False}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"Input.comparison_1": "99999"}, "line 3: comparison '99999' is not of"),
        ({"Answer.choice_2": "A"}, "line 3: choice 'A': left or right"),
        ({"WorkerId": ""}, "line 3: no rater"),
        ({"Input.comparison_1": "", "Input.comparison_2": "", "Input.comparison_3": ""}, "has not one check|line 3"),
    ],
)
def test_a_bad_row_is_named_and_nothing_of_its_file_is_added(prepared, tmp_path, change, words):
    study = prepared()
    export.main(["--study", str(study.path), "--items", str(tmp_path / "pages.csv"), "--plain"])
    results = turk_results(study, tmp_path / "pages.csv", workers=2)
    if "Input.comparison_2" in change:  # leave the page without its check
        kinds = dict(study.study.reader.execute("SELECT id, kind FROM comparison").fetchall())
        place = next(p for p in range(1, 5) if kinds[int(results[1][f"Input.comparison_{p}"])] == "check")
        change = {f"Input.comparison_{place}": ""}
    results[1] |= change
    with pytest.raises(UserError, match=words):
        import_votes.main(["--study", str(study.path), "--votes", str(write(tmp_path / "batch.csv", results))])
    assert votes_of(study.study) == []
    assert study.one("SELECT count(*) FROM page") == 0


@pytest.mark.parametrize("flags", [[], ["--plain"]])
def test_no_cell_is_a_formula_to_a_spreadsheet(prepared, tmp_path, flags):
    study = prepared()
    with study.study.writing() as connection:
        for column, start in (("context", "=HYPERLINK(1)"), ("left_text", "@SUM(1)"), ("right_text", "-2+3")):
            connection.execute(f"UPDATE comparison SET {column} = ? || {column}", (start,))
    pages = tmp_path / "pages.csv"
    export.main(["--study", str(study.path), "--items", str(pages), *flags])
    cells = [cell for row in rows_of(pages) for cell in row.values() if cell]
    assert sum("HYPERLINK" in cell for cell in cells) == 16
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]

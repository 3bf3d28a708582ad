"""What the raters of one or more studies preferred: the paper's table, with everything that it rests on.

  python evaluation/human/analyse.py --study study.db --output results/human

The votes of a page whose attention check failed are dropped and not replaced, so ties occur. The rate is the share of
items, of those with a surviving vote, in which fewer raters prefer model 1 than model 2 (<), or not more (≤); its
p-value is that of a single-sided binomial test against 1/2. Written are human.json, which the report shows,
items.parquet and votes.parquet. Several --study make a table of several rows.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from evaluation.human.study.file import StudyFile
from evaluation.human.study.outcome import agreement, rate, tallies
from evaluation.human.study.votes import Vote, votes_of
from evaluation.results.json_file import write_json
from evaluation.results.parquet_file import write_parquet
from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.settings import Settings, read_settings, setting
from schemas.results import HUMAN, HUMAN_FILE

COLUMNS = ["Model 1", "Relation", "Model 2", "Rate", "95% interval", "p-value", "Items", "Votes", "Dropped", "Alpha"]

SCRIPTED = "The raters were scripted: a program's votes, which say nothing of what people prefer."


@dataclass(frozen=True, kw_only=True)
class AnalyseSettings(Settings):
    """Studies, a row of the table each, and where the table goes."""

    study: tuple[str, ...] = setting(help="a study; several times", metavar="FILE")
    output: str = setting(help="where human.json goes", metavar="DIR")
    scripted: bool = setting(False, help="the votes are a program's, to try things out: the table says so")


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(AnalyseSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    describe(analyse(settings), settings.output)
    return 0


def analyse(settings: AnalyseSettings) -> dict[str, Any]:
    """What human.json says, which is written with the tables of items and of votes."""
    studies = [StudyFile(path) for path in settings.study]
    found = [votes_of(study) for study in studies]
    content = table(studies, [result(study, votes) for study, votes in zip(studies, found, strict=True)])
    content["scripted"] = settings.scripted
    content["notes"] = [*([SCRIPTED] if settings.scripted else []), *content["notes"]]
    write_json(files.join(settings.output, HUMAN_FILE), content, HUMAN, ensure_ascii=False)
    items, votes = items_table(studies, found), votes_table(studies, found)
    for name, rows in (("items.parquet", items), ("votes.parquet", votes)):
        write_parquet(files.join(settings.output, name), rows)
    return content


def result(study: StudyFile, found: list[Vote]) -> dict[str, Any]:
    """The numbers of one study."""
    votes = [vote.preference for vote in found]
    kept = tallies(votes)
    rates = {relation: rate(kept.values(), relation) for relation in ("<", "≤")}
    if None in rates.values():
        raise UserError(f"--study {study.path}: no votes that count yet: see its overview")
    (items,) = study.reader.execute("SELECT count(*) FROM comparison WHERE kind = 'item'").fetchone()
    return {
        "study": study.path,
        "model1": study.settings["model1"],
        "model2": study.settings["model2"],
        "rates": [asdict(one) for one in rates.values() if one is not None],
        "ties": sum(one.model_1 == one.model_2 for one in kept.values()),
        "items": items,
        "votes": len(votes),
        "dropped": sum(not vote.counts for vote in votes),
        "raters": len({vote.rater for vote in votes}),
        "alpha": agreement(votes),
    }


def table(studies: list[StudyFile], results: list[dict[str, Any]]) -> dict[str, Any]:
    """human.json: first every study's strict rate, as in the paper, then the rates that count ties."""
    rows, notes = [], []
    for place, relation in enumerate(("<", "≤")):
        for one in results:
            of = one["rates"][place]
            interval = f"{of['low']:.1%} to {of['high']:.1%}"
            alpha = None if one["alpha"] is None else round(one["alpha"], 3)
            models = [one["model1"], relation, one["model2"]]
            numbers = [f"{of['rate']:.2%}", interval, float(f"{of['p_value']:.2g}"), of["items"]]
            rows.append([*models, *numbers, one["votes"], one["dropped"], alpha])
    notes.append(
        "Rate: of the items with a surviving vote, those in which fewer (<), or not more (≤), raters prefer model 1 "
        "than model 2; p-value of a single-sided binomial test against 1/2; Wilson's interval."
    )
    notes.append("Dropped: votes of pages whose attention check failed. Alpha: Krippendorff's, of the others.")
    for one in results:
        voted = one["rates"][0]["items"]
        ties = f"{one['ties']:,} ties among {voted:,} items that count, of {one['items']:,} in the study"
        notes.append(f"{one['model1']} against {one['model2']}: {one['raters']:,} raters, {ties}.")
    return {"title": studies[0].settings["title"], "columns": COLUMNS, "rows": rows, "notes": notes, "studies": results}


def items_table(studies: list[StudyFile], found: list[list[Vote]]) -> pa.Table:
    """Every item with its texts, by model, and the votes that each has."""
    rows = []
    for study, votes in zip(studies, found, strict=True):
        kept = tallies(vote.preference for vote in votes)
        for one in study.reader.execute("SELECT * FROM comparison WHERE kind = 'item' ORDER BY id"):
            texts = {one["left_source"]: one["left_text"], one["right_source"]: one["right_text"]}
            tally = kept.get(one["window_id"])
            rows.append(
                {"study": study.path, "window_id": one["window_id"], "context": one["context"]}
                | {"model1": study.settings["model1"], "model2": study.settings["model2"]}
                | {f"{model}_text": texts[model] for model in ("model1", "model2")}
                | {"votes_model1": tally.model_1 if tally else 0, "votes_model2": tally.model_2 if tally else 0}
            )
    return pa.Table.from_pylist(rows)


def votes_table(studies: list[StudyFile], found: list[list[Vote]]) -> pa.Table:
    paired = zip(studies, found, strict=True)
    return pa.Table.from_pylist([{"study": study.path} | asdict(one) for study, votes in paired for one in votes])


def describe(content: dict[str, Any], output: str) -> None:
    print(f"{content['title']}: {files.join(output, HUMAN_FILE)}")
    for first, relation, second, share, interval, p_value, items, *_ in content["rows"]:
        print(f"  {first} {relation} {second}: {share} ({interval}), p {p_value:g}, {items:,} items")
    for one in content["studies"]:
        alpha = "not known" if one["alpha"] is None else f"{one['alpha']:.3f}"
        print(f"  {one['votes']:,} votes of {one['raters']:,} raters, {one['dropped']:,} dropped, alpha {alpha}")


if __name__ == "__main__":
    exit_with(main)

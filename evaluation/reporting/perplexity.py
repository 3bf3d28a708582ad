"""Perplexity: base and joint models, the paper's numbers, bounds against samples, positions, correct completions."""

import os
from collections.abc import Sequence
from typing import Any

from evaluation.joint.paired import direction
from evaluation.reporting.blocks import (
    Cell,
    Fold,
    Gap,
    Heading,
    PageBlock,
    PageSection,
    Paragraph,
    Picture,
    Table,
    count,
    decimal,
    in_perplexity,
    listed,
    percent,
    perplexity,
    signed,
    times,
    words,
)
from evaluation.reporting.commands import usage
from evaluation.reporting.figures import curve_figure
from evaluation.reporting.inputs import Result, StudyResults
from evaluation.results.paper import PERPLEXITY

JOB = "perplexity_bounds.py"
ASYMPTOTIC = (
    "The base model's perplexity is exact. The joint model's lies between two estimates: the lower one holds for every "
    "number of samples, the upper one is asymptotic, which means that with heavy-tailed weights it can be too low."
)
BELOW_ONE = (
    "No perplexity is below 1, but a lower bound on one can be: so few samples say nothing from below. The bound holds "
    "all the same, and with more samples it rises to what it bounds."
)
LONG = 12  # rows; longer tables are folded


def corpus_of(content: dict[str, Any]) -> str:
    """`books (test)`."""
    corpus, split = content.get("corpus") or "unnamed corpus", content.get("split")
    return f"{corpus} ({split})" if split else str(corpus)


def base_of(content: dict[str, Any]) -> str:
    return str((content.get("generator") or {}).get("architecture") or "base language model")


def energy_of(content: dict[str, Any]) -> str:
    energy = content["energy"]
    return str(energy.get("preset") or energy.get("kind") or "energy model")


def between(bounds: dict[str, float]) -> str:
    """`14.612–14.643`, with as many figures as they need to differ."""
    for more in range(4):
        ends = [in_perplexity(bounds[name], more) for name in ("lower", "upper")]
        if ends[0] != ends[1]:
            break
    return "–".join(ends)


def perplexity_section(found: StudyResults) -> PageSection:
    blocks: list[PageBlock] = []
    if results := found.of("bounds"):
        blocks += [Paragraph(ASYMPTOTIC), main_table(results)]
        if not any("language_models" in result.content for result in results):
            command = usage(JOB, "--language_model models/books-balm")
            what = "No other language models beside it, such as BALM and RALM, as large as base and energy model."
            blocks.append(Gap(what, [command]))
    else:
        blocks.append(Gap("No perplexities: there is no bounds.json in these folders.", [usage(JOB)]))
    blocks.append(paper_table())
    return PageSection("perplexity", "Perplexity", blocks)


def main_table(results: Sequence[Result]) -> Table:
    """A row for every model: base models and others once, joint models with both bounds and how far to trust them."""
    rows: list[list[Cell]] = []
    seen = set()
    for result in results:
        content = result.content
        joint, effective = content["joint_perplexity"], content["effective_samples"]
        mixed = ("at every position",) if content.get("positions") else ()
        where = [words(corpus_of(content)), Cell(f"{content['contexts']:,}", content["contexts"], mixed)]
        others = content.get("language_models", {})
        against = content.get("differences") or {}
        apart = against.get("language_models") or {}
        exact = [(f"Base: {base_of(content)}", content["base_perplexity"], None)]
        exact += [(f"Other: {os.path.basename(path.rstrip('/'))}", value, path) for path, value in others.items()]
        for name, value, path in exact:
            key = (name, corpus_of(content), content["contexts"], value)
            if key not in seen:
                number = Cell(in_perplexity(value), value, small=("exact",))
                own = apart.get(path) if path else against.get("base")
                rows.append(
                    [Cell(name, small=(result.name,)), *where, number, number, *[words(None)] * 3, difference_cell(own)]
                )
            seen.add(key)
        upper = Cell(in_perplexity(joint["upper"]), joint["upper"], small=("asymptotic",))
        rows.append(
            [
                Cell(f"Joint: {base_of(content)} + {energy_of(content)}", small=(result.name,), tag="joint"),
                *where,
                perplexity(joint["lower"]),
                upper,
                count(content["samples"]),
                decimal(effective["median"]),
                decimal(effective["least"]),
                words(None),
            ]
        )
    columns = (
        "Model",
        "Corpus",
        "Completions",
        "Lower",
        "Upper",
        "Samples",
        "Effective, median",
        "Effective, least",
        "Joint against it",
    )
    notes = ["Effective: how many equally weighted samples the weighted ones of a context are worth."]
    if units := {over(against) for result in results if (against := result.content.get("differences"))}:
        notes.append(f"Joint against it: what the bounds say, and a paired 95 % interval, {listed(sorted(units))}.")
    return Table("Test perplexity", columns, rows, notes)


def paper_table() -> Table:
    """What the paper found, apart from ours: its models and corpora are of another size."""
    corpora = list(dict.fromkeys(corpus for known in PERPLEXITY.values() for corpus in known))
    rows = []
    for model, known in PERPLEXITY.items():
        cells = [words(model)]
        for corpus in corpora:
            low, high = known.get(corpus, (None, None))
            text = None if low is None or high is None else f"{low:.2f}" if low == high else f"{low:.2f}–{high:.2f}"
            cells.append(words(None) if text is None else Cell(text, low))
        rows.append(cells)
    note = (
        "Bakhtin et al., JMLR 2020: models of up to 408 million parameters on the whole of CCNews and of the Toronto "
        "books. * starts from a pretrained RoBERTa; 24L: the base model has 24 layers."
    )
    return Table("The paper, full size: test perplexity", ("Model", *corpora), rows, [note])


def bounds_section(found: StudyResults) -> PageSection:
    """The bounds as samples grow, and token by token."""
    blocks: list[PageBlock] = []
    results = found.of("bounds")
    curves = [result for result in results if result.content.get("samples_curve")]
    for result in curves:
        blocks += curve_blocks(result)
    if not curves:
        blocks.append(Gap("No bounds against the number of samples.", [usage(JOB, "--samples_curve")]))
    by_position = [result for result in results if result.content.get("positions")]
    for result in by_position:
        blocks += position_blocks(result)
    if not by_position:
        command = usage(JOB, "--positions --exact_windows 100 --energy MODEL --generator MODEL")
        blocks.append(Gap("No perplexity by position (it needs samples at every context length).", [command]))
    return PageSection("bounds", "Bounds against samples, and by position", blocks)


def title_of(result: Result) -> str:
    content = result.content
    return f"{corpus_of(content)}, {base_of(content)} + {energy_of(content)} ({result.name})"


def curve_blocks(result: Result) -> list[PageBlock]:
    content, points = result.content, result.content["samples_curve"]
    base = content["base_perplexity"]
    first, last = points[0], points[-1]
    alt = (
        f"Joint perplexity between its bounds: {between(first)} with {first['samples']:,} samples of each context, "
        f"{between(last)} with {last['samples']:,}; the base model's is {in_perplexity(base)}."
    )
    rows = [
        [
            count(point["samples"]),
            perplexity(point["lower"]),
            perplexity(point["upper"]),
            perplexity(point["upper"] - point["lower"]),
        ]
        for point in points
    ]
    caption = f"Bounds against samples, {title_of(result)}"
    notes = [BELOW_ONE] if any(point["lower"] < 1 for point in points) else []
    table = Table(caption, ("Samples", "Lower", "Upper, asymptotic", "Apart"), rows, notes)
    figure = Picture(curve_figure(points, "samples", base), alt, "The bounds close in as samples grow.")
    return [Heading(f"Samples: {title_of(result)}"), figure, *folded_if_long(table)]


def position_blocks(result: Result) -> list[PageBlock]:
    content, points = result.content, result.content["positions"]
    last = content.get("last_position")
    first, end = points[0], points[-1]
    alt = (
        f"Perplexity of one token at positions {first['position']} to {end['position']}: joint from {between(first)} "
        f"to {between(end)}, base from {in_perplexity(first['base'])} to {in_perplexity(end['base'])}"
    )
    alt += f"; exactly {in_perplexity(last['exact'])} at the last one." if last else "."
    rows = [
        [
            count(point["position"]),
            perplexity(point["base"]),
            perplexity(point["lower"]),
            perplexity(point["upper"]),
        ]
        for point in points
    ]
    table = Table(
        f"Perplexity by position, {title_of(result)}", ("Position", "Base", "Lower", "Upper, asymptotic"), rows
    )
    shown: list[PageBlock] = [
        Heading(f"Positions: {title_of(result)}"),
        Picture(
            curve_figure(points, "position", None, last),
            alt,
            "Each token given all before it. At the last position the sum over the vocabulary is exact.",
        ),
        *folded_if_long(table),
    ]
    if last:
        shown.append(last_table(last))
    else:
        command = usage(JOB, "--positions --exact_windows 100 --energy MODEL --generator MODEL")
        shown.append(Gap("No exact sum at the last position.", [command]))
    return shown


def last_table(last: dict[str, Any]) -> Table:
    cells = [
        count(last["windows"]),
        perplexity(last["base"]),
        perplexity(last.get("lower")),
        perplexity(last["exact"]),
        perplexity(last.get("upper")),
    ]
    columns = ("Windows", "Base", "Joint, lower estimate", "Joint, exact", "Joint, upper estimate")
    return Table("The last token: estimates beside the exact sum over the vocabulary", columns, [cells])


def folded_if_long(table: Table) -> list[PageBlock]:
    return [table] if len(table.rows) <= LONG else [Fold(f"{table.caption}: {len(table.rows)} rows", [table])]


def matches_section(found: StudyResults) -> PageSection:
    blocks: list[PageBlock] = []
    for result in found.of("bounds"):
        if not (shares := result.content.get("matches")):
            continue
        rows = [[words("Base model"), words(None), percent(shares["base"], 2), words(None)]]
        for point in shares["joint"]:
            rows.append(
                [
                    words("Joint model"),
                    count(point["samples"]),
                    percent(point["joint"], 2),
                    percent(point["oracle"], 2),
                ]
            )
        note = (
            "The joint model takes one of n samples with probability softmax(−E). The oracle takes the real completion "
            f"whenever it is among them. Over {result.content['contexts']:,} contexts."
        )
        columns = ("Model", "Samples, n", "Correct", "Oracle")
        blocks.append(Table(f"Completions that are the real one, {title_of(result)}", columns, rows, [note]))
    if not blocks:
        what = "No shares of correct completions: they are counted where one completion alone is right, as with sums."
        blocks.append(Gap(what, [usage(JOB, "--matches")]))
    return PageSection("correct", "Correct completions", blocks)


def difference(content: dict[str, Any]) -> str:
    """How the joint perplexity compares with the base model's: lower or higher only where its interval says so."""
    against = content.get("differences")
    if not against:
        joint, base = content["joint_perplexity"], content["base_perplexity"]
        ends = [in_change(100 * (joint[name] / base - 1)) for name in ("lower", "upper")]
        return f"{' to '.join(dict.fromkeys(ends))}\u00a0% by the bounds, with no interval over other text"
    return f"{direction(against['base'])}: {in_changes(against['base'])}, {over(against)}"


def in_changes(found: dict[str, Any]) -> str:
    """`−0.2 to −0.1 % (−0.6 to +0.4 %)`: what the bounds say, and in brackets the interval of both."""
    own = found["percent"]
    middle = " to ".join(dict.fromkeys(in_change(own[name]) for name in ("lower", "upper")))
    interval = "no interval" if own["low"] is None else f"{in_change(own['low'])} to {in_change(own['high'])}\u00a0%"
    return f"{middle}\u00a0% ({interval})"


def in_change(percent: float) -> str:
    """With a sign, and two figures where one would be 0."""
    return signed(f"{percent:+.1f}" if abs(percent) >= 0.05 else f"{percent:+.2f}")


def over(against: dict[str, Any]) -> str:
    return f"over {times(against['count'], against['over'].removesuffix('s'))}"


def difference_cell(found: dict[str, Any] | None) -> Cell:
    if found is None:
        return words(None)
    text, _, interval = in_changes(found).partition(" (")
    return Cell(text, found["percent"]["upper"], (interval.removesuffix(")"), direction(found)))

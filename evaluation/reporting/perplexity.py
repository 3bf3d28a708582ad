"""Perplexity: base and joint models, the paper's numbers, bounds against samples, positions, correct completions."""

import os
from collections.abc import Sequence
from typing import Any

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
    in_interval,
    in_perplexity,
    percent,
    perplexity,
    words,
)
from evaluation.reporting.commands import usage
from evaluation.reporting.figures import curve_figure
from evaluation.reporting.inputs import Findings, Result
from evaluation.results.paper import PERPLEXITY

JOB = "perplexity_bounds.py"
ASYMPTOTIC = (
    "The base model's perplexity is exact. The joint model's lies between two estimates: the lower one holds for every "
    "number of samples, the upper one is asymptotic, which means that with heavy-tailed weights it can be too low."
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


def perplexity_section(found: Findings) -> PageSection:
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
        exact = [(f"Base: {base_of(content)}", content["base_perplexity"])]
        exact += [(f"Other: {os.path.basename(path.rstrip('/'))}", value) for path, value in others.items()]
        for name, value in exact:
            key = (name, corpus_of(content), content["contexts"], value)
            if key not in seen:
                number = Cell(in_perplexity(value), value, small=("exact",))
                rows.append([Cell(name, small=(result.name,)), *where, number, number, *[words(None)] * 3])
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
    )
    note = "Effective: how many equally weighted samples the weighted ones of a context are worth."
    return Table("Test perplexity", columns, rows, [note])


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


def bounds_section(found: Findings) -> PageSection:
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
    table = Table(caption, ("Samples", "Lower", "Upper, asymptotic", "Apart"), rows)
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


def matches_section(found: Findings) -> PageSection:
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
    """How the joint perplexity compares with the base model's, in words that the bounds allow."""
    base, joint = content["base_perplexity"], content["joint_perplexity"]
    low, high = sorted(1 - joint[name] / base for name in ("lower", "upper"))
    if low > 0:
        return f"{in_interval(low, high)} lower"
    if high < 0:
        return f"{in_interval(-high, -low)} higher"
    return "not distinguished by the bounds"

"""Analyses with their figures, samples side by side, and what human readers said."""

from typing import Any

from evaluation.reporting.blocks import (
    Cell,
    Completion,
    Fold,
    Gap,
    Heading,
    PageBlock,
    PageSection,
    Paragraph,
    Picture,
    Sample,
    Table,
    anything,
    decimal,
    digest,
    listed,
    times,
    words,
)
from evaluation.reporting.commands import analyses, usage
from evaluation.reporting.figures import embedded, is_wide
from evaluation.reporting.inputs import Result, StudyResults
from evaluation.reporting.perplexity import folded_if_long
from evaluation.reporting.runs import rule_of

WHO = (
    ("real", "The real one", "real"),
    ("base", "Base model", "base"),
    ("chosen", "Joint model", "joint"),
    ("worst", "Highest energy", "worst"),
)
NUMBERS_IN_ALT = 6
LINES = 5  # of a list in an example
ABBREVIATIONS = {"auroc", "nll"}


def analyses_section(found: StudyResults) -> PageSection:
    blocks: list[PageBlock] = []
    there = found.of("analysis")
    figures = {result.path: result.content["svg"] for result in found.of("figure")}
    for result in there:
        blocks += analysis_blocks(result, figures.get(result.path))
    names = {result.content["analysis"] for result in there}
    if lacking := {name: command for name, command in analyses().items() if name not in names}:
        kinds = ", ".join(name.replace("_", " ") for name in lacking)
        gap = Gap(f"No analyses of these kinds: {kinds}.", list(lacking.values()))
        blocks.append(Fold(f"Other analyses that there are: {kinds}", [gap]) if there else gap)
    return PageSection("analyses", "Analyses", blocks)


def analysis_blocks(result: Result, figure: bytes | None) -> list[PageBlock]:
    content = result.content
    blocks: list[PageBlock] = [Heading(content["title"])]
    if figure:
        caption = content.get("description") or content["title"]
        blocks.append(Picture(embedded(figure), alt_of(content), caption, is_wide(figure)))
    else:
        command = analyses().get(content["analysis"], "")
        blocks.append(Gap(f"{result.path} has no figure.svg that can be read.", [command]))
    blocks += folded_if_long(table_of(f"{content['title']} ({result.name})", content["rows"]))
    if examples := content.get("examples"):
        table = examples_table(f"Examples: {content['title']} ({result.name})", examples)
        blocks.append(Fold(times(len(examples), "example"), [table]))
    return blocks


def table_of(caption: str, rows: list[dict[str, Any]]) -> Table:
    """Flat rows as a table; columns in the order in which they first appear."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[anything(row.get(name)) for name in columns] for row in rows]
    return Table(caption, [in_words(name) for name in columns], cells)


def examples_table(caption: str, examples: list[dict[str, Any]]) -> Table:
    """As above; a list within a row has a line for each of its first entries, whose parts the column's head names."""
    columns = list(dict.fromkeys(name for row in examples for name in row))
    heads = []
    for name in columns:
        entries: list[Any] = next((row[name] for row in examples if isinstance(row.get(name), list) and row[name]), [])
        parts = f": {' · '.join(entries[0])}" if entries and isinstance(entries[0], dict) else ""
        heads.append(in_words(name) + parts)
    cells = [[example_cell(name, row.get(name)) for name in columns] for row in examples]
    return Table(caption, heads, cells)


def example_cell(name: str, value: Any) -> Cell:
    if name == "window_id":
        return digest(str(value))
    if not isinstance(value, list):
        return anything(value)
    lines = [
        " · ".join(
            anything(part).text.replace("\n", "↵") for part in (entry.values() if isinstance(entry, dict) else [entry])
        )
        for entry in value[:LINES]
    ]
    more = (f"and {len(value) - LINES} more",) if len(value) > LINES else ()
    return Cell("\n".join(lines), small=more, code=True)


def in_words(name: str) -> str:
    """`standard_error` as the head of a column."""
    if name in ABBREVIATIONS:
        return name.upper()
    return name.replace("_", " ").capitalize() if len(name) > 1 else name


def alt_of(content: dict[str, Any]) -> str:
    """What a figure shows, in numbers: what its rows are of, and the range of every column of numbers."""
    of: list[str] = []
    ranges: list[str] = []
    for name in dict.fromkeys(name for row in content["rows"] for name in row):
        values = [row[name] for row in content["rows"] if row.get(name) is not None]
        if all(isinstance(value, str) for value in values):
            of.append(listed(values))
        elif all(isinstance(value, int | float) for value in values):
            low, high = (anything(end).text for end in (min(values), max(values)))
            ranges.append(f"{name.replace('_', ' ')} {low}" + ("" if low == high else f" to {high}"))
    shown = "; ".join(ranges[:NUMBERS_IN_ALT]) or "no numbers"
    return f"{content['title']}{f' ({of[0]})' if of else ''}: {shown}."


def samples_section(found: StudyResults) -> PageSection:
    blocks: list[PageBlock] = []
    for result in found.of("samples"):
        blocks += sample_blocks(result)
    if not blocks:
        blocks.append(Gap("No samples of the joint model.", [usage("sample_joint.py")]))
    return PageSection("samples", "Samples side by side", blocks)


def sample_blocks(result: Result) -> list[PageBlock]:
    content, settings = result.content, result.content["settings"]
    rule = {"rule": settings.get("sampling"), "top_k": settings.get("top_k"), "top_p": settings.get("top_p")}
    drawn = f"{times(settings['samples'], 'sample')} of each context" if settings.get("samples") else "samples"
    alone = not any("chosen_text" in row for row in content["rows"])
    how = "token by token" if settings.get("autoregressive") else "one of them chosen with probability softmax(−E)"
    how = "the language model alone" if alone else how
    text = f"{times(content['contexts'], 'context')}, {drawn} ({rule_of(rule) or 'rule not recorded'}), {how}."
    if effective := content.get("effective_samples"):
        text += f" Effective samples: {effective['median']:,.1f} (median), {effective['least']:,.1f} (least)."
    blocks: list[PageBlock] = [Heading(result.name), Paragraph(text)]
    for number, row in enumerate(content["rows"], 1):
        there = [
            Completion(who, style, row[f"{name}_text"], energy_of(row.get(f"{name}_energy")))
            for name, who, style in WHO
            if row.get(f"{name}_text") is not None
        ]
        blocks.append(Sample(number, row["context_text"], there))
    lacking = [who.lower() for name, who, _ in WHO if not any(row.get(f"{name}_text") for row in content["rows"])]
    if lacking and not alone:
        command = usage("sample_joint.py")
        blocks.append(Gap(f"{result.name} has no texts of: {', '.join(lacking)}.", [command]))
    return blocks


def energy_of(value: float | None) -> Cell | None:
    return None if value is None else decimal(value, 2)


def human_section(found: StudyResults) -> PageSection:
    blocks: list[PageBlock] = []
    for result in found.of("human"):
        content = result.content
        columns, notes = content["columns"], content.get("notes") or []
        rows = [[human_cell(row, columns, place) for place in range(len(columns))] for row in content["rows"]]
        blocks.append(Table(f"{content['title']} ({result.name})", columns, rows, noted(notes)))
    if not blocks:
        blocks.append(Gap("No comparison by human readers: evaluation/human/prepare.py begins one."))
    return PageSection("human", "Human comparison", blocks)


def human_cell(row: Any, columns: list[str], place: int) -> Cell:
    """Of a row that is a list, or an object with the columns as names."""
    if isinstance(row, dict):
        return anything(row.get(columns[place]))
    return anything(row[place]) if place < len(row) else words(None)


def noted(notes: Any) -> list[str]:
    return [notes] if isinstance(notes, str) else [str(note) for note in notes]

"""The same page as Markdown, for a README, a pull request or a wiki: its words and tables, without pictures."""

from collections.abc import Iterable, Sequence

from evaluation.reporting.blocks import (
    Cell,
    Fold,
    Gap,
    Heading,
    PageBlock,
    PageSection,
    Paragraph,
    Picture,
    Sample,
    Table,
    visible,
)
from evaluation.reporting.headline import Headline
from evaluation.reporting.warnings import Caution

SAMPLES = 3  # of a table of texts: a page of Markdown is read from top to bottom


def markdown(
    title: str, headline: Headline, warnings: Sequence[Caution], sections: Sequence[PageSection], code_version: str
) -> str:
    parts = [f"# {plain(title)}", plain(headline.sentence)]
    if headline.facts:
        facts = [
            [Cell(fact.label), Cell(f"{fact.before} → {fact.now}" if fact.before else fact.now), Cell(fact.note)]
            for fact in headline.facts
        ]
        parts.append(table(("", "", ""), facts))
    if warnings:
        parts += ["## Warnings", "\n".join(f"- **{plain(one.where)}** {plain(one.text)}" for one in warnings)]
    for section in sections:
        parts += [f"## {plain(section.title)}", *of_blocks(section.blocks)]
    parts.append(f"Made by `evaluation/report.py`, residual-ebm {plain(code_version)}.")
    return "\n\n".join(part for part in parts if part) + "\n"


def of_blocks(blocks: Iterable[PageBlock]) -> list[str]:
    parts: list[str] = []
    shown = 0
    for block in blocks:
        shown = shown + 1 if isinstance(block, Sample) else 0
        if shown <= SAMPLES:
            parts += of_block(block)
    return parts


def of_block(block: PageBlock) -> list[str]:
    match block:
        case Table():
            return [
                f"**{plain(block.caption)}**",
                table(block.columns, block.rows, block.numeric),
                *map(plain, block.notes),
            ]
        case Paragraph():
            return [plain(block.text)]
        case Heading():
            return [f"### {plain(block.text)}"]
        case Gap():
            return [f"*Missing.* {plain(block.what)}", *(f"```sh\n{command}\n```" for command in block.commands)]
        case Fold():
            summary = f"<details><summary>{plain(block.summary)}</summary>"
            return [summary, *of_blocks(block.blocks), "</details>"]
        case Sample():
            lines = [f"**Context {block.number}** …{plain(block.context)}"]
            for one in block.completions:
                energy = f" (energy {plain(one.energy.text)})" if one.energy else ""
                lines.append(f"*{plain(one.who)}*{energy}: {plain(one.text)}")
            return ["\n".join(f"> {line}\n>" for line in lines)]
        case Picture():
            return []


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], numeric: Sequence[bool] | None = None) -> str:
    rule = ["--:" if right else "---" for right in numeric or [False] * len(columns)]
    lines = [[plain(name) for name in columns], rule, *([written(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def written(cell: Cell) -> str:
    """The text, and its small print behind it."""
    text = f"`{cell.text}`" if cell.code else plain(cell.text)
    return "<br>".join([text, *(f"<sub>{plain(line)}</sub>" for line in cell.small)])


def plain(text: str) -> str:
    """Words that Markdown leaves as they are."""
    for mark in "\\`*_[]<>|#":
        text = text.replace(mark, f"\\{mark}")
    return "<br>".join(visible(text).splitlines())

"""The paper's findings beside ours: what was seen, what was not, and what cannot be told."""

from typing import Any

from evaluation.reporting.blocks import Cell, Fold, Gap, PageBlock, PageSection, Paragraph, Table, signed, words
from evaluation.reporting.commands import usage
from evaluation.reporting.inputs import Result, StudyResults

SHOWN = 3  # parts of a finding in its row
ABOUT = (
    "Decided by intervals on differences: a finding is seen if all of its intervals lie above their lines, not seen if "
    "one lies below; each interval is of 95 % by itself. The paper's models are of another size."
)


def findings_section(found: StudyResults) -> PageSection:
    blocks: list[PageBlock] = []
    for result in found.of("findings"):
        blocks += [Paragraph(ABOUT), findings_table(result), parts_fold(result), *not_measured(result)]
    if not blocks:
        what = "No table of the paper's findings: there is no findings.json in these folders."
        blocks.append(Gap(what, [usage("findings.py")]))
    return PageSection("findings", "The paper's findings", blocks)


def findings_table(result: Result) -> Table:
    """Those of which something was measured."""
    measured = [one for one in result.content["findings"] if one["parts"]]
    rows = [
        [words(one["claim"]), Cell(one["paper"], small=(one["where"],)), ours(one), Cell(one["verdict"])]
        for one in measured
    ]
    verdicts = [one["verdict"] for one in measured]
    counts = [f"{verdicts.count(name)} {name}" for name in dict.fromkeys(sorted(verdicts))]
    if others := len(result.content["findings"]) - len(measured):
        counts.append(f"{others} not measured in this study")
    note = f"{', '.join(counts)}."
    return Table(f"Findings ({result.name})", ("Claim", "The paper", "Ours", "Verdict"), rows, [note])


def not_measured(result: Result) -> list[Fold]:
    rows = [[words(one["claim"]), words(one["reason"])] for one in result.content["findings"] if not one["parts"]]
    table = Table(f"Not measured ({result.name})", ("Claim", "Why"), rows)
    return [Fold(f"Not measured here: {len(rows)} of the findings", [table])] if rows else []


def ours(finding: dict[str, Any]) -> Cell:
    """The first differences, and why they do not decide."""
    parts = finding["parts"]
    lines = [f"{part['what']}: {in_numbers(part)}" for part in parts[:SHOWN]]
    more = [f"and {len(parts) - SHOWN} more"] if len(parts) > SHOWN else []
    return Cell("\n".join([*lines, *more]), small=(finding["reason"],) if finding["reason"] else ())


def parts_fold(result: Result) -> Fold:
    """Every difference with its interval, and what that rests on."""
    rows = [
        [words(one["claim"]), words(part["what"]), words(in_numbers(part)), words(part["over"]), words(part["verdict"])]
        for one in result.content["findings"]
        for part in one["parts"]
    ]
    columns = ("Claim", "Difference", "95 % interval", "Over", "Verdict")
    return Fold(f"All {len(rows)} differences", [Table(f"Differences ({result.name})", columns, rows)])


def in_numbers(part: dict[str, Any]) -> str:
    """`+3.2 points (+1.1 to +5.3)`, and the line where that is not 0."""
    scale = 100 if part["unit"] in ("points", "share") else 1
    word = {"points": " points", "share": " %", "percent": " %", "nats": ""}[part["unit"]]
    value, low, high, line = (
        signed(f"{scale * part[name]:+.{2 if part['unit'] == 'nats' else 1}f}")
        for name in ("value", "low", "high", "line")
    )
    if part["unit"] == "nats" and max(abs(part[name]) for name in ("value", "low", "high")) < 0.05:
        value, low, high = (signed(f"{part[name]:+.2g}") for name in ("value", "low", "high"))
    return f"{value}{word} ({low} to {high})" + (f", must be above {line}" if part["line"] else "")

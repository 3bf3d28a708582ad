"""Which of the paper's qualitative findings a study has seen: each decided by intervals on differences.

  python evaluation/findings.py --input mini --output results/findings

The folder is searched for what the other jobs wrote, as for a report: grids, bounds, analyses, votes of readers. Of
each finding it is said what the paper claims, with its numbers, and ours: seen, not seen, or cannot tell, with the
reason. Differences between cells of a grid are taken window by window where their stores of energies are still there.
Written is findings.json, which the report shows. Several --input are one study; what cannot be read is named.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.claims.decision import CANNOT_TELL, NOT_SEEN, SEEN
from evaluation.claims.detection import detection_findings
from evaluation.claims.generation import generation_findings
from evaluation.claims.stability import stability_findings
from evaluation.reporting.findings import in_numbers
from evaluation.reporting.inputs import find_results
from evaluation.results.json_file import write_json
from pipeline.runtime import files
from pipeline.runtime.errors import exit_with
from pipeline.runtime.provenance import code_version
from pipeline.runtime.settings import Settings, read_settings, setting
from schemas.results import FINDINGS, FINDINGS_FILE

VERDICTS = (SEEN, NOT_SEEN, CANNOT_TELL)


@dataclass(frozen=True, kw_only=True)
class FindingsSettings(Settings):
    """A study's results, and where the table goes."""

    input: tuple[str, ...] = setting(help="a folder of results. May be given several times", metavar="DIR")
    output: str = setting(help="where findings.json goes", metavar="DIR")


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(FindingsSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    describe(findings(settings), settings.output)
    return 0


def findings(settings: FindingsSettings) -> dict[str, Any]:
    """What findings.json says, which is written."""
    found = find_results(settings.input)
    decided = [*detection_findings(found), *generation_findings(found), *stability_findings(found)]
    content = {
        "inputs": list(settings.input),
        "problems": found.problems,
        "code_version": code_version(),
        "findings": [finding.described() for finding in decided],
    }
    write_json(files.join(settings.output, FINDINGS_FILE), content, FINDINGS, allow_nan=False)
    return content


def describe(content: dict[str, Any], output: str) -> None:
    """The table, in lines that fit a terminal: verdict, claim, the paper's numbers, ours or why there are none."""
    for one in content["findings"]:
        print(f"{one['verdict']:<12} {one['claim']}")
        print(f"  {'paper':<10} {one['paper']} ({one['where']})")
        for part in one["parts"]:
            print(f"  {'ours':<10} {part['what']}: {in_numbers(part)}, {part['over']}: {part['verdict']}")
        if one["reason"]:
            print(f"  {'because':<10} {one['reason']}")
    counts = {name: sum(one["verdict"] == name for one in content["findings"]) for name in VERDICTS}
    print(", ".join(f"{number} {name}" for name, number in counts.items()))
    for sentence in content["problems"]:
        print(f"  problem    {sentence}")
    print(f"  written    {files.join(output, FINDINGS_FILE)}")


if __name__ == "__main__":
    exit_with(main)

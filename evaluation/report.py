"""One HTML page from whatever results there are: what was run, perplexities, accuracies, analyses, samples, warnings.

  python evaluation/report.py --input results --input stores --input models --output report.html

The folders are searched for stores, models and what the evaluation jobs wrote, each known by what is in it. The page
is one file that needs no network, no other file and no script to be read. What is missing is named on it with the
command that makes it; what cannot be read is named too, the rest is shown, and the exit code is then 1.
"""

import argparse
from collections.abc import Sequence

from evaluation.reporting.inputs import Findings, find_results
from evaluation.reporting.page import page
from pipeline.runtime import files
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.provenance import code_version


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    found = find_results(options.input)
    files.put(options.output, page(found, options.title, options.input, code_version()).encode())
    describe(found, options.output)
    return int(bool(found.problems))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument(
        "--input", action="append", required=True, metavar="DIR", help="a folder of results. May be given several times"
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="the page, an .html file on any filesystem")
    parser.add_argument("--title", default="Residual energy-based models of text", help="of the page")
    options = parser.parse_args(arguments)
    if not options.output.endswith((".html", ".htm")):
        raise UserError(f"--output {options.output}: a file whose name ends with .html")
    if files.exists(options.output) and not files.is_file(options.output):
        raise UserError(f"--output {options.output}: a folder: name a file")
    return options


def describe(found: Findings, output: str) -> None:
    kinds: dict[str, int] = {}
    for result in found.results:
        kinds[result.kind] = kinds.get(result.kind, 0) + 1
    print(f"report {output}")
    listed = ", ".join(f"{number} {kind.replace('_', ' ')}" for kind, number in kinds.items())
    print(f"  of         {listed or 'nothing that can be read'}")
    for sentence in found.problems:
        print(f"  problem    {sentence}")


if __name__ == "__main__":
    exit_with(main)

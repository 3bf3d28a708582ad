"""One HTML page from whatever results there are: what was run, perplexities, accuracies, analyses, samples, warnings.

  python evaluation/report.py --input results --input stores --input models --output report.html

The folders are searched for stores, models and what the evaluation jobs wrote, each known by what is in it. The page
is one file that needs no network, no other file and no script to be read; with `--output report.md` its words and
tables are written as Markdown. What is missing is named on it with the
command that makes it; what cannot be read is named too, the rest is shown, and the exit code is then 1.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.reporting.inputs import StudyResults, find_results
from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.provenance import code_version
from pipeline.runtime.settings import Settings, read_settings, setting


@dataclass(frozen=True, kw_only=True)
class ReportSettings(Settings):
    """Folders of results, and the page that is made from them."""

    input: tuple[str, ...] = setting(help="a folder of results. May be given several times", metavar="DIR")
    output: str = setting(help="the page, an .html (or .md) file on any filesystem", metavar="FILE")
    title: str = setting("Residual energy-based models of text", help="of the page")

    def check(self) -> None:
        if not self.output.endswith((".html", ".htm", ".md")):
            raise UserError(f"--output {self.output}: a file whose name ends with .html or .md")
        if files.exists(self.output) and not files.is_file(self.output):
            raise UserError(f"--output {self.output}: a folder: name a file")


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(ReportSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    found = report(settings)
    describe(found, settings.output)
    return int(bool(found.problems))


def report(settings: ReportSettings) -> StudyResults:
    """Writes the page, and returns what is on it."""
    from evaluation.reporting.page import markdown_page, page  # what a page is made with is not for --help

    found = find_results(settings.input)
    if settings.output.endswith(".md"):
        made = markdown_page(found, settings.title, code_version())
    else:
        made = page(found, settings.title, settings.input, code_version())
    files.put(settings.output, made.encode())
    return found


def describe(found: StudyResults, output: str) -> None:
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

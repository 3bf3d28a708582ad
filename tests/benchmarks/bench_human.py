"""How long raters wait for the rating site when a hundred of them are at work, and how many pages it can take.

The site is a process of its own; its raters are another, on the same machine. A rater here takes up to six seconds for
a page of four comparisons, which is faster than anyone reads. In the second part nobody pauses at all.
"""

import contextlib
import io
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))
import numpy as np
from side_by_side import print_header

from evaluation.human import prepare
from evaluation.human.study.file import StudyFile
from tests.evaluation.human.conftest import Prepared, write_samples
from tests.helpers.commands import command, free_port, serving
from tests.helpers.crowd import Crowd

RATERS, PAUSE, PAGES = 100, 6.0, 3
TARGET = 0.2  # seconds, 95th percentile


def main() -> None:
    print_header(f"the rating site, {RATERS} raters at once")
    for pause, pages in ((PAUSE, PAGES), (0.0, PAGES)):
        with tempfile.TemporaryDirectory() as scratch:
            measure(Path(scratch), pause, pages)


def measure(scratch: Path, pause: float, pages: int) -> None:
    samples = write_samples(scratch / "samples", 400)
    flags = f"--a {samples}:base --b {samples}:chosen --gold {samples} --items 333 --qualification_items 0"
    with contextlib.redirect_stdout(io.StringIO()):
        prepare.main(f"{flags} --raters {RATERS} --output {scratch}/study.db".split())
    study = Prepared(scratch / "study.db", "")
    port = free_port()
    site = command("evaluation/human/serve.py", "--study", study.path, "--port", str(port))
    with serving([*site, "--requests_per_minute", "100000"], port):
        crowd = Crowd(f"http://localhost:{port}", study.links, pause=pause, pages=pages)
        started = time.perf_counter()
        crowd.run()
        took = time.perf_counter() - started
    print(f"\n{f'up to {pause:g} s' if pause else 'no pause'} between pages: {len(crowd.sent):,} pages in {took:.1f} s")
    for what, seconds in crowd.seconds.items():
        half, most, worst = np.quantile(seconds, [0.5, 0.95, 1]) * 1000
        ratio = f", {most / 1000 / TARGET:.2f} of the target" if pause else ""
        print(f"  {what:12}  median {half:6.1f} ms, 95% below {most:6.1f} ms{ratio}, slowest {worst:6.1f} ms")
    print(f"  lost or twice {len(differing(study.study, crowd.sent))} of {len(crowd.sent)} pages")


def differing(study: StudyFile, acknowledged: dict[int, dict[int, str]]) -> set[int]:
    """Pages of which the study holds something else than was acknowledged."""
    held: dict[int, dict[int, str]] = {}
    for page, place, choice in study.reader.execute(
        "SELECT page, place, choice FROM slot JOIN page ON page.id = page WHERE page.state = 'sent'"
    ):
        held.setdefault(page, {})[place] = choice
    return {page for page in held.keys() | acknowledged.keys() if held.get(page) != acknowledged.get(page)}


if __name__ == "__main__":
    main()

"""A small study of texts that are hard to show, the server that runs it, and a rater who has read the key."""

import csv
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uvicorn

from evaluation.human import prepare
from evaluation.human.site.app import create_app
from evaluation.human.site.connections import configuration
from evaluation.human.site.guards import Pace
from evaluation.human.site.links import Rater, find_rater
from evaluation.human.study.file import StudyFile
from tests.helpers.commands import command, free_port, serving

SUBJECTS = ["harbour", "council", "orchard", "library", "railway", "museum", "bakery", "island", "theatre", "river"]
HARD = [
    "<script>document.title = 'taken over'</script><img src=x onerror=\"document.title='taken over'\">",
    "“Quotes”, 'single', \"double\" & an ampersand; {{ 7 * 7 }} {% raw %}",
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft" * 3,
    "two lines,\n\n    the second indented,\tand a tab",
    "\u202eright to left\u202c, a bell \x07, 中文 and naïve café",
]


def write_samples(folder: Path, count: int) -> Path:
    """samples.parquet as sample_joint.py writes it: real, base and chosen completions, some of them hard to show."""
    rows = []
    for number in range(count):
        subject, hard = SUBJECTS[number % len(SUBJECTS)], HARD[number % len(HARD)]
        start = f"end of a long winter. On Monday the {subject} (case {number}) was the talk of the town, and {hard}"
        rows.append(
            {
                "window_id": f"w{number:04d}",
                "context": list(range(30)),
                "context_text": f"{start} after the meeting the mayor told reporters that the {subject}",
                "real_text": f" would open again in May, once number {number} had been repaired. {hard}",
                "base_text": f" was was a the {subject} of number {number}, which said it of the. {hard}",
                "chosen_text": f" had been closed for {number} days and would stay so. {hard}",
            }
        )
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "samples.parquet")
    return folder


class Prepared:
    """A study on the disk with the links of its raters."""

    def __init__(self, path: Path, overview: str):
        self.path = path
        self.study = StudyFile(str(path))
        with open(f"{path}.links.csv", encoding="utf-8") as file:
            self.links = [row["link"] for row in csv.DictReader(file)]
        self.overview = overview

    def rater(self, number: int) -> Rater:
        found = find_rater(self.study.reader, self.links[number].rsplit("/", 1)[1])
        assert found is not None
        return found

    def sources(self, page: int) -> dict[int, tuple[str, str]]:
        """What the key says of a page: by place, where the left and the right text come from."""
        rows = self.study.reader.execute(
            "SELECT place, left_source, right_source FROM slot JOIN comparison ON comparison.id = comparison "
            "WHERE page = ?",
            (page,),
        )
        return {place: (left, right) for place, left, right in rows}

    def choices(self, page: int, better: Callable[[int, tuple[str, str]], str]) -> dict[int, str]:
        """By place, left or right: wherever the source is that `better` names."""
        return {
            place: "left" if left == better(place, (left, right)) else "right"
            for place, (left, right) in self.sources(page).items()
        }

    def one(self, query: str, *values: Any) -> Any:
        return self.study.reader.execute(query, values).fetchone()[0]


def attentive(place: int, sources: tuple[str, str]) -> str:
    """Sees what is real, and prefers model 2."""
    return "gold" if "gold" in sources else "model2"


@pytest.fixture
def prepared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Prepared]:
    """Prepares a study; flags are added to those of a small one."""

    def make(flags: str = "", contexts: int = 40, name: str = "study.db") -> Prepared:
        samples = write_samples(tmp_path / "samples", contexts)
        usual = f"--a {samples}:base --b {samples}:chosen --gold {samples} --output {tmp_path / name}"
        sizes = "--items 12 --qualification_items 4 --raters 4"
        assert prepare.main(f"{usual} {sizes} {flags}".split()) == 0
        said = re.search(r"overview +(\S+)", capsys.readouterr().out)
        assert said is not None
        return Prepared(tmp_path / name, said[1])

    return make


@contextmanager
def served(path: Path, *flags: str) -> Iterator[str]:
    """The real server, in a process of its own; gives its address."""
    port = free_port()
    with serving(command("evaluation/human/serve.py", "--study", path, "--port", str(port), *flags), port):
        yield f"http://localhost:{port}"


@contextmanager
def served_here(path: Path, of_raters: int = 120, of_strangers: int = 60, proxy: str | None = None) -> Iterator[str]:
    """The same server in a thread of this process, which starts at once."""
    port = free_port()
    app = create_app(StudyFile(str(path)), Pace(of_raters, of_strangers))
    server = uvicorn.Server(configuration(app, proxy, port))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server ended before it listened"
            time.sleep(0.01)
        yield f"http://localhost:{port}"
    finally:
        server.should_exit = True
        thread.join()


def integrity(path: Path) -> str:
    with sqlite3.connect(path) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])

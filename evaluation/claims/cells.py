"""The cells of a study's grids, by what they are, and their accuracies window by window where these can be read."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from evaluation.claims.decision import Measured
from evaluation.detection.accuracy import accuracy_by_window
from evaluation.detection.grid import joined, read_energies
from evaluation.detection.labels import ENERGY
from evaluation.reporting.inputs import StudyResults
from pipeline.engines.sampling import TEMPERATURE
from pipeline.runtime.errors import UserError

BOOKS, NEWS, WIKI = CORPORA = ("Books", "CCNews", "Wiki")
CONV, TRANSFORMER = "conv", "transf"  # what names of generators' presets begin with
BEGINNINGS = {"book": BOOKS, "toronto": BOOKS, "ccnews": NEWS, "cc-news": NEWS, "news": NEWS, "wiki": WIKI}


@dataclass(frozen=True)
class GridCell:
    """A cell with an accuracy, and which grid of the study it is of."""

    grid: int
    content: dict[str, Any]

    @property
    def row(self) -> str:
        return str(self.content["row"])

    @property
    def column(self) -> str:
        return str(self.content["column"])

    @property
    def role(self) -> str:
        return str(self.content["model"]["role"])

    @property
    def kind(self) -> str:
        """Of an energy model: linear, bilstm, unit, bit."""
        return str(self.content["model"].get("kind"))

    @property
    def setting(self) -> str:
        return str(self.content["setting"])

    @property
    def trained_on(self) -> frozenset[str]:
        """Corpora, as the manifests call them."""
        return frozenset(self.content["trained"]["corpora"])

    @property
    def tested_on(self) -> frozenset[str]:
        return frozenset(self.content["tested"]["corpora"])

    @property
    def corpus(self) -> str | None:
        """The paper's name of the corpus that is tested on: as the grid file says, or as it begins."""
        if (known := self.content.get("paper_column")) in CORPORA:
            return str(known)
        names = [name.lower() for name in self.tested_on]
        found = {own for name in names for word, own in BEGINNINGS.items() if name.startswith(word)}
        return found.pop() if len(found) == 1 and len(names) == 1 else None

    def generators(self, of: str) -> str | None:
        """The family of the generators that it was `trained` or is `tested` on, if they are of one."""
        names = self.content[of]["architectures"]
        found = {family for family in (CONV, TRANSFORMER) for name in names if name.startswith(family)}
        return found.pop() if len(found) == 1 and names else None

    @property
    def measured(self) -> Measured:
        paths, rule = self.content.get("energies") or [], self.content["rule"]
        windows = by_window(tuple(paths), int(rule["sign"]), float(rule["threshold"])) if paths else None
        return Measured(self.content["accuracy"], self.content["low"], self.content["high"], windows)


@cache
def by_window(paths: Sequence[str], sign: int, threshold: float) -> Any:
    """The accuracy of each window in stores of energies; None where they are no longer there."""
    try:
        scores = joined([read_energies(path) for path in paths])
    except (UserError, OSError, pa.ArrowException):
        return None
    right = sign * scores.real > threshold, sign * scores.generated <= threshold
    return accuracy_by_window(*right, scores.real_windows, scores.generated_windows)


def cells_of(found: StudyResults) -> list[GridCell]:
    """All cells of windows drawn at temperature 1, or of whole texts, that nothing speaks against."""
    return [
        GridCell(number, cell)
        for number, grid in enumerate(found.of("grid"))
        for cell in grid.content["cells"]
        if "accuracy" in cell and "model" in cell and not cell.get("warnings")
        if set(cell["tested"].get("rules") or [TEMPERATURE]) == {TEMPERATURE}
    ]


Test = Callable[[GridCell], bool]


def pairs(cells: Sequence[GridCell], first: Test, second: Test) -> Iterator[tuple[GridCell, GridCell]]:
    """Cells of one column of one grid, the one of this kind, the other of that."""
    for one in cells:
        for other in cells:
            if (one.grid, one.column) == (other.grid, other.column) and first(one) and second(other):
                yield one, other


def is_network(cell: GridCell, *kinds: str) -> bool:
    return cell.role == ENERGY and cell.kind in kinds

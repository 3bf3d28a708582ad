"""The order of rooms: what a module imports stands in its own room, or in one that comes before."""

import ast
from pathlib import Path

import pytest

from tests.helpers.commands import ROOT

# A row's rooms know nothing of each other. A package's commands come after its rooms, or where others call them.
ORDER = [
    ["schemas"],
    ["pipeline.runtime"],
    ["pipeline.stores"],
    ["pipeline.text"],
    ["pipeline.windows", "pipeline.models", "pipeline.pairs"],
    ["pipeline.engines"],
    ["pipeline.mining"],
    ["pipeline"],
    ["pipeline.steps"],
    ["training.data"],
    ["training.loop"],
    ["training.language"],
    ["training.energy"],
    ["training"],
    ["training.steps"],
    ["evaluation.results"],
    ["evaluation.joint"],
    ["evaluation.harness"],
    ["evaluation.score", "evaluation.sample_joint", "evaluation.perplexity_bounds"],
    ["evaluation.detection"],
    ["evaluation.accuracy_grid", "evaluation.detect"],
    ["evaluation.analyses"],
    ["evaluation.reporting"],
    ["evaluation.claims"],
    ["evaluation.hub"],
    ["evaluation.human.study"],
    ["evaluation.human.site"],
    ["evaluation.human"],
    ["evaluation"],
    ["evaluation.steps"],
    ["studies.orchestration"],
    ["studies.costs"],
    ["studies"],
]
RANKS = {room: rank for rank, row in enumerate(ORDER) for room in row}
PACKAGES = ("schemas", "pipeline", "training", "evaluation", "studies")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def room_of(module: str) -> str:
    """The longest name in the order that a module's begins with."""
    parts = module.split(".")
    return next(name for end in range(len(parts), 0, -1) if (name := ".".join(parts[:end])) in RANKS)


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in inner if (ROOT / (name.replace(".", "/") + ".py")).exists()} or {node.module}
    return {name for name in found if name.partition(".")[0] in PACKAGES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_order_of_rooms(path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    if path.name == "__init__.py" and "." not in module:
        return  # a package's face names what is in all of its rooms
    mine = room_of(module)
    for other in imports_of(path):
        theirs = room_of(other)
        assert theirs == mine or RANKS[theirs] < RANKS[mine], f"{module} imports {other}"


def test_only_what_can_be_run_stands_at_the_top_of_a_package():
    tops = [path for package in PACKAGES[1:] for path in (ROOT / package).glob("*.py") if path.name != "__init__.py"]
    assert [path for path in tops if '\nif __name__ == "__main__":\n' not in path.read_text()] == []


def test_every_room_says_what_it_is():
    for folder in {path.parent for path in FILES}:
        assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text())), f"{folder}: no docstring"

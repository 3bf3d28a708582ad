"""The commands that make what a report lacks, as the jobs' own docstrings give them."""

import ast
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parents[1]


@cache
def usage(script: str, *flags: str) -> str:
    """The first command in the docstring of a script below evaluation/, with further flags at its end."""
    source = (FOLDER / script).read_text(encoding="utf-8")
    lines = iter((ast.get_docstring(ast.parse(source)) or "").splitlines())
    command = [next((line.strip() for line in lines if line.startswith("  ")), f"python evaluation/{script}")]
    while command[-1].endswith("\\"):
        command.append(next(lines).strip())
    words = [line.removesuffix("\\").strip() for line in command]
    return " ".join([*words, *flags])


def analyses() -> dict[str, str]:
    """Every analysis that there is, and its command."""
    return {
        path.stem: usage(f"analyses/{path.name}")
        for path in sorted((FOLDER / "analyses").glob("*.py"))
        if f"python evaluation/analyses/{path.name}" in path.read_text(encoding="utf-8")
    }

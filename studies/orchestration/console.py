"""The command residual-ebm: every script of the project by its name, wherever the package is installed.

residual-ebm                                  what there is to run
residual-ebm mine-negatives --help            the same as python pipeline/mine_negatives.py --help
residual-ebm analyses ngrams --help           the same as python evaluation/analyses/ngrams.py --help
"""

import ast
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from runpy import run_module

from studies.orchestration.study import ROOT

FOLDERS = ("studies", "pipeline", "training", "evaluation", "evaluation/analyses", "evaluation/human")


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    scripts = commands()
    if not words or words[0] in ("-h", "--help"):
        print(listing(scripts))
        return 0
    for count in (1, 2):
        name = " ".join(words[:count])
        if name in scripts:
            sys.argv = [f"residual-ebm {name}", *words[count:]]
            run_module(module_of(scripts[name]), run_name="__main__")
            return 0
    near = get_close_matches(words[0], scripts, 1)
    hint = f"perhaps {near[0]}, or see" if near else "see"
    print(f"error: {words[0]}: there is no such command, {hint} residual-ebm --help", file=sys.stderr)
    return 2


def commands() -> dict[str, Path]:
    """Everything that can be run: the file of each command, by the name that its folder in a package is part of."""
    found = (path for folder in FOLDERS for path in sorted(Path(ROOT, folder).glob("*.py")) if is_script(path))
    return {" ".join(path.relative_to(ROOT).with_suffix("").parts[1:]).replace("_", "-"): path for path in found}


def is_script(path: Path) -> bool:
    return '\nif __name__ == "__main__":\n' in path.read_text(encoding="utf-8")


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def listing(scripts: dict[str, Path]) -> str:
    """The commands of each package, with the first line of what each says of itself."""
    lines = ["usage: residual-ebm COMMAND [--help] [flags of the command]"]
    for folder in FOLDERS:
        lines += ["", f"{folder}:"]
        for name, path in scripts.items():
            if path.parent == Path(ROOT, folder):
                lines.append(f"  {name:<32}{about(path)}")
    return "\n".join(lines)


def about(path: Path) -> str:
    """The first line of what a script says of itself."""
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return said.partition("\n")[0]

"""Every command of the READMEs is run, smaller; what needs a hub, a cloud, a GPU or hands is marked so, and is parsed.

A block is ```sh if its commands are run, and ```sh WHY if they cannot be here; ```python blocks are run too. What the
first page starts begins cold, as for its reader, DeepSpeed's launcher included; all else is forked from a warm process.
"""

import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers.commands import ROOT, words
from tests.helpers.processes import run_group

# Each after those that make what it reads.
RUN = [
    ("README.md", 0),
    ("README.md", 1),
    ("pipeline/README.md", 0),
    ("pipeline/README.md", 1),
    ("training/README.md", 0),
    ("training/README.md", 1),
    ("pipeline/README.md", 2),
    ("pipeline/README.md", 3),
    ("pipeline/README.md", 4),
    ("pipeline/README.md", 5),
    ("training/README.md", 2),
    ("training/README.md", 3),
    ("training/README.md", 4),
    ("training/README.md", 5),
    ("training/README.md", 6),
    ("evaluation/README.md", 0),
    ("evaluation/README.md", 1),
    ("evaluation/README.md", 2),
    ("evaluation/README.md", 3),
    ("evaluation/human/README.md", 0),
    ("studies/README.md", 0),
]
# What makes a command small enough for a test: later flags win.
SMALLER = {
    "make_windows.py": "--limit 40",
    "train_lm.py": "--max_steps 2 --batch_size 4 --valid_windows 8",
    "train_energy.py": "--max_steps 2 --batch_size 4 --valid_windows 8",
    "mine_negatives.py": "--engine torch --negatives 3",
    "show_samples.py": "--engine torch --count 1",
    "sample_joint.py": "--samples 4 --limit 30",
    "prepare.py": "--items 6 --qualification_items 0 --raters 2",
}
READMES = sorted(
    str(path.relative_to(ROOT))
    for path in [ROOT / "README.md", *ROOT.glob("*/README.md"), *ROOT.glob("*/*/README.md")]
    if ".venv" not in path.parts
)


class Block(NamedTuple):
    kind: str
    why_not: str
    text: str

    @property
    def commands(self) -> list[list[str]]:
        lines = re.sub(r"\\\n\s*", " ", self.text).splitlines()
        return [shlex.split(line, comments=True) for line in lines if line.strip() and not line.startswith("#")]


def blocks_of(readme: str) -> list[Block]:
    text = (ROOT / readme).read_text()
    found = re.findall(r"^```(sh|python)(?: (\w+))?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(*block) for block in found]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like the project's, with some texts."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("pipeline", "training", "evaluation", "schemas", "studies", "requirements"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
    for number, split in enumerate(("train", "valid", "test")):
        (folder / "texts" / split).mkdir(parents=True)
        for file in range(4):
            path = folder / "texts" / split / f"{file}.txt"
            path.write_text("\n".join(words(60, 1000 * number + 100 * file + line) for line in range(60)))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("readme", "number"), RUN)
def test_the_commands_of_the_readmes_run(place, readme, number):
    block = [block for block in blocks_of(readme) if not block.why_not][number]
    if block.kind == "python":
        commands = [["python", "-c", block.text]]
    else:
        commands = [[*command, *smaller(command)] for command in block.commands]
    seen: set[str] = set()
    for program, *arguments in commands:
        first = next(at for at, word in enumerate(arguments) if word.endswith(".py") or word == "-c")
        script = arguments[first]
        cold = readme == "README.md" and script not in seen
        seen.add(script)
        # What is not begun cold has no launcher, and none of its options.
        start = [str(place / program)] if cold and script != "-c" else [sys.executable]
        ended = run_group([*start, *arguments[0 if cold else first :]], cold, cwd=place)
        assert ended.returncode == 0, f"{program} {arguments}\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"


def smaller(command: list[str]) -> list[str]:
    names = [name for word in command for name in SMALLER if word.endswith(f"/{name}")]
    return shlex.split(SMALLER[names[0]]) if names and "--help" not in command else []


def test_every_block_that_can_be_run_is():
    there = {
        (readme, number)
        for readme in READMES
        for number, _ in enumerate(block for block in blocks_of(readme) if not block.why_not)
    }
    assert there == set(RUN)


@pytest.mark.parametrize("readme", READMES)
def test_what_is_linked_is_there(readme):
    text = (ROOT / readme).read_text()
    folder = (ROOT / readme).parent
    for label, target in re.findall(r"\[([^\]]+)\]\(([^)#]+)(?:#[\w-]+)?\)", text):
        if not target.startswith("http"):
            assert (folder / target).exists(), f"{readme}: {target}"
        for name in re.findall(r"\btest_\w+\b(?!\.py)", label):
            assert f"def {name}(" in (folder / target).read_text(), f"{readme}: {name} is not in {target}"


@pytest.mark.parametrize("readme", READMES)
def test_scripts_that_are_named_exist(readme):
    text = re.sub(r"\]\([^)]*\)", "", (ROOT / readme).read_text())  # links have a test of their own
    for script in re.findall(r"(?<![\w/.])((?:pipeline|training|evaluation|studies|requirements)/[a-z_/]+\.py)", text):
        assert (ROOT / script).exists(), f"{readme}: {script}"


def test_every_package_has_a_page():
    packages = ("pipeline", "training", "evaluation", "evaluation/human", "studies", "requirements", "docker", "tests")
    assert all((ROOT / package / "README.md").exists() for package in packages)

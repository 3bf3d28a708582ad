"""The project's own files, as the tests of its installation need them."""

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

from packaging.requirements import Requirement

from tests.helpers.commands import ROOT


def locked(kind: str) -> dict[str, str]:
    """What a lock file pins for this Python and system."""
    found = map(Requirement, (ROOT / f"requirements/{kind}.txt").read_text().splitlines())
    return {
        one.name: str(one.specifier).removeprefix("==") for one in found if one.marker is None or one.marker.evaluate()
    }


def copy_project(folder: Path) -> Path:
    """A copy of the files that git knows, with none of what was built or installed beside them."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    assert listed.returncode == 0, listed.stderr
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def load(script: str) -> ModuleType:
    """A script of requirements/, which is no package."""
    spec = importlib.util.spec_from_file_location(script, ROOT / f"requirements/{script}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

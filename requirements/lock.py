"""Renews the lock files: the newest versions that pyproject.toml allows, of everything that it brings along.

  python requirements/lock.py

One file a kind of machine, cpu.txt and gpu.txt, names packages and versions, and no place to get them from. What the
suite runs with, Python 3.11 on Linux, is resolved first; other Pythons and systems follow it wherever they can, and
have a line of their own where they cannot.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXTRAS = ("training", "evaluation", "human", "study", "dev")
LINUX, ARM, MAC = "x86_64-manylinux_2_28", "aarch64-manylinux_2_34", "aarch64-apple-darwin"
MARKERS = {
    LINUX: "sys_platform == 'linux' and platform_machine == 'x86_64'",
    ARM: "sys_platform == 'linux' and platform_machine == 'aarch64'",
    MAC: "sys_platform == 'darwin'",
}
PYTHONS = ("3.11", "3.12", "3.13")
SYSTEMS = {"cpu": (LINUX, ARM, MAC), "gpu": (LINUX, ARM)}


def main() -> None:
    for kind, systems in SYSTEMS.items():
        with tempfile.TemporaryDirectory() as folder:
            # uv prefers what its output file named before: there, the versions of the first target.
            output = Path(folder) / "lock.txt"
            versions = {
                (python, system): resolved(kind, python, system, output) for system in systems for python in PYTHONS
            }
        lines = list(merged(versions))
        (HERE / f"{kind}.txt").write_text("".join(f"{line}\n" for line in lines))
        print(f"requirements/{kind}.txt: {len(lines)} lines")


def resolved(kind: str, python: str, system: str, output: Path) -> dict[str, str]:
    """The version of every package that is needed with one Python on one system."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-config", "--no-annotate", "--no-header"]
    command += ["--python-version", python, "--python-platform", system, "--output-file", str(output)]
    command += ["--override", str(HERE / "cpu-overrides.txt")] if kind == "cpu" else []
    command += [word for extra in (f"mining-{kind}", *EXTRAS) for word in ("--extra", extra)]
    # torch has no builds for older systems of Apple's.
    environment = os.environ | {"MACOSX_DEPLOYMENT_TARGET": "14.0"}
    subprocess.run([*command, str(HERE.parent / "pyproject.toml")], check=True, env=environment)
    return dict(line.split("==") for line in output.read_text().splitlines())


def merged(versions: dict[tuple[str, str], dict[str, str]]) -> list[str]:
    """A line a package; where versions differ, one a Python, or one a Python and a system."""
    lines = []
    for name in sorted(set().union(*versions.values())):
        found = {target: names[name] for target, names in versions.items() if name in names}
        of_python = {python: {found[target] for target in found if target[0] == python} for python, _ in found}
        if len(set(found.values())) == 1:
            lines.append(f"{name}=={next(iter(found.values()))}")
        elif all(len(several) == 1 for several in of_python.values()):
            lines += [f"{name}=={one} ; python_version == '{python}'" for python, (one,) in of_python.items()]
        else:
            lines += [
                f"{name}=={version} ; python_version == '{python}' and {MARKERS[system]}"
                for (python, system), version in found.items()
            ]
    return lines


if __name__ == "__main__":
    main()

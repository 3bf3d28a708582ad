"""Studies: a YAML file of stores, models and measurements becomes commands of the project's own scripts.

Every entry of a study is one command: its section says which script, its keys are the script's flags. A name of
another entry stands for that entry's folder, and makes it come first.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import yaml

import schemas
from pipeline.runtime.errors import UserError
from pipeline.runtime.json_schema import first_error
from pipeline.runtime.yaml_file import described, read_yaml
from studies.orchestration.template import read_template


@dataclass(frozen=True)
class Section:
    """What the entries of one section are: a script's runs, each with a folder that a file in it finishes."""

    script: str
    last_file: str
    references: dict[str, tuple[str, ...]] = field(default_factory=dict)  # flag: the sections that it may name
    joined: tuple[str, ...] = ()  # flags that take their values as one word, with commas
    deepspeed: bool = False


SECTIONS = {
    "splits": Section("pipeline/split_texts.py", "splits.json"),
    "windows": Section("pipeline/make_windows.py", "manifest.json", {"tokenizer": ("windows",), "input": ("splits",)}),
    "language_models": Section(
        "training/train_lm.py",
        "config.json",
        {
            "train": ("windows",),
            "valid": ("windows",),
            "init": ("language_models",),
            "base": ("language_models",),
        },
        deepspeed=True,
    ),
    "negatives": Section(
        "pipeline/mine_negatives.py",
        "manifest.json",
        {"windows": ("windows",), "generator": ("language_models",)},
        joined=("context_lengths",),
    ),
    "imports": Section("pipeline/import_texts.py", "manifest.json", {"tokenizer": ("windows",)}),
    "energy_models": Section(
        "training/train_energy.py",
        "config.json",
        {
            "train": ("negatives", "imports"),
            "valid": ("negatives", "imports"),
            "init": ("language_models", "energy_models"),
        },
        joined=("train", "valid"),
        deepspeed=True,
    ),
    "energies": Section(
        "evaluation/score.py",
        "manifest.json",
        {"energy": ("energy_models", "language_models"), "store": ("negatives", "imports")},
    ),
    "bounds": Section(
        "evaluation/perplexity_bounds.py",
        "bounds.json",
        {
            "negatives": ("negatives",),
            "energies": ("energies",),
            "energy": ("energy_models",),
            "generator": ("language_models",),
            "language_model": ("language_models",),
        },
    ),
    "joint_samples": Section(
        "evaluation/sample_joint.py",
        "samples.parquet",
        {"energy": ("energy_models",), "generator": ("language_models",), "windows": ("windows",)},
    ),
    "grids": Section("evaluation/accuracy_grid.py", "grid.json"),
    "analyses": Section(
        "evaluation/analyses/{job}.py",
        "analysis.json",
        {
            "energy": ("energy_models",),
            "detector": ("energy_models",),
            "generator": ("language_models",),
            "windows": ("windows",),
            "negatives": ("negatives",),
            "store": ("negatives",),
            "energies": ("energies",),
            "samples": ("joint_samples",),
        },
    ),
    "detections": Section("evaluation/detect.py", "scores.parquet", {"energy": ("energy_models",)}),
    "human": Section(
        "evaluation/human/prepare.py",
        "study.sqlite",
        {
            "a": ("joint_samples",),
            "b": ("joint_samples",),
            "qualification": ("joint_samples",),
            "gold": ("windows", "joint_samples"),
        },
    ),
    "rehearsals": Section("evaluation/human/rehearse.py", "human.json", {"study": ("human",)}),
}
GRID_REFERENCES = {  # what a grid's keys may name
    "stores": ("negatives", "imports"),
    "energy": ("energy_models",),
    "likelihood": ("language_models",),
    "tfidf": ("negatives", "imports"),
    "valid": ("negatives", "imports"),
}
TEXTS = ("real", "generated")  # a grid's keys for files, which are not below the output
MODELS = {"language_models", "energy_models"}
FILES = {"detections", "human"}  # sections whose scripts write one file
PARTS = {"splits": "/", "joint_samples": ":"}  # what comes before a part of an entry: texts/train.jsonl, samples:chosen
ROOT = str(Path(__file__).parents[2])


def at_hand(path: str) -> str:
    """A file of the project, as it is spelled from here: a study can be started in any folder."""
    return path if os.path.isabs(path) or os.path.exists(path) else os.path.join(ROOT, path)


def study_file(name: str) -> str:
    """A file, or the name of a study that comes with the project: `demo`."""
    known = os.path.join(ROOT, "studies", f"{name}.yaml")
    return known if os.path.exists(known) and not os.path.isfile(name) else at_hand(name)


@dataclass(frozen=True)
class Job:
    """One command, the names of those that come before it, and the last file that it makes."""

    name: str
    command: list[str]
    needs: list[str]
    makes: str
    reads: dict[str, str] = field(default_factory=dict)  # files that are written for it, and what is in them
    resources: dict[str, Any] = field(default_factory=dict)  # of a cluster: see `resources` in the study's schema

    @property
    def shown(self) -> str:
        """As it can be copied and run alone."""
        return shlex.join(self.command)


WEIGHTS = {"language_models": 10, "energy_models": 10, "negatives": 5, "joint_samples": 5, "grids": 5}  # roughly, time
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


class Study:
    """A study file, with variables filled in, and where its results go."""

    def __init__(self, path: str, output: str, variables: dict[str, str] | None = None):
        self.path, self.output = path, output
        self.content: dict[str, Any] = read_template(path, schemas.read_schema("study"), variables or {})
        self.title = str(self.content.get("title", os.path.basename(path)))

    def check_names(self) -> None:
        """Entries are folders, files and words of commands: a name has nothing in it that means more than itself."""
        for section in SECTIONS:
            for name in self.content.get(section) or {}:
                if not isinstance(name, str) or not NAME.fullmatch(name) or ".." in name:
                    raise UserError(
                        f"{self.path}: {section}: {str(name)[:80]!r} cannot be a name: letters, digits, - _ . and +, "
                        f"not beginning with a dash or a dot"
                    )

    def jobs(self) -> list[Job]:
        """All commands in an order in which they can run; the findings and the report, of everything, are the last."""
        self.check_names()
        found = {
            job.name: job
            for section in SECTIONS
            for name, entry in (self.content.get(section) or {}).items()
            for job in self.parts(section, name, dict(entry or {}))
        }
        for name in set(self.content.get("language_models") or {}) & set(self.content.get("energy_models") or {}):
            raise UserError(f"{self.path}: a language model and an energy model are both called {name}")
        if not found:
            raise UserError(f"{self.path}: there is nothing to do in it")
        jobs = in_order(found.values(), self.path)
        findings, report = os.path.join(self.output, "findings"), os.path.join(self.output, "report.html")
        decide = ["python", at_hand("evaluation/findings.py"), "--input", self.output, "--output", findings]
        last_file = os.path.join(findings, "findings.json")
        jobs.append(Job("findings", decide, [job.name for job in jobs], last_file))
        command = [
            "python",
            at_hand("evaluation/report.py"),
            "--input",
            self.output,
            "--output",
            report,
            *flag_words("title", self.title),
        ]
        return [*jobs, Job("report", command, [job.name for job in jobs], report)]

    def parts(self, section: str, name: str, flags: dict[str, Any]) -> list[Job]:
        """The job of an entry; of one that is made in parts, those, and then the one that finishes it."""
        parts, resources = int(flags.pop("parts", 1)), self.resources(section, name)
        whole = replace(self.job(section, name, flags, resources), resources=resources)
        if parts == 1:
            return [whole]
        folder = self.folder(section, name)
        made = [
            replace(
                whole,
                name=f"{whole.name}.part{number}",
                command=[*whole.command, "--part", f"{number}/{parts}"],
                makes=os.path.join(folder, "command.json"),
            )
            for number in range(1, parts + 1)
        ]
        finish = {key: value for key, value in resources.items() if key in ("memory", "hours")}
        command, needs = [*whole.command, "--finish"], [*whole.needs, *(part.name for part in made)]
        return [*made, replace(whole, command=command, needs=needs, resources=finish)]

    def resources(self, section: str, name: str) -> dict[str, Any]:
        """What a job needs of a cluster: what is said of its section, and before that what is said of itself."""
        known = self.content.get("resources") or {}
        return dict(known.get(section) or {}) | dict(known.get(f"{section}/{name}") or {})

    def job(self, section: str, name: str, flags: dict[str, Any], resources: dict[str, Any] | None = None) -> Job:
        kind = SECTIONS[section]
        script = at_hand(kind.script.format(job=flags.pop("job", "")))
        needs: list[str] = []
        words = ["deepspeed", "--log_level", "error", script] if kind.deepspeed else ["python", script]
        nodes, gpus = ((resources or {}).get(what, 1) for what in ("nodes", "gpus"))
        if kind.deepspeed and nodes > 1:  # ranks find each other by what Slurm says
            words = ["srun", f"--nodes={nodes}", f"--ntasks-per-node={max(1, gpus)}", "python", script]
        ranks = flags.pop("ranks", None) if nodes == 1 else None
        if kind.deepspeed and ranks:
            # Trainings side by side meet at ports of their own.
            words[1:1] = [
                "--num_accelerators",
                str(ranks),
                "--master_port",
                str(20_000 + crc32(name.encode()) % 10_000),
            ]
        if section == "grids":
            return self.grid(name, flags)
        for flag, value in flags.items():
            values = value if isinstance(value, list) else [value]
            values = [self.resolved(flag, str(word), kind, needs) for word in values if word is not True]
            if value is False:
                continue
            if flag in kind.joined:
                values = [",".join(values)]
            words += [f"--{flag}"] if value is True else [word for one in values for word in flag_words(flag, one)]
        folder = self.folder(section, name)
        target = os.path.join(folder, kind.last_file) if section in FILES else folder
        return Job(f"{section}/{name}", [*words, "--output", target], needs, os.path.join(folder, kind.last_file))

    def resolved(self, flag: str, word: str, kind: Section, needs: list[str]) -> str:
        """A name of another entry becomes its folder; anything else is a path, or whatever the script takes."""
        for section in kind.references.get(flag, ()):
            name, sign, rest = word.partition(PARTS[section]) if section in PARTS else (word, "", "")
            if name in (self.content.get(section) or {}):
                needs.append(f"{section}/{name}")
                file = f"/{SECTIONS[section].last_file}" if section in FILES else ""
                return self.folder(section, name) + file + sign + rest
        return word

    def grid(self, name: str, entry: dict[str, Any]) -> Job:
        """A grid that is described here names entries; one in a file of its own has paths below the output."""
        reads: dict[str, str] = {}
        if "grid" in entry:
            path = at_hand(str(entry["grid"]))
            description = read_yaml(path, schemas.read_schema("grid"))
        else:
            description = entry | {kind: [self.placed("", one) for one in entry[kind]] for kind in ("columns", "rows")}
            if (wrong := first_error(description, schemas.read_schema("grid"))) is not None:
                raise UserError(f"{self.path}: grids.{name}.{described(wrong)}")
            text = yaml.safe_dump(description, sort_keys=False, allow_unicode=True, width=120)
            path = os.path.join(self.output, "grids", f"{name}-{crc32(text.encode()):08x}.yaml")
            reads = {path: text}
        made = {
            os.path.relpath(self.folder(section, entry), self.output): f"{section}/{entry}"
            for section in SECTIONS
            for entry in self.content.get(section) or {}
        }
        needs = [made[word] for word in words_in(description) if word in made]
        folder = self.folder("grids", name)
        command = [
            "python",
            at_hand(SECTIONS["grids"].script),
            "--grid",
            path,
            "--root",
            self.output,
            "--output",
            folder,
        ]
        command += ["--energies", os.path.join(self.output, "grids", "energies")]
        return Job(f"grids/{name}", command, sorted(set(needs)), os.path.join(folder, "grid.json"), reads)

    def placed(self, key: str, value: Any) -> Any:
        """What a grid has under a key, names of entries as their folders below the output."""
        if isinstance(value, dict):
            return {
                name: self.placed(name if name in TEXTS or not key else key, inner) for name, inner in value.items()
            }
        if isinstance(value, list):
            return [self.placed(key, inner) for inner in value]
        if not isinstance(value, str):
            return value
        if key in TEXTS:
            return value if "://" in value else os.path.abspath(value)
        for section in GRID_REFERENCES.get(key, ()):
            if value in (self.content.get(section) or {}):
                return os.path.relpath(self.folder(section, value), self.output)
        return value

    def folder(self, section: str, name: str) -> str:
        return os.path.join(self.output, "models" if section in MODELS else section, name)


def flag_words(flag: str, value: str) -> list[str]:
    """A flag and its value; one that begins with a dash could pass for a flag of its own, even for one of Beam's."""
    return [f"--{flag}={value}"] if value.startswith("-") else [f"--{flag}", value]


def words_in(value: Any) -> Iterator[str]:
    """All strings in a value of YAML."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from words_in(inner)


def rule_names(jobs: Iterable[str]) -> dict[str, str]:
    """A name that Snakemake takes for each job, none twice: a-b and a_b are two jobs."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for job in jobs:
        plain = name = re.sub(r"\W", "_", job, flags=re.ASCII)
        number = 1
        while name in taken:
            number += 1
            name = f"{plain}_{number}"
        taken.add(name)
        names[job] = name
    return names


def priorities(jobs: Sequence[Job]) -> dict[str, int]:
    """How much comes after each job, on the longest way to the end: what keeps most waiting comes first."""
    after: dict[str, int] = {job.name: 0 for job in jobs}
    for job in reversed(jobs):
        weight = WEIGHTS.get(job.name.partition("/")[0], 1)
        for name in job.needs:
            after[name] = max(after[name], after[job.name] + weight)
    return after


def in_order(jobs: Iterable[Job], path: str) -> list[Job]:
    """Each after all that it needs."""
    waiting, ordered = list(jobs), list[Job]()
    there: set[str] = set()
    while waiting:
        ready = [job for job in waiting if there.issuperset(job.needs)]
        if not ready:
            raise UserError(f"{path}: {waiting[0].name} needs itself, by way of what it is made from")
        first = ready[0]
        waiting.remove(first)
        ordered.append(first)
        there.add(first.name)
    return ordered

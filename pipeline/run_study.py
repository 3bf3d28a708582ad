"""Runs a study: everything from text to a report, as a graph of the project's own commands.

  python pipeline/run_study.py --study studies/demo.yaml --output demo
  python pipeline/run_study.py --study studies/demo.yaml --output demo --dry_run     # the commands, in order

Each job is one command of a script, which can be copied and run alone. What is done is not done again: a killed or
interrupted study continues when the same command is given again, and a changed entry is made anew with all that follows
from it (its script may ask for another folder first). Snakemake runs the jobs; every further option is Snakemake's:
--executor slurm, --profile cluster, --keep-going.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence

import yaml

from pipeline import files
from pipeline.command_line import Parser
from pipeline.errors import UserError, exit_with
from pipeline.study import ROOT, Job, Study

SNAKEFILE = os.path.join(ROOT, "pipeline", "Snakefile")
# Our scripts hold their own locks and finish their own files. Snakemake decides by time alone; changed commands are
# noticed here, before it starts.
ALWAYS = ["--nolock", "--rerun-incomplete", "--rerun-triggers", "mtime", "--quiet", "all"]


def main(arguments: Sequence[str] | None = None) -> int:
    options, rest = parse(arguments)
    study = Study(options.study, options.output, options.set)
    jobs = study.jobs()
    if options.dry_run:
        for job in jobs:
            print(job.shown)
        return 0
    left = forget_stale(study, jobs)
    print(f"{study.title}: {len(jobs)} jobs, {len(jobs) - len(left)} of them done before", flush=True)
    start = time.monotonic()
    if left:
        run(options, rest, study)
    missing = [job for job in jobs if not os.path.exists(marker(study.output, job))]
    if missing:
        failed = next(job for job in missing if not set(job.needs) & {job.name for job in missing})
        raise UserError(
            f"{failed.name} did not end well, {len(missing)} of {len(jobs)} jobs are left; its command: {failed.shown}"
        )
    print(f"\n{jobs[-1].makes}: written, {(time.monotonic() - start) / 60:.1f} minutes for {len(left)} jobs")
    return 0


def parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = Parser(__doc__)
    parser.add_argument("--study", required=True, metavar="FILE", help="what is made from what; studies/ has some")
    parser.add_argument("--output", required=True, metavar="DIR", help="where stores, models and results go")
    parser.add_argument("--dry_run", action="store_true", help="print the commands, in order, and start none")
    parser.add_argument("--cores", type=int, default=1, metavar="N", help="jobs at the same time (default: 1)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="what ${NAME} in the study stands for"
    )
    options, rest = parser.parse_known_args(arguments)
    for pair in options.set:
        if "=" not in pair:
            raise UserError(f"--set {pair}: NAME=VALUE is needed")
    options.set = dict(pair.split("=", 1) for pair in options.set)
    return options, rest


def marker(output: str, job: Job) -> str:
    """A file that says that a job is done, and by which command."""
    return os.path.join(output, ".done", job.name.replace("/", "."))


def forget_stale(study: Study, jobs: list[Job]) -> list[Job]:
    """Removes markers of jobs whose command has changed or whose result is gone; returns what is left to do."""
    left: list[Job] = []
    for job in jobs:
        path = marker(study.output, job)
        done = os.path.exists(path) and files.exists(job.makes) and files.read(path).decode() == job.shown
        if not done or set(job.needs) & {other.name for other in left}:
            files.remove(path)
            left.append(job)
    return left


def run(options: argparse.Namespace, rest: list[str], study: Study) -> None:
    config = [f"study={os.path.abspath(options.study)}", f"output={options.output}"]
    if options.set:
        config.append(f"variables={yaml.safe_dump(options.set, default_flow_style=True, width=10**6).strip()}")
    command = [sys.executable, "-m", "snakemake", "--snakefile", SNAKEFILE, "--cores", str(options.cores)]
    # With the interpreter and the launcher that belong to the one that runs this.
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")
    subprocess.run([*command, *ALWAYS, *rest, "--config", *config], env=os.environ | {"PATH": path}, check=False)


if __name__ == "__main__":
    exit_with(main)

"""Runs a study: everything from text to a report, as a graph of the project's own commands.

  python studies/run_study.py --study studies/demo.yaml --output demo
  python studies/run_study.py --study studies/demo.yaml --output demo --dry_run     # the commands, in order

Each job is one command of a script, which can be copied and run alone. What is done is not done again: a killed or
interrupted study continues when the same command is given again, and a changed entry is made anew with all that follows
from it (its script may ask for another folder first). Snakemake runs the jobs; every further option is Snakemake's:
--executor slurm, --profile cluster, --keep-going.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil
from tqdm import tqdm

from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.progress import Lines, in_time, wants_lines
from pipeline.runtime.settings import Settings, read_known_settings, setting
from studies.orchestration.study import ROOT, Job, Study, study_file

SNAKEFILE = os.path.join(ROOT, "studies", "orchestration", "Snakefile")
BAR = "{n_fmt} of {total_fmt} jobs, {elapsed} {postfix}"
LAST_WORDS = 8  # lines that a job's output ends with: our scripts say there what they made
WORTH_SAYING = 60  # seconds that are left at least, where there are jobs of kinds that have not been seen yet
# Our scripts hold their own locks and finish their own files. Snakemake decides by time alone; changed commands are
# noticed here, before it starts.
ALWAYS = ["--nolock", "--rerun-incomplete", "--rerun-triggers", "mtime", "--quiet", "all"]


@dataclass(frozen=True, kw_only=True)
class VariableSettings(Settings):
    """What a study's variables and values stand for."""

    set: tuple[str, ...] = setting((), metavar="NAME=VALUE", help="what ${NAME} in the study stands for")

    def check(self) -> None:
        for pair in self.set:
            if "=" not in pair:
                raise UserError(f"--set {pair}: NAME=VALUE is needed")

    @property
    def variables(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for pair in self.set)


@dataclass(frozen=True, kw_only=True)
class StudySettings(VariableSettings):
    """Which study is run, and where its results go."""

    study: str = setting(metavar="FILE", help="what is made from what: a file, or demo, mini, paper")
    output: str = setting(metavar="DIR", help="where stores, models and results go")
    dry_run: bool = setting(False, help="print the commands, in order, and start none")
    cores: int = setting(1, metavar="N", help="jobs at the same time (default: 1)", least=1)

    def check(self) -> None:
        super().check()
        if not self.output.isprintable() or set("{}") & set(self.output):
            raise UserError(
                f"--output {self.output!r}: without braces, line breaks and the like, which Snakemake reads"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    settings, rest = read_known_settings(StudySettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    if settings.dry_run:
        for job in Study(study_file(settings.study), settings.output, settings.variables).jobs():
            print(job.shown)
    else:
        run_study(settings, rest)
    return 0


def run_study(settings: StudySettings, snakemake: Sequence[str] = ()) -> None:
    """Runs what is left of a study; a job that does not end well is named, with its last words."""
    study = Study(study_file(settings.study), settings.output, settings.variables)
    jobs = study.jobs()
    left = forget_stale(study, jobs)
    print(f"{study.title}: {len(jobs)} jobs, {len(jobs) - len(left)} of them done before", flush=True)
    start = time.monotonic()
    if left:
        run(settings, snakemake, study, left)
    missing = [job for job in jobs if not os.path.exists(marker(study.output, job))]
    if missing:
        # Those that began and did not end; if there is none, one that could have begun.
        began = [job for job in missing if os.path.exists(log_of(study.output, job))]
        failed = (began or [job for job in missing if not set(job.needs) & {job.name for job in missing}])[0]
        print(last_lines(log_of(study.output, failed), 20), file=sys.stderr)
        raise UserError(
            f"{failed.name} did not end well, {len(missing)} of {len(jobs)} jobs are left; its output is in "
            f"{log_of(study.output, failed)}, its command: {failed.shown}"
        )
    print(f"\n{jobs[-1].makes}: written, {(time.monotonic() - start) / 60:.1f} minutes for {len(left)} jobs")


def marker(output: str, job: Job) -> str:
    """A file that says that a job is done, and by which command."""
    return os.path.join(output, ".done", job.name.replace("/", "."))


def log_of(output: str, job: Job) -> str:
    """What a job said."""
    return os.path.join(output, "logs", f"{job.name.replace('/', '.')}.log")


def line_of(output: str, job: Job) -> str:
    """A job in the words of a shell, every one of them quoted: it ends with a marker that says which command it was."""
    log, mark, folder = (shlex.quote(path) for path in (log_of(output, job), marker(output, job), f"{output}/logs"))
    return f"mkdir -p {folder} && {job.shown} > {log} 2>&1 && printf %s {shlex.quote(job.shown)} > {mark}"


def packed(study: str, settings: "StudySettings") -> str:
    """What the Snakefile has to know, in letters and digits alone.

    Snakemake reads values as YAML, and hands them on from shell to shell where it has jobs run elsewhere.
    """
    content = {"path": study, "output": settings.output, "variables": settings.variables}
    return f"x{json.dumps(content).encode().hex()}"


def unpacked(text: str) -> dict[str, Any]:
    return dict(json.loads(bytes.fromhex(text[1:])))


def cluster_resources(needed: dict[str, Any]) -> dict[str, Any]:
    """A job's resources in the words of Snakemake and its executors."""
    words: dict[str, Any] = {}
    if gpus := needed.get("gpus"):
        words["gres"] = f"gpu:{gpus}"
    if nodes := needed.get("nodes"):
        words |= {"nodes": nodes, "tasks": nodes * max(1, needed.get("gpus", 1))}
    if memory := needed.get("memory"):
        words["mem_mb"] = round(1000 * memory)
    if hours := needed.get("hours"):
        words["runtime"] = round(60 * hours)
    return words


def executor_options(given: Sequence[str]) -> list[str]:
    """What an executor has to be told so that it ends: without accounting, Slurm's asks for ever how its jobs do."""
    text = " ".join(given)
    if "--executor slurm" not in text.replace("=", " ") or "--slurm-status-command" in text:
        return []
    return [] if shutil.which("sacct") and has_accounting() else ["--slurm-status-command", "squeue"]


def has_accounting() -> bool:
    return subprocess.run(["sacct", "-n", "-j", "0"], capture_output=True).returncode == 0


def last_lines(path: str, count: int) -> str:
    """The end of a log, without what would be drawn over it on a screen."""
    if not os.path.exists(path):
        return ""
    lines = files.read(path).decode(errors="replace").splitlines()
    return "\n".join(f"    {line.rstrip()}" for line in [line for line in lines if line.strip()][-count:])


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


def run(settings: StudySettings, snakemake: Sequence[str], study: Study, left: list[Job]) -> None:
    """Runs what is left and shows it: which jobs are at work, and of each that ends, how long it took and what came."""
    config = f"packed={packed(os.path.abspath(study.path), settings)}"
    command = [sys.executable, "-m", "snakemake", "--snakefile", SNAKEFILE, "--cores", str(settings.cores)]
    # With the interpreter and the launcher that belong to the one that runs this.
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    # Jobs side by side share the processors: each with threads for all of them would slow small networks tenfold.
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // settings.cores))} if settings.cores > 1 else {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C does: the jobs end too, and continue next time
    for job in left:
        files.remove(log_of(study.output, job))
        for file, text in job.reads.items():
            files.put(file, text.encode())
    process = subprocess.Popen(
        [*command, *ALWAYS, *snakemake, *executor_options(snakemake), "--config", config],
        env=threads | os.environ | {"PATH": path},
    )
    try:
        watch(process, study, left, settings.cores)
    finally:
        if process.poll() is None:
            end_family(process.pid)
            process.wait()


def end_family(pid: int) -> None:
    """Ends Snakemake and all that it started: by itself it would wait for its jobs."""
    family = [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.terminate()
    for member in psutil.wait_procs(family, timeout=10)[1]:
        with suppress(psutil.NoSuchProcess):
            member.kill()


def watch(process: "subprocess.Popen[bytes]", study: Study, left: list[Job], cores: int) -> None:
    """A line for every job that ends, with its last words; below, on a terminal, what those at work say now.

    Without a terminal that is a line a minute.
    """
    waiting, started, times = list(left), dict[str, float](), dict[str, list[float]]()
    lines = Lines("jobs")
    with tqdm(total=len(left), unit="job", dynamic_ncols=True, disable=None, bar_format=BAR) as bar:
        while waiting:
            ended = process.poll() is not None
            now = time.monotonic()
            for job in list(waiting):
                if job.name not in started and os.path.exists(log_of(study.output, job)):
                    started[job.name] = now
                if os.path.exists(marker(study.output, job)):
                    waiting.remove(job)
                    bar.update()
                    took = now - started.get(job.name, now)
                    times.setdefault(kind_of(job), []).append(took)
                    bar.write(f"[{len(left) - len(waiting)} of {len(left)}] {job.name}, {took:.0f} s")
                    bar.write(last_lines(log_of(study.output, job), LAST_WORDS))
            at_work = [job for job in waiting if job.name in started]
            rest = time_left(waiting, {job.name: now - started[job.name] for job in at_work}, times, cores)
            words = "; ".join(f"{job.name} {says(study, job)}" for job in at_work)
            sure = all(kind_of(job) in times for job in waiting)
            if rest is not None and (sure or rest >= WORTH_SAYING):
                words = f"{'about' if sure else 'more than'} {in_time(rest)} left; {words}"
            bar.set_postfix_str(words, refresh=True)
            if bar.disable and wants_lines():
                lines.show(study.title, len(left) - len(waiting), len(left), words)
            if ended:
                break
            time.sleep(0.3)


def kind_of(job: Job) -> str:
    """Which section of the study it stands in: jobs of a kind take about as long as each other."""
    return job.name.partition("/")[0]


def time_left(
    waiting: Sequence[Job], at_work: dict[str, float], times: dict[str, list[float]], cores: int
) -> float | None:
    """Seconds until all has ended, from what jobs of the same kind took, or all jobs; None before one has ended.

    Those at work have so many seconds behind them. As many as there are cores run side by side.
    """
    known = [took for some in times.values() for took in some]
    if not known:
        return None
    mean = sum(known) / len(known)
    rest = 0.0
    for job in waiting:
        some = times.get(kind_of(job))
        rest += max(0.0, (sum(some) / len(some) if some else mean) - at_work.get(job.name, 0.0))
    return rest / max(1, min(cores, len(waiting)))


def says(study: Study, job: Job) -> str:
    return last_lines(log_of(study.output, job), 1).strip()[:60]


if __name__ == "__main__":
    exit_with(main)

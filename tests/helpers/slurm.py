"""A real Slurm cluster of one node on this machine, from Debian's packages, without accounting and without systemd."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.helpers.commands import free_port
from tests.helpers.processes import started

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "munged")
MUNGE = Path("/run/munge")  # the folder of the socket through which Slurm's programs know each other


def why_not() -> str | None:
    """Why there can be no cluster here; None where there can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"Slurm is not installed ({', '.join(missing)})"
    return None if getpass.getuser() == "root" else "Slurm is started as root here"


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which `sbatch`, `squeue` and the like speak to the cluster, which ends with the block."""
    folder.mkdir()
    name = socket.gethostname().partition(".")[0]
    configuration = folder / "slurm.conf"
    configuration.write_text(
        f"""ClusterName=test
SlurmctldHost={name}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SchedulerParameters=sched_interval=1
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/d.log
NodeName={name} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
    )
    # Snakemake's job steps forget most of Slurm's variables, also of where an unusual configuration is.
    (folder / "bin").mkdir()
    (folder / "bin/srun").write_text(f'#!/bin/sh\nSLURM_CONF={configuration} exec {shutil.which("srun")} "$@"\n')
    (folder / "bin/srun").chmod(0o755)
    path = f"{folder}/bin:{os.environ['PATH']}"
    environment = os.environ | {"SLURM_CONF": str(configuration), "PATH": path}
    with ExitStack() as running:
        if not is_trusted():
            subprocess.run(["install", "-d", "-o", "munge", "-g", "munge", "-m", "755", str(MUNGE)], check=True)
            command = ["runuser", "-u", "munge", "--", "munged", "--foreground", "--force"]
            running.enter_context(started(command, cold=True, stderr=subprocess.DEVNULL))
            await_(is_trusted)
        for program in ("slurmctld", "slurmd"):
            command = [program, "-D", "-f", str(configuration)]
            running.enter_context(started(command, cold=True, env=environment, stderr=subprocess.DEVNULL))
        await_(lambda: "idle" in said(["sinfo", "-h", "-o", "%T"], environment))
        try:
            yield environment
        finally:
            subprocess.run(["scancel", "--user=root", "--signal=KILL"], env=environment, capture_output=True)


def is_trusted() -> bool:
    return subprocess.run(["munge", "--no-input"], capture_output=True).returncode == 0


def said(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout


def await_(sign, seconds: float = 300.0) -> None:
    """Waits for something that takes a moment on a calm machine, and much longer on a busy one."""
    end = time.monotonic() + seconds
    while not sign():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.2)

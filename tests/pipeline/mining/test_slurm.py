"""A store mined as an array of parts by a real Slurm: one of them killed, all of it finished, and the local digest."""

import sys

import pytest

from pipeline.stores.manifest import read_manifest
from pipeline.verify_store import verify
from tests.helpers import slurm
from tests.helpers.commands import command, shard_bytes
from tests.helpers.mining import arguments, mine

pytestmark = [pytest.mark.slow, pytest.mark.skipif(slurm.why_not() is not None, reason=str(slurm.why_not()))]


def test_an_array_of_parts_makes_the_local_store_though_one_is_killed(windows, generator, undisturbed, tmp_path):
    output = tmp_path / "store"
    words = command("pipeline/mine_negatives.py", *arguments(windows, generator, output, "--negatives 2"))
    script = tmp_path / "job.sh"
    # The second part is killed when it begins; the others end.
    script.write_text(
        f"""#!/bin/sh
export PATH=/usr/bin:/bin
test $SLURM_ARRAY_TASK_ID = 2 && test -z "$AGAIN" && kill -KILL $$
exec {" ".join(words)} --part $SLURM_ARRAY_TASK_ID/3
"""
    )
    assert sys.executable in script.read_text()
    with slurm.cluster(tmp_path / "slurm") as environment:

        def submit(array: str, **more: str) -> None:
            given = ["sbatch", "--parsable", f"--array={array}", f"--output={tmp_path}/part-%a.log", str(script)]
            number = slurm.said(given, environment | more).strip()
            assert number
            slurm.await_(lambda: not slurm.said(["squeue", "-h", "-j", number], environment), seconds=600)

        submit("1-3")
        logs = {path.name: path.read_text() for path in tmp_path.glob("part-*.log")}
        assert not (output / "manifest.json").exists(), logs
        assert sorted(name[:5] for name in shard_bytes(str(output))) == ["00000", "00002", "00003", "00005"], logs
        submit("2", AGAIN="yes")
    assert mine(windows, generator, output, flags="--negatives 2 --finish") == 0
    assert read_manifest(str(output)).digest == read_manifest(undisturbed).digest
    assert shard_bytes(str(output)) == shard_bytes(undisturbed)
    assert verify(str(output)) == []

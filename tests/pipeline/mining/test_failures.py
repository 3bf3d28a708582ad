"""What fails: a device, an engine, a shard; each injected, each with what the run makes of it."""

import os
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

from pipeline import mine_negatives
from pipeline.engines import failures
from pipeline.engines.failures import is_broken_device, missing_accelerator
from pipeline.mining import making, pool
from pipeline.models.conv_lm import ConvConfig
from pipeline.models.model_folder import quiet
from pipeline.runtime.errors import ResumableError, UserError
from pipeline.stores.reader import Store
from pipeline.text.builtin_corpora import ALPHABET
from pipeline.text.tokenizer import character_tokenizer
from tests.helpers.commands import shard_bytes
from tests.helpers.mining import arguments, mine

ECC = "CUDA error: uncorrectable ECC error encountered"


class Engine:
    """A real generator that fails when it is told to, and counts its starts."""

    starts = 0
    fail = staticmethod(lambda call: None)
    calls = 0

    def __init__(self, real):
        self.real = real
        type(self).starts += 1

    def with_sampling(self, sampling):
        return self

    def sample_and_score(self, *request):
        type(self).calls += 1
        self.fail(self.calls)
        return self.real.sample_and_score(*request)

    def close(self):
        self.real.close()


@pytest.fixture
def engine(monkeypatch):
    """Every engine of a run is such a one."""
    opened = pool.opened
    monkeypatch.setattr(pool, "opened", lambda *given: Engine(opened(*given)))
    monkeypatch.setattr(Engine, "starts", 0)
    monkeypatch.setattr(Engine, "calls", 0)
    yield Engine
    pool.close_all()


def failing(monkeypatch, fail) -> None:
    monkeypatch.setattr(Engine, "fail", staticmethod(fail))


@pytest.mark.parametrize(
    ("error", "broken"),
    [
        (RuntimeError(ECC), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), True),
        (RuntimeError("NCCL error: unhandled system error"), True),
        (type("EngineDeadError", (Exception,), {})("EngineCore encountered an issue"), True),
        (RuntimeError("index out of range"), False),
        (UserError("model: its logits are not finite numbers"), False),
        (MemoryError(), False),
    ],
)
def test_a_broken_device_is_known_by_what_it_says(error, broken):
    assert is_broken_device(error) is broken
    outer = ValueError("while sampling")
    outer.__cause__ = error
    assert is_broken_device(outer) is broken


def test_a_broken_device_ends_the_run_at_once_and_loses_nothing(
    engine, monkeypatch, windows, generator, undisturbed, tmp_path
):
    def fail(call):
        if call > 2:
            raise RuntimeError(ECC)

    failing(monkeypatch, fail)
    with pytest.raises(ResumableError, match=r"the device or its engine is broken .*uncorrectable ECC.*same command"):
        mine(windows, generator, tmp_path / "store", flags="--negatives 2")
    assert engine.starts == 1
    assert not (tmp_path / "store/rejects").exists()
    failing(monkeypatch, lambda call: None)
    assert mine(windows, generator, tmp_path / "store", flags="--negatives 2") == 0
    assert shard_bytes(str(tmp_path / "store")) == shard_bytes(undisturbed)


BROKEN = f"""
from pipeline.engines.failures import end_if_broken
end_if_broken(RuntimeError("{ECC}"), replaced=True)
print("still here")
"""


def test_on_a_fleet_it_ends_the_workers_process():
    ended = subprocess.run([sys.executable, "-c", BROKEN], capture_output=True, text=True, cwd=os.getcwd())
    assert ended.returncode == failures.BROKEN_DEVICE
    assert "still here" not in ended.stdout
    assert "uncorrectable ECC" in ended.stderr


def test_an_engine_that_cannot_start_fails_the_run_with_its_reason(monkeypatch, windows, generator, tmp_path):
    starts = []

    def opened(*given):
        starts.append(given)
        raise RuntimeError("no room for the weights\nand much advice")

    monkeypatch.setattr(pool, "opened", opened)
    with pytest.raises(ResumableError, match=r"forwards: its engine cannot start \(no room for the weights\)"):
        mine(windows, generator, tmp_path / "store")
    assert len(starts) == 1
    assert not (tmp_path / "store/rejects").exists()


def test_a_shard_that_fails_once_is_made_by_another_engine(
    engine, monkeypatch, windows, generator, undisturbed, tmp_path
):
    def fail(call):
        if call == 3:
            raise RuntimeError("a passing fault")

    failing(monkeypatch, fail)
    assert mine(windows, generator, tmp_path / "store", flags="--negatives 2") == 0
    assert engine.starts == 2
    assert shard_bytes(str(tmp_path / "store")) == shard_bytes(undisturbed)


def test_one_that_fails_on_two_engines_is_put_aside(engine, monkeypatch, windows, generator, tmp_path, capsys):
    def fail(call):
        if call in (3, 4):
            raise RuntimeError("this one never works")

    failing(monkeypatch, fail)
    assert mine(windows, generator, tmp_path / "store", flags="--negatives 2") == 1
    assert engine.starts == 3  # two for that shard, and one for the rest
    assert os.listdir(tmp_path / "store/rejects") == ["shard-00002.json"]
    assert len(os.listdir(tmp_path / "store/shards")) == 5
    assert "RuntimeError: this one never works" in capsys.readouterr().err


def test_a_few_in_a_row_stop_the_run(engine, monkeypatch, windows, generator, tmp_path):
    def fail(call):
        raise RuntimeError("nothing works")

    failing(monkeypatch, fail)
    stopped = pytest.raises(ResumableError, match="3 of 6 shards could not be made, the last because of nothing works")
    with stopped:
        mine(windows, generator, tmp_path / "store")
    assert engine.calls == 2 * 3


def test_a_share_of_them_stops_the_run_too(engine, monkeypatch, windows, generator, tmp_path):
    """Every second shard fails, on both starts of its engine: never three in a row, but more than a few."""
    monkeypatch.setattr(making, "IN_A_ROW", 2)

    def fail(call):
        if call % 3:
            raise RuntimeError("every second one fails")

    failing(monkeypatch, fail)
    with pytest.raises(ResumableError, match="3 of 6 shards could not be made"):
        mine(windows, generator, tmp_path / "store", flags="--max_reject_fraction 0.4")


def test_an_accelerator_that_is_not_there_is_named_with_driver_and_cuda(windows, generator, tmp_path, monkeypatch):
    """No GPU can be had here: nvidia-smi is a stand-in."""
    script = tmp_path / "nvidia-smi"
    script.write_text("#!/bin/sh\necho 535.104.05\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UserError, match=r"sees no CUDA device: PyTorch .*, the driver is 535.104.05: CUDA 13 needs"):
        mine(windows, generator, tmp_path / "store", flags="--accelerator type:nvidia-l4")
    assert not (tmp_path / "store").exists()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert missing_accelerator("type:nvidia-l4") is None


def test_what_vllm_cannot_run_is_refused_before_anything_is_submitted(windows, tmp_path):
    config = ConvConfig(vocab_size=14, embedding_size=8, hidden_size=8, layers=2, bos_token_id=13, eos_token_id=13)
    with quiet():
        AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "conv")
    character_tokenizer(ALPHABET).save(str(tmp_path / "conv"))
    given = arguments(windows, str(tmp_path / "conv"), tmp_path / "store", "--engine vllm")
    with pytest.raises(UserError, match="vLLM has no residual_ebm_conv models: use --engine torch"):
        mine_negatives.main(given)
    assert not (tmp_path / "store").exists()


def test_a_shard_in_progress_keeps_its_pieces(engine, monkeypatch, windows, generator, undisturbed, tmp_path):
    """Four windows a piece, killed in the fourth: the next run generates for the rest alone."""
    monkeypatch.setattr(making, "windows_in_a_piece", lambda *work: 4)
    assert mine(windows, generator, tmp_path / "whole", flags="--negatives 2") == 0
    whole, calls = Store(str(tmp_path / "whole")).manifest, Engine.calls

    def fail(call):
        if call == calls + 4:
            raise KeyboardInterrupt

    failing(monkeypatch, fail)
    with pytest.raises(KeyboardInterrupt):
        mine(windows, generator, tmp_path / "store", flags="--negatives 2")
    kept = sorted(path.name for path in (tmp_path / "store/.work/pieces/00000").iterdir())
    assert kept == ["0000000.parquet", "0000004.parquet", "0000008.parquet"]
    failing(monkeypatch, lambda call: None)
    before = Engine.calls
    assert mine(windows, generator, tmp_path / "store", flags="--negatives 2") == 0
    assert Engine.calls - before == calls - 3
    assert Store(str(tmp_path / "store")).manifest.digest == whole.digest
    assert not (tmp_path / "store/.work").exists()


def test_a_damaged_piece_is_made_again(engine, monkeypatch, windows, generator, tmp_path):
    monkeypatch.setattr(making, "windows_in_a_piece", lambda *work: 4)
    assert mine(windows, generator, tmp_path / "whole") == 0

    def fail(call):
        if call == before + 4:
            raise KeyboardInterrupt

    before = Engine.calls
    failing(monkeypatch, fail)
    with pytest.raises(KeyboardInterrupt):
        mine(windows, generator, tmp_path / "store")
    piece = tmp_path / "store/.work/pieces/00000/0000004.parquet"
    piece.write_bytes(piece.read_bytes()[:-50])
    failing(monkeypatch, lambda call: None)
    assert mine(windows, generator, tmp_path / "store") == 0
    assert shard_bytes(str(tmp_path / "store")) == shard_bytes(str(tmp_path / "whole"))

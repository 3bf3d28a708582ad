import re

import pytest

from pipeline.runtime.errors import UserError
from training import plan_memory


def table(capsys, flags: str) -> dict[str, list[float]]:
    """Of every line its numbers, in GiB."""
    assert plan_memory.main(flags.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    found = (re.match(r"(\d(?:, offload)?)\s+(.*)", line) for line in lines if line.endswith("GiB"))
    return {match[1]: [float(number) for number in re.findall(r"([\d.,]+) GiB", match[2])] for match in found if match}


def test_a_large_model_on_many_gpus(capsys):
    """By hand: 354.3 million parameters; 2 bytes each, and 18 more divided by 64 GPUs."""
    found = table(capsys, "--preset bit-large --gpus 64")
    assert list(found) == ["0", "1", "2", "2, offload", "3", "3, offload"]
    parameters = 354.3e6 / 2**30
    assert found["0"][0] == pytest.approx(20 * parameters, abs=0.02)
    assert found["1"][0] == pytest.approx((4 + 16 / 64) * parameters, abs=0.02)
    assert found["2"][0] == pytest.approx((2 + 18 / 64) * parameters, abs=0.02)
    assert found["2, offload"][0] == pytest.approx(2 * parameters, abs=0.02)
    assert found["3"][0] < found["2"][0]
    for states, activations, together, _ in found.values():
        assert states + activations == pytest.approx(together, abs=0.02)


@pytest.mark.slow
def test_activations_are_about_34_bytes_a_unit_a_layer(capsys):
    """Korthikanti and others 2022, without the attention matrix; dropout's masks (3 bytes) are not there either."""
    (_, activations, *_), *_ = table(capsys, "--preset bit-large --zero 2").values()
    expected = 24 * 20 * 2 * 161 * 1024 * 34 / 2**30
    assert 0.8 * expected < activations < 1.05 * expected
    (_, twice, *_), *_ = table(capsys, "--preset bit-large --zero 2 --micro_batch_size 40").values()
    assert twice == pytest.approx(2 * activations, abs=0.02)
    (_, checkpointed, *_), *_ = table(capsys, "--preset bit-large --zero 2 --gradient_checkpointing").values()
    assert 24 * 20 * 2 * 161 * 1024 * 2 / 2**30 < checkpointed < activations / 5


@pytest.mark.parametrize("preset", ["linear", "bilstm-tiny", "unit-nano", "transf-nano", "conv-tiny", "ralm-tiny"])
def test_every_kind_of_model_can_be_planned(capsys, preset):
    assert table(capsys, f"--preset {preset} --vocabulary 100")


def test_what_cannot_be_planned_is_named():
    for flags, message in (
        ("--preset encoder", "its shape is that of the model to start from"),
        ("--preset bit-tall", "--preset bit-tall: there are"),
        ("--preset linear --gpus 12", "nodes of 8 do not make that number"),
        ("--preset linear --gpus 0", "--gpus 0: at least 1"),
        ("--preset linear --gradient_checkpointing", "linear has no blocks"),
    ):
        with pytest.raises(UserError, match=message):
            plan_memory.main(flags.split())

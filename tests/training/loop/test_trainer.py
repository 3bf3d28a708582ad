"""What happens at which step of a run, on a small model in this process."""

import math
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from torch.nn import functional as F

from pipeline.runtime.errors import UserError
from tests.helpers.commands import ROOT, Stores
from tests.helpers.trainings import losses
from training import train_lm
from training.data.mixture import Mixture
from training.language.task import LanguageModelling
from training.loop import checkpoints, ranks, trainer
from training.loop.plan import TrainingPlan, read_deepspeed_config
from training.loop.trainer import NotFinite, Trainer, adam_options, largest_divisor, own_steps
from training.train_lm import LanguageModelSettings, Sources

STEPS = {"max_steps": 6, "validate_every": 3, "save_every": 2, "batch_size": 8, "micro_batch_size": 8}
STEPS |= {"deepspeed_config": str(ROOT / "training/zero/stage0.json")}


@dataclass
class Witness(LanguageModelling):
    """Language modelling that notes what it is asked for, and with which checkpoints on the disk."""

    output: str = ""
    spoiled: int | None = None  # the step whose loss is no number
    events: list[tuple[str, int | None]] = field(default_factory=list)

    def note(self, event: str) -> None:
        mark = checkpoints.newest(self.output)
        self.events.append((event, mark.step if mark else None))

    def loss(self, network, batch):
        self.note("train")
        loss = super().loss(network, batch)
        return loss * math.nan if sum(name == "train" for name, _ in self.events) == self.spoiled else loss

    def measure(self, sums):
        self.note("validate")
        return super().measure(sums)

    def save(self, folder, state, notes):
        self.note("keep")
        super().save(folder, state, notes)


def prepare(
    stores: Stores, output: Path, spoiled: int | None = None, **changes: int | str
) -> tuple[Witness, TrainingPlan]:
    settings = LanguageModelSettings(
        preset="transf-nano",
        train=stores.train.path,
        valid=stores.valid.path,
        output=str(output),
        **STEPS | changes,
    )
    ranks.start()
    config = train_lm.choose_architecture(settings, stores.train, Sources())
    model = train_lm.build(config, 0, Sources())
    task = train_lm.task_of(model, "left_to_right", stores.train, stores.valid, {})
    plan = train_lm.plan_of(settings, stores.train)
    return Witness(**vars(task), output=str(output), spoiled=spoiled), plan


def test_steps_validations_and_checkpoints_come_in_their_order(stores, tmp_path):
    task, plan = prepare(stores, tmp_path)
    Trainer(task, plan).train()
    assert task.events == [
        ("train", None),
        ("train", None),
        ("train", 2),
        ("validate", 2),
        ("keep", 2),
        ("train", 2),
        ("train", 4),
        ("train", 4),
        ("validate", 4),
        ("keep", 4),
    ]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-000006"]
    assert checkpoints.is_finished(str(tmp_path))
    assert len(losses(tmp_path)) == 6


def test_a_process_trains_again_after_something_else_has_ended_its_group(stores, tmp_path):
    """As an engine of vLLM does where mining and training take turns in one process."""
    for name in ("first", "second"):
        task, plan = prepare(stores, tmp_path / name)
        Trainer(task, plan).train()
        torch.distributed.destroy_process_group()
    assert losses(tmp_path / "second") == losses(tmp_path / "first")


def test_a_loss_that_is_no_number_leaves_the_last_good_checkpoint_and_the_next_run_goes_on_there(stores, tmp_path):
    whole, plan = prepare(stores, tmp_path / "whole")
    Trainer(whole, plan).train()
    broken, plan = prepare(stores, tmp_path / "broken", spoiled=4)
    with pytest.raises(NotFinite, match=r"^step 4: the loss is nan, on batch 3 .*: the checkpoint of step 2 is kept"):
        Trainer(broken, plan).train()
    assert checkpoints.newest(plan.output).step == 2
    assert not checkpoints.is_finished(plan.output)
    again, plan = prepare(stores, tmp_path / "broken")
    continued = Trainer(again, plan)
    assert continued.step == 2
    continued.train()
    assert losses(tmp_path / "broken") == pytest.approx(losses(tmp_path / "whole"), abs=1e-6)


def test_a_checkpoint_whose_own_weights_give_no_number_goes_too(stores, tmp_path):
    task, plan = prepare(stores, tmp_path, spoiled=5)
    with pytest.raises(NotFinite, match="the checkpoint of step 2 is kept"):
        Trainer(task, plan).train()
    assert checkpoints.newest(plan.output).step == 2


def test_a_damaged_checkpoint_is_named_with_the_way_out(stores, tmp_path):
    task, plan = prepare(stores, tmp_path, spoiled=4)
    with pytest.raises(NotFinite):
        Trainer(task, plan).train()
    (states,) = (tmp_path / "checkpoints/step-000002").glob("*model_states.pt")
    states.write_bytes(states.read_bytes()[:1000])
    task, plan = prepare(stores, tmp_path)
    with pytest.raises(UserError, match=r"step-000002: the checkpoint cannot be read .*--resume never"):
        Trainer(task, plan)


def test_validation_measures_the_rows_of_every_store_alike(stores, tmp_path):
    task, plan = prepare(stores, tmp_path, valid_windows=60)
    task.valid = Mixture([stores.train, stores.valid])
    validating = Trainer(task, plan)
    with validating._bar() as bar:
        found = task.measure(validating._valid_sums(bar))
    rows = pa.concat_tables([store.take(range(30), ["tokens"]) for store in (stores.train, stores.valid)])
    windows = torch.tensor(rows["tokens"].to_pylist())
    starts = torch.full((60, 1), task.encoder.eos_token_id)
    with torch.no_grad():
        logits = task.model(torch.cat([starts, windows[:, :-1]], 1)).logits
    assert found["loss"] == pytest.approx(float(F.cross_entropy(logits.flatten(0, 1), windows.flatten())), abs=1e-5)


def test_fused_adam_learns_the_same_and_continues(stores, tmp_path, monkeypatch):
    """Against Adam as a sequence of operations, through DeepSpeed's ZeRO 1."""
    one = {"deepspeed_config": str(ROOT / "training/zero/stage1.json")}
    plain, plan = prepare(stores, tmp_path / "plain", **one)
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "adam_options", lambda deepspeed: adam_options(deepspeed) | {"fused": False})
        Trainer(plain, plan).train()
    broken, plan = prepare(stores, tmp_path / "fused", spoiled=4, **one)
    with pytest.raises(NotFinite):
        Trainer(broken, plan).train()
    again, plan = prepare(stores, tmp_path / "fused", **one)
    continued = Trainer(again, plan)
    assert continued.step == 2
    assert continued.engine.basic_optimizer.param_groups[0]["fused"]
    continued.train()
    assert losses(tmp_path / "fused") == pytest.approx(losses(tmp_path / "plain"), abs=1e-5)


def test_adam_is_fused_unless_its_weights_are_offloaded():
    offloaded = read_deepspeed_config(str(ROOT / "training/zero/stage2-offload.json"))
    assert adam_options({})["fused"]
    assert not adam_options(offloaded)["fused"]


@pytest.mark.parametrize("fused", [True, None])
def test_weights_count_their_own_steps_where_adam_looks_for_them(fused):
    """A device that only says where it is stands for a GPU."""
    weights = [torch.nn.Parameter(torch.zeros(2, device="meta")) for _ in range(2)]
    optimizer = torch.optim.Adam(weights)
    optimizer.param_groups[0]["fused"] = fused
    step = torch.tensor(7.0)
    for each in weights:
        optimizer.state[each]["step"] = step
    own_steps(optimizer)
    found = [optimizer.state[each]["step"] for each in weights]
    assert found[0] is not found[1]
    assert {each.device.type for each in found} == {"meta" if fused else "cpu"}


def test_a_micro_batch_divides_a_ranks_share():
    assert [largest_divisor(24, most) for most in (1, 5, 7, 24, 100)] == [1, 4, 6, 24, 24]


def test_what_our_flags_say_is_refused_in_a_configuration_of_deepspeed(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"optimizer": {"type": "SGD"}, "zero_optimization": {"stage": 1}}')
    with pytest.raises(UserError, match=r"optimizer is set with --max_lr, remove it from the file"):
        read_deepspeed_config(str(path))
    path.write_text('{"train_batch_size": "auto", "zero_optimization": {"stage": 1}}')
    assert read_deepspeed_config(str(path)) == {"zero_optimization": {"stage": 1}}

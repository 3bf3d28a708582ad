"""The trainer of every model here: DeepSpeed does the work, this is what happens at each step."""

import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pickle import UnpicklingError
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedModel

from pipeline.models.model_folder import quiet
from pipeline.models.precision import BF16, FP16
from pipeline.runtime import files
from pipeline.runtime.errors import ResumableError, UserError, first_line
from pipeline.runtime.progress import Bar
from training.data.loader import Loader, Rows, ahead
from training.data.mixture import Mixture
from training.loop import checkpoints, mirror, ranks
from training.loop.checkpoints import Mark
from training.loop.log import RunLog
from training.loop.numbers_only import numbers_only
from training.loop.plan import TrainingPlan
from training.loop.trackers import Tracker, open_tracker

Places = NDArray[np.int64]


class Task(Protocol):
    """What is trained, on what: all that the trainer does not know."""

    @property
    def model(self) -> PreTrainedModel:
        """With its first weights, the same on every rank."""

    @property
    def train(self) -> Rows:
        """What it is trained on."""

    @property
    def valid(self) -> Mixture:
        """What it is measured on: every store alike."""

    @property
    def noun(self) -> str:
        """What is trained, in words."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns that it reads."""

    @property
    def criterion(self) -> str:
        """What validation measures; lower is better."""

    def tensors(self, rows: pa.Table, places: Places) -> dict[str, Tensor]:
        """Rows as tensors, the first dimension of each a row's.

        A row's place in the training's order (of a validation row, its number) is what anything random about it is
        drawn from: the same on any number of ranks, another one in the next epoch.
        """

    def loss(self, network: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        """The mean loss of a micro-batch."""

    def sums(self, network: nn.Module, batch: dict[str, Tensor], weights: Tensor) -> Tensor:
        """What validation adds up over rows, each counted `weights` times."""

    def measure(self, sums: list[float]) -> dict[str, float]:
        """The measurements that the sums give, `criterion` among them."""

    def describe(self, measures: dict[str, float]) -> str:
        """The measurements that a reader of the terminal wants to see."""

    def progress(self, loss: float) -> dict[str, float]:
        """What the progress bar shows of a training loss."""

    def summary(self) -> dict[str, str]:
        """What else a finished run has to say."""

    def tokens(self, rows: int) -> int:
        """How many tokens so many rows are."""

    def save(self, folder: str, state: dict[str, Tensor], notes: dict[str, Any]) -> None:
        """Writes the model's folder, with these weights and notes on its training."""


class NotFinite(Exception):
    """The loss or the gradient is no longer a number: going on would only spoil the weights."""


class Trainer:
    """One run: `train()` takes it from its last whole checkpoint, or from the start, to its end."""

    def __init__(self, task: Task, plan: TrainingPlan):
        import deepspeed

        if torch.cuda.is_available():
            torch.set_float32_matmul_precision("high")  # TF32, for what is not in 16 bits
        self.task, self.plan = task, plan
        self.mark = ranks.first_does(lambda: checkpoints.newest(plan.output))
        universal = self.mark is not None and self.mark.ranks != ranks.ranks() and plan.stage > 0
        name = self._checkpoint_name(universal)
        self.share = plan.recipe.batch_size // ranks.ranks()
        self.micro = largest_divisor(self.share, plan.micro_batch_size)
        self.engine, *_ = deepspeed.initialize(
            model=task.model,
            model_parameters=[parameter for parameter in task.model.parameters() if parameter.requires_grad],
            config=engine_config(plan, self.micro, ranks.ranks(), universal),
            lr_scheduler=lambda optimizer: LambdaLR(
                optimizer, lambda step: plan.recipe.learning_rate(step) / plan.recipe.max_lr
            ),
        )
        self.step = self.mark.step if self.mark else 0
        self.best_step = self.mark.best_step if self.mark else None
        self.best_value = self.mark.best_value if self.mark else None
        if self.mark:
            self._load(name)
        self.marks = [self.mark] if self.mark else []  # whole checkpoints, until a later one has proved good
        self.log = RunLog(os.path.join(plan.folder, mirror.LOGS), self.step, self._tracker() if plan.tracker else None)
        self.pending: list[tuple[int, Tensor, float]] = []  # (step, loss, gradient norm) not looked at yet
        self.look_every = 1 if self.engine.device == torch.device("cpu") else 10  # looking waits for a GPU

    def train(self) -> None:
        """All steps that are left, with validation and checkpoints on the way, and the best model at the end."""
        plan, last = self.plan, self.plan.recipe.max_steps
        with self._bar() as bar:
            for batch in [] if self._has_stalled() else self.batches(last):
                self._train_on(batch)
                self.step += 1
                ended = self.step == last
                if ended or len(self.pending) >= self.look_every or self._is_due(plan.validate_every, plan.save_every):
                    self._look(bar)
                if ended or self._is_due(plan.validate_every):
                    self._validate(bar)
                    ended = ended or self._has_stalled()
                if ended or self._is_due(plan.save_every):
                    self._save()
                bar.update(1)
                if ended:
                    break
        self.log.close()
        ranks.first_does(self._end)
        ranks.disks_do(lambda: mirror.start_empty(plan.output))

    def _tracker(self) -> Callable[[], Tracker]:
        plan = self.plan
        facts = asdict(plan.recipe) | {"seed": plan.seed, "precision": plan.precision, "ranks": ranks.ranks()}
        facts |= getattr(self.task, "provenance", {})
        run = os.path.basename(plan.output.rstrip("/"))
        return lambda: open_tracker(str(plan.tracker), os.path.join(plan.folder, mirror.LOGS), run, facts)

    def _end(self) -> None:
        checkpoints.keep_only(self.plan.output, self.marks[-1])
        checkpoints.publish_best(self.plan.output, self.best_step or 0)

    def _has_stalled(self) -> bool:
        """Whether so many validations in a row have brought nothing better that training ends early."""
        if self.plan.patience is None or self.best_step is None:
            return False
        every = self.plan.validate_every
        return self.step // every - self.best_step // every >= self.plan.patience

    def _is_due(self, *intervals: int) -> bool:
        return any(self.step % interval == 0 for interval in intervals)

    def _loader(self) -> Loader:
        task, plan = self.task, self.plan
        size, seed = plan.recipe.batch_size, plan.seed
        return Loader(task.train, task.columns, size, seed, ranks.rank(), ranks.ranks())

    def batches(self, stop: int) -> Iterator[dict[str, Tensor]]:
        """This rank's rows of every step that is left before `stop`, as tensors, made while the last step runs."""
        return ahead(lambda found: self.task.tensors(*found), self._loader().batches(self.step, stop))

    def _train_on(self, tensors: dict[str, Tensor]) -> None:
        """One step: the gradients of this rank's rows, micro-batch by micro-batch; DeepSpeed adds them up."""
        self.engine.train()
        batch = self._on_device(tensors)
        total = torch.zeros((), device=self.engine.device)
        for start in range(0, self.share, self.micro):
            loss = self.task.loss(self.engine, {name: part[start : start + self.micro] for name, part in batch.items()})
            total += loss.detach().float()
            self.engine.backward(loss)
            self.engine.step()
        norm = self.engine.get_global_grad_norm()
        self.pending.append((self.step, total * self.micro / self.share, norm if norm is not None else 0.0))

    def _look(self, bar: Bar) -> None:
        """Brings the last steps' losses together over all ranks, shows them, and stops if one is not a number."""
        steps, losses, norms = zip(*self.pending, strict=True)
        self.pending = []
        together = torch.stack(losses)
        if ranks.ranks() > 1:
            torch.distributed.all_reduce(together)
        values = [float(value) / ranks.ranks() for value in together]
        for step, value, norm in zip(steps, values, norms, strict=True):
            # A gradient that overflows in fp16 is DeepSpeed's business: it skips the step and scales down.
            if not math.isfinite(value) or (self.plan.precision != FP16 and not math.isfinite(float(norm))):
                what = f"the gradient's norm is {norm}" if math.isfinite(value) else f"the loss is {value}"
                self.log.flush()
                raise NotFinite(self._obituary(step, what))
            events = {"loss": value, "learning_rate": self.plan.recipe.learning_rate(step), "grad_norm": float(norm)}
            self.log.write({f"train/{name}": number for name, number in events.items()}, step + 1)
        if self.marks and steps[-1] >= self.marks[-1].step:  # the weights of the last checkpoint gave a number
            self._keep_last()
        bar.set_postfix(self._shown(values[-1], bar), refresh=False)

    def _shown(self, loss: float, bar: Bar) -> dict[str, str]:
        shown = {name: f"{value:.3f}" for name, value in self.task.progress(loss).items()}
        if self.best_value is not None:
            shown["best"] = f"{self.best_value:.3f}"
        if rate := bar.rate:
            shown["tokens/s"] = f"{self.task.tokens(self.plan.recipe.batch_size) * rate:,.0f}"
        return shown

    def _keep_last(self) -> None:
        if len(self.marks) > 1:
            self.marks = self.marks[-1:]
            ranks.first_does(lambda: checkpoints.keep_only(self.plan.output, self.marks[-1]))

    def _obituary(self, step: int, what: str) -> str:
        """Says what went wrong where; a checkpoint whose own weights did is no good one, and goes."""
        if self.marks and self.marks[-1].step >= step:
            bad = self.marks.pop()
            ranks.first_does(lambda: checkpoints.discard(self.plan.output, checkpoints.name_of(bad.step)))
        kept = f"the checkpoint of step {self.marks[-1].step} is kept" if self.marks else "there is no checkpoint yet"
        rows = ", ".join(map(str, self._loader().rows(step)[:5]))
        return (
            f"step {step + 1}: {what}, on batch {step} (rows {rows}, … of {self.task.train.path}): {kept}: start over "
            f"with a lower --max_lr, or look at these rows"
        )

    @torch.no_grad()
    def _validate(self, bar: Bar) -> None:
        """Measures the model on rows of all validation stores alike, and keeps it if it is the best so far."""
        self.engine.eval()
        measures = self.task.measure(self._valid_sums(bar))
        value = measures[self.task.criterion]
        if not math.isfinite(value):
            raise NotFinite(self._obituary(self.step - 1, f"after it the {self.task.criterion} is {value}"))
        self.log.write({f"valid/{name}": number for name, number in measures.items()}, self.step)
        better = self.best_value is None or value < self.best_value
        if ranks.is_first():
            remark = ", the best so far" if better else ""
            bar.write(f"step {self.step:,}: {self.task.describe(measures)} on {self.task.valid.path}{remark}")
        if better:
            self.best_step, self.best_value = self.step, value
            state = self._whole_weights()
            notes = {"step": self.step, "valid": self.task.valid.path} | measures

            def write(folder: str) -> None:
                with quiet():
                    self.task.save(folder, state, notes)

            ranks.first_does(lambda: checkpoints.save_best(self.plan.output, self.step, write))

    def _valid_sums(self, bar: Bar) -> list[float]:
        valid_rows, valid_weights = self.task.valid.spread(self.plan.valid_rows)
        count = len(valid_rows)
        sums: Tensor | None = None
        bar.set_description("validating")
        for start in range(0, count, self.micro * ranks.ranks()):
            # Every rank takes part in every batch, as ZeRO 3 demands; where rows run out, the first counts nothing.
            first = start + ranks.rank() * self.micro
            places = [place if place < count else 0 for place in range(first, first + self.micro)]
            wanted = valid_rows[places]
            weights = torch.from_numpy(valid_weights[places] * (np.arange(first, first + self.micro) < count))
            rows = self.task.valid.take(wanted, self.task.columns)
            batch = self._on_device(self.task.tensors(rows, wanted))
            part = self.task.sums(self.engine, batch, weights.to(self.engine.device))
            sums = part if sums is None else sums + part
        bar.set_description("training")
        assert sums is not None
        if ranks.ranks() > 1:
            torch.distributed.all_reduce(sums)
        return [float(value) for value in sums]

    def _whole_weights(self) -> dict[str, Tensor]:
        """The weights, gathered onto the first rank where ZeRO 3 has spread them."""
        if self.plan.stage == 3:
            return self.engine._zero3_consolidated_16bit_state_dict() or {}
        return self.engine.module.state_dict()

    def _save(self) -> None:
        """A checkpoint: every rank writes its part, then the first one writes the mark."""
        name, folder = checkpoints.name_of(self.step), checkpoints.folder_of(self.plan.output)
        mark = Mark(self.step, ranks.ranks(), self.plan.stage, self.best_step, self.best_value)
        try:
            self.engine.save_checkpoint(folder, tag=name, save_latest=False, exclude_frozen_parameters=True)
        except (OSError, RuntimeError) as error:  # torch does not say that the disk is full
            free = f"{shutil.disk_usage(folder).free / 1e6:,.1f} MB are free there; {first_line(error)}"
            raise ResumableError(f"{os.path.join(folder, name)}: it cannot be written ({free})") from None
        self.log.flush()  # what comes before a checkpoint is not made again
        ranks.wait()
        ranks.disks_do(lambda: checkpoints.upload_parts(self.plan.output, self.step))
        ranks.first_does(lambda: checkpoints.finish(self.plan.output, mark))
        self.marks.append(mark)

    def _checkpoint_name(self, universal: bool) -> str:
        """Of the checkpoint to continue from, which is on this machine then; nothing where there is none."""
        output, mark = self.plan.output, self.mark
        ranks.first_does(lambda: checkpoints.keep_only(output, mark))
        ranks.disks_do(lambda: checkpoints.fetch(output, mark, best=ranks.is_first()))
        if mark is None:
            return ""
        if not universal:
            return checkpoints.name_of(mark.step)
        does = ranks.first_does if files.is_local(output) else ranks.disks_do  # is the disk everybody's?
        return does(lambda: checkpoints.as_universal(output, mark))

    def _load(self, name: str) -> None:
        folder = checkpoints.folder_of(self.plan.output)
        try:
            with numbers_only():
                loaded, _ = self.engine.load_checkpoint(folder, tag=name, load_module_strict=False)
        except UnpicklingError:
            raise UserError(f"{os.path.join(folder, name)}: {checkpoints.NOT_NUMBERS}") from None
        except (OSError, RuntimeError, EOFError, KeyError) as error:
            raise UserError(
                f"{os.path.join(folder, name)}: the checkpoint cannot be read ({first_line(error)}): "
                f"remove it, or start over with --resume never"
            ) from None
        if loaded is None or self.engine.global_steps != self.step:
            raise UserError(f"{os.path.join(folder, name)}: not the checkpoint of step {self.step}: remove it")
        own_steps(self.engine.basic_optimizer)

    def _on_device(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor.to(self.engine.device, non_blocking=True) for name, tensor in batch.items()}

    @contextmanager
    def _bar(self) -> Iterator[Bar]:
        last, hidden = self.plan.recipe.max_steps, not ranks.is_first()
        with Bar(total=last, initial=self.step, desc="training", unit=" steps", hidden=hidden, smoothing=0.1) as bar:
            yield bar


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of a rank's share of a batch that is not above the micro-batch asked for."""
    return next(size for size in range(min(number, most), 0, -1) if number % size == 0)


def engine_config(plan: TrainingPlan, micro: int, count: int, universal: bool) -> dict[str, Any]:
    """The whole configuration that DeepSpeed gets: the user's file and what our flags say."""
    return plan.deepspeed | {
        "train_batch_size": plan.recipe.batch_size,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": plan.recipe.batch_size // count // micro,
        "gradient_clipping": plan.recipe.max_grad_norm,
        "optimizer": {"type": "Adam", "params": {"lr": plan.recipe.max_lr} | adam_options(plan.deepspeed)},
        "bf16": {"enabled": plan.precision == BF16},
        "fp16": {"enabled": plan.precision == FP16},
        "checkpoint": {"load_universal": universal},
        "steps_per_print": 2**62,
    }


def adam_options(deepspeed: dict[str, Any]) -> dict[str, Any]:
    """torch's own Adam: nothing to compile, and one kernel for all of a step, but for weights that are offloaded.

    DeepSpeed hands on what it does not know to torch.optim.Adam.
    """
    offloaded = deepspeed.get("zero_optimization", {}).get("offload_optimizer", {}).get("device", "none") != "none"
    return {"torch_adam": True, "adam_w_mode": False, "fused": not offloaded}


def own_steps(optimizer: torch.optim.Optimizer) -> None:
    """Gives all weights a count of steps of their own, beside them if Adam is fused, which looks for it there.

    DeepSpeed leaves that of a checkpoint of another number of ranks where it was saved, one for several weights.
    """
    for group in optimizer.param_groups:
        for weights in group["params"]:
            if torch.is_tensor(step := optimizer.state[weights].get("step")):
                optimizer.state[weights]["step"] = step.clone().to(
                    weights.device if group.get("fused") else step.device
                )

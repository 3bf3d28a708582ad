"""Trains an energy model to distinguish real windows from a language model's own: the E of P(x) ~ P_phi(x) exp(-E(x)).

  deepspeed training/train_energy.py --preset bit-tiny --train stores/books-train-negatives \\
      --valid stores/books-valid-negatives --output models/books-energy

Stores are those of pipeline/mine_negatives.py; several, separated by commas, are mixed in proportion. The output is a
model's folder, which `training.energy.folder.open_energy_model` opens; it becomes one when the training has ended, and
the model with the best validation loss is kept. A killed run continues when the same command is given again, also on
another number of ranks. `deepspeed --num_accelerators 2` starts two ranks; torchrun, Slurm's srun or a --hostfile those
of several machines; `python training/train_energy.py` is one rank.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.runtime.errors import UserError
from pipeline.runtime.settings import setting
from pipeline.stores.manifest import Record
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import TextEncoder, load_tokenizer
from training.data.checks import count_negatives
from training.data.mixture import Mixture
from training.energy.folder import check_length, reader_for
from training.energy.names import BALANCED, OBJECTIVES
from training.energy.presets import PRESETS, RECIPES, find_preset
from training.loop import ranks
from training.loop.plan import TrainingPlan
from training.loop.recipe import choose_recipe
from training.loop.run import (
    MODEL,
    RunSettings,
    check_same_tokens,
    identity_of,
    make_plan,
    provenance_of,
    read_run_settings,
    run,
)

if TYPE_CHECKING:
    from training.energy.first_weights import FirstWeights
    from training.energy.model import EnergyConfig, EnergyModel
    from training.energy.task import NoiseContrast

DATA = "data and objective"  # a group of flags
ROWS_AT_ONCE = 32  # on a rank, where neither the flags nor the recipe say how many fit
PROVENANCE = ("preset", "objective", "negatives", "seed", "stores", "init", "batch_size", "max_steps", "max_lr")
LORA = "lora_rank"


@dataclass(frozen=True, kw_only=True)
class EnergySettings(RunSettings):
    """What an energy model is trained with: its architecture, its negatives, and what every training has."""

    preset: str | None = setting(
        None,
        help=f"its size and recipe: {', '.join(PRESETS)}. Three have the shape of --init: encoder (BERT, …) and "
        f"decoder (gpt2, …), with the tokenizers that they came with, become sequence classifiers that transformers "
        f"opens by itself; unmasked is a causal language model without its causal mask, which reads both ways",
        metavar="NAME",
        group=MODEL,
    )
    init: str | None = setting(
        None,
        help="start from these weights: a unit from a language model of its shape, a bit from RoBERTa or from "
        "train_lm.py --objective masked, anything from an energy model (then without --preset)",
        metavar="DIR_OR_NAME",
        group=MODEL,
    )
    train: tuple[str, ...] = setting(help="negatives to train on", metavar="STORE[,STORE…]", group=DATA, commas=True)
    valid: tuple[str, ...] = setting(
        help="negatives to measure loss and accuracy on", metavar="STORE[,STORE…]", group=DATA, commas=True
    )
    objective: str = setting(
        BALANCED,
        help="see training/energy/objectives.py (default: balanced)",
        choices=OBJECTIVES,
        group=DATA,
    )
    negatives: int | None = setting(
        None, help="of each window (default: as many as every row has)", metavar="K", group=DATA, least=1
    )
    recipe: str | None = setting(
        None, help="which of the paper's tables (default: discrimination)", choices=RECIPES, group=DATA
    )

    lora_rank: int | None = setting(
        None,
        help="train products of this rank beside the matrices of an encoder or decoder, and not these: much less "
        "memory; they are added up when the model is saved (needs peft)",
        metavar="N",
        group=MODEL,
        least=1,
    )

    def check(self) -> None:
        super().check()
        if not (self.preset or self.init):
            raise UserError(f"--preset: name one ({', '.join(PRESETS)}), or an energy model to start from with --init")
        if self.preset:
            find_preset(self.preset)
        if self.lora_rank and not self.init:
            raise UserError("--lora_rank: name a pretrained model with --init, and --preset encoder or decoder")
        for flag, paths in (("train", self.train), ("valid", self.valid)):
            if not paths:
                raise UserError(f"--{flag}: name a store of negatives")


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the command line and trains; an exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    return train_energy(read_run_settings(EnergySettings, given, __doc__))


def train_energy(settings: EnergySettings) -> int:
    """Trains an energy model in this process, or on the ranks that this process is one of; an exit code."""
    train, valid = open_stores(settings)
    from training.energy.first_weights import find_first_weights  # torch comes with it, seconds that no flag needs

    tokenizer = train.stores[0].manifest.tokenizer
    first = find_first_weights(settings.init, settings.preset, tokenizer) if settings.init else None
    config = choose_architecture(settings, train, valid, first)
    plan = plan_of(settings)
    ranks.start()
    negatives = ranks.first_does(lambda: count_negatives(settings.negatives, train, valid))
    identity = identity_of(plan, config, subject_of(settings, negatives, train, first))
    record = Record.of("training/train_energy.py", settings, identity)

    def make_task() -> "NoiseContrast":
        encoder = load_tokenizer(train.stores[0].path)
        model = build(config, settings.seed, first, encoder, window_of(train), settings.lora_rank)
        return task_of(model, settings.objective, negatives, train, valid, encoder, first, identity)

    return run(settings, record, plan, make_task)


def open_stores(settings: EnergySettings) -> tuple[Mixture, Mixture]:
    """The stores of negatives to train on and to validate on, all of one vocabulary."""
    train, valid = (open_mixture(flag, getattr(settings, flag)) for flag in ("train", "valid"))
    like = train.stores[0]
    for store in (*train.stores, *valid.stores):
        check_same_tokens(store.manifest, like.manifest, store.path, like.path)
    return train, valid


def open_mixture(flag: str, paths: Sequence[str]) -> Mixture:
    """The stores of a flag, none of them empty."""
    stores = [Store(path, kind="negatives") for path in paths]
    for store in stores:
        if not len(store):
            raise UserError(f"--{flag} {store.path}: there are no rows in it")
    return Mixture(stores)


def window_of(*mixtures: Mixture) -> int:
    """The longest window of all stores."""
    return max(int(store.manifest.settings.get("window") or 0) for mixture in mixtures for store in mixture.stores)


def choose_architecture(
    settings: EnergySettings, train: Mixture, valid: Mixture, first: "FirstWeights | None"
) -> "EnergyConfig":
    """The preset's configuration, or that of the model to start from; refuses what does not fit the windows."""
    tokenizer, window = train.stores[0].manifest.tokenizer, window_of(train, valid)
    preset = find_preset(settings.preset) if settings.preset else None
    if preset and preset.build:
        config = preset.build(tokenizer, window + 1)
    elif first and first.config:
        config = first.config
        check_length(config, window, train.path, first.folder.name)
    elif preset:
        raise UserError(f"--init: the shape of --preset {settings.preset} is that of a model to start from: name one")
    else:
        raise UserError(f"--preset: {settings.init} is no energy model: say which kind to make of it")
    return config


def plan_of(settings: EnergySettings) -> TrainingPlan:
    """How the settings' training goes; without a preset, by the recipes of bit-base."""
    preset = find_preset(settings.preset) if settings.preset else PRESETS["bit-base"]
    name = settings.preset or settings.init or ""
    recipe = choose_recipe(preset.recipe(settings.recipe, name), settings)
    return make_plan(settings, recipe, recipe.rows_at_once or ROWS_AT_ONCE)


def subject_of(
    settings: EnergySettings, negatives: int, train: Mixture, first: "FirstWeights | None"
) -> dict[str, Any]:
    """What is trained on what, as far as the loss curve depends on it."""
    lora = {LORA: settings.lora_rank} if settings.lora_rank else {}
    return lora | {
        "preset": settings.preset,
        "objective": settings.objective,
        "negatives": negatives,
        "stores": [describe_store(store) for store in train.stores],
        "init": first.folder.weights_digest if first else None,
    }


def describe_store(store: Store) -> dict[str, Any]:
    """What a store's negatives are of, from which tables are labelled later."""
    manifest = store.manifest
    return {
        "digest": manifest.digest,
        "corpus": manifest.settings.get("corpus"),
        "split": manifest.settings.get("split"),
        "context_lengths": manifest.settings.get("context_lengths"),
        "generator": manifest.generator,
        "sampling": manifest.sampling,
    }


def build(
    config: "EnergyConfig",
    seed: int,
    first: "FirstWeights | None",
    encoder: TextEncoder,
    window: int,
    lora_rank: int | None = None,
) -> "EnergyModel":
    """The network with its first weights: the same ones on every rank."""
    import torch
    from transformers import set_seed

    from training.energy.first_weights import copy_first_weights
    from training.energy.lora import add_lora, trained_share
    from training.energy.model import EnergyModel

    set_seed(seed % 2**32)
    model = EnergyModel(config).to(torch.float32)
    if first:
        report = copy_first_weights(model, first, encoder, window)
        if ranks.is_first():
            print(f"first weights: {report}", flush=True)
        if lora_rank:
            add_lora(model, lora_rank, report.new)
            if ranks.is_first():
                print(f"trained: {trained_share(model):.2%} of the parameters", flush=True)
    return model


def task_of(
    model: "EnergyModel",
    objective: str,
    negatives: int,
    train: Mixture,
    valid: Mixture,
    encoder: TextEncoder,
    first: "FirstWeights | None",
    identity: dict[str, Any],
) -> "NoiseContrast":
    """What the trainer does with a network: an objective, on so many negatives of each row."""
    from training.energy.task import NoiseContrast

    own = first.own if first else None
    reads = own.backend_tokenizer.to_str() if own and model.config.own_tokenizer else None
    lengths = {length for store in valid.stores for length in store.manifest.settings.get("context_lengths") or []}
    return NoiseContrast(
        model=model,
        train=train,
        valid=valid,
        objective=objective,
        negatives=negatives,
        reader=reader_for(model.config, encoder, reads),
        encoder=encoder,
        own=own,
        context_lengths=sorted(lengths),
        provenance=provenance_of(identity, [*PROVENANCE, *({LORA} & identity.keys())], model),
    )


if __name__ == "__main__":
    ranks.exit_all_with(main)

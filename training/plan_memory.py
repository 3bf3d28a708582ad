"""Says what each GPU would hold in a training, before anything is rented.

  python training/plan_memory.py --preset bit-large --gpus 64 --zero 2

Weights, gradients and Adam's state are DeepSpeed's own estimate (for ZeRO 2 and 3; for 0 and 1, which it has none for,
the same counts without the division). Activations are counted, not guessed: one row goes through the network here, and
what autograd keeps of it is added up (of LSTMs, cuDNN keeps less). All of it is for 16-bit training; fp32 has about the
same model states and twice the activations.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.settings import Settings, read_settings, setting
from training.energy import presets as energy_presets
from training.language import presets as lm_presets

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PretrainedConfig

STAGES = (0, 1, 2, 3)
GIB = 2**30


NAMES = (*lm_presets.PRESETS, *energy_presets.PRESETS)


@dataclass(frozen=True, kw_only=True)
class MemorySettings(Settings):
    """A training, as far as the memory that it takes depends on it."""

    preset: str = setting(help=f"one of {', '.join(NAMES)}", metavar="NAME")
    gpus: int = setting(1, help="in all (default: 1)", metavar="N", least=1)
    gpus_per_node: int = setting(8, help="(default: 8)", metavar="N", least=1)
    zero: int | None = setting(None, help="ZeRO's stage (default: all of them)", choices=STAGES)
    micro_batch_size: int | None = setting(None, help="rows at once (default: as in the paper)", metavar="N", least=1)
    window: int = setting(160, help="tokens of a window (default: 160)", metavar="N", least=1)
    negatives: int = setting(1, help="of a row (default: 1)", metavar="K", least=1)
    vocabulary: int = setting(50_257, help="pieces (default: GPT-2's 50257)", metavar="N", least=1)
    gradient_checkpointing: bool = setting(False, help="as in the trainers")

    @property
    def gpus_of_node(self) -> int:
        """As many as a node has, or as there are in all."""
        return min(self.gpus, self.gpus_per_node)

    def check(self) -> None:
        if self.preset not in NAMES:
            raise UserError(f"--preset {self.preset}: there are {', '.join(NAMES)}")
        if self.gpus % self.gpus_of_node:
            raise UserError(f"--gpus {self.gpus}: nodes of {self.gpus_of_node} do not make that number")


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a training takes under one of ZeRO's stages: on a GPU for the model and for a batch, and of a CPU."""

    stage: int
    offload: bool
    model_states: int
    activations: int
    cpu: int


@dataclass(frozen=True)
class MemoryPlan:
    """What a training takes: its parameters, the rows that a GPU has at once, and a line for each of ZeRO's stages."""

    parameters: int
    rows: int
    needs: list[MemoryNeed]


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the command line and prints the plan; an exit code."""
    settings = read_settings(MemorySettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    print_plan(settings, plan_memory(settings))
    return 0


def plan_memory(settings: MemorySettings) -> MemoryPlan:
    """Counts what each GPU would hold."""
    import torch

    tokenizer = {"vocabulary_size": settings.vocabulary, "eos_token_id": settings.vocabulary - 1}
    config = config_of_preset(settings.preset, tokenizer, settings.window + 1)
    with torch.device("meta"):
        model = network(config)
    count, layer = sum(parameter.numel() for parameter in model.parameters()), largest_layer(model)
    rows = settings.micro_batch_size or rows_of_recipe(settings.preset)
    kept = rows * activations(config, settings)
    needs = []
    for stage in STAGES if settings.zero is None else [settings.zero]:
        for offload in (False, True) if stage >= 2 else (False,):
            gpu, cpu = model_states(count, layer, stage, offload, settings.gpus, settings.gpus_of_node)
            needs.append(MemoryNeed(stage, offload, gpu, kept, cpu))
    return MemoryPlan(count, rows, needs)


def print_plan(settings: MemorySettings, plan: MemoryPlan) -> None:
    """A table, in GiB."""
    millions = f"{plan.parameters / 1e6:,.1f} million parameters"
    print(f"{settings.preset}: {millions}, {settings.gpus} GPUs, {settings.gpus_of_node} a node")
    print(f"{plan.rows} rows at once on a GPU, windows of {settings.window}, {settings.negatives} negatives a row\n")
    titles = ("model states", "activations", "a GPU, in all", "a node's CPU")
    print(f"{'ZeRO':<12}" + "".join(f"{title:>15}" for title in titles))
    for need in plan.needs:
        name = f"{need.stage}, offload" if need.offload else f"{need.stage}"
        sizes = (need.model_states, need.activations, need.model_states + need.activations, need.cpu)
        print(f"{name:<12}" + "".join(f"{size / GIB:>11,.2f} GiB" for size in sizes))
    print("\nThe CUDA context, NCCL's buffers and fragmentation come on top: leave two GiB.")


def config_of_preset(name: str, tokenizer: dict[str, Any], positions: int) -> "PretrainedConfig":
    if name in energy_presets.PRESETS:
        build = energy_presets.PRESETS[name].build
        if build is None:
            raise UserError(f"--preset {name}: its shape is that of the model to start from, which is not known here")
        return build(tokenizer, positions)
    preset = lm_presets.find_preset(name)
    positions = max(lm_presets.POSITIONS, positions)
    bases = {"ralm": "base-lm", "ralm-24l": "base-lm-24l", "ralm-tiny": "transf-tiny"}
    base = (
        lm_presets.PRESETS[bases[name]].build(tokenizer["vocabulary_size"], positions, None) if name in bases else None
    )
    return preset.build(tokenizer["vocabulary_size"], positions, base)


def rows_of_recipe(name: str) -> int:
    if name in energy_presets.PRESETS:
        return energy_presets.PRESETS[name].recipe(None, name).rows_at_once or 32
    return 32


def network(config: "PretrainedConfig") -> "nn.Module":
    from transformers import AutoModelForCausalLM

    from training.energy.model import EnergyModel

    return EnergyModel(config) if is_energy(config) else AutoModelForCausalLM.from_config(config)


def is_energy(config: "PretrainedConfig") -> bool:
    from training.energy.model import EnergyConfig

    return isinstance(config, EnergyConfig)


def largest_layer(model: "nn.Module") -> int:
    """The parameters of the largest module that has any of its own: ZeRO 3 gathers them at once."""
    return max(sum(parameter.numel() for parameter in module.parameters(recurse=False)) for module in model.modules())


def model_states(count: int, layer: int, stage: int, offload: bool, gpus: int, gpus_per_node: int) -> tuple[int, int]:
    """Bytes on a GPU and in a node's CPU memory."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # DeepSpeed looks for a device, and only counts here
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as zero3
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as zero2

    nodes = gpus // gpus_per_node
    if stage == 3:
        cpu, gpu, _ = zero3(count, layer, gpus_per_node, nodes, cpu_offload=offload, cpu_offload_params=offload)
        return int(gpu), int(cpu)
    cpu, gpu = zero2(count, gpus_per_node, nodes, cpu_offload=offload)
    if stage < 2:  # gradients whole on every GPU; at stage 0 Adam's state and the fp32 weights too
        gpu = 4 * count + 16 * count // (gpus if stage == 1 else 1)
    return int(gpu), int(cpu)


def activations(config: "PretrainedConfig", settings: MemorySettings) -> int:
    """Bytes that autograd keeps of a row; with checkpointing, every block's input and one block at a time.

    All blocks keep the same, so a network of two shows what any number of them does.
    """
    depth = depth_of(config)
    if depth is None:
        if settings.gradient_checkpointing:
            raise UserError(f"--gradient_checkpointing: {settings.preset} has no blocks to compute twice")
        return kept_bytes(config, settings)[0]
    (one, state), (two, _) = (kept_bytes(with_depth(config, layers), settings) for layers in (1, 2))
    return one + (depth - 1) * (state if settings.gradient_checkpointing else two - one)


def depth_of(config: "PretrainedConfig") -> int | None:
    sizes = config.network if is_energy(config) else config.to_dict()
    found = sizes.get("n_layer", sizes.get("num_hidden_layers"))
    return None if found is None else int(found)


def with_depth(config: "PretrainedConfig", layers: int) -> "PretrainedConfig":
    whole = config.to_dict()
    inner = whole["network"] if is_energy(config) else whole
    inner["n_layer" if "n_layer" in inner else "num_hidden_layers"] = layers
    return type(config).from_dict(whole)


def kept_bytes(config: "PretrainedConfig", settings: MemorySettings) -> tuple[int, int]:
    """What autograd keeps of one row's forward pass beside the weights, in 16 bits, and what one hidden state is."""
    import torch
    from torch.nn import functional as F

    model = network(config).train()
    sequences = 1 + settings.negatives if is_energy(config) else 1
    ids = torch.zeros((sequences, settings.window), dtype=torch.long)
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    kept: dict[int, Tensor] = {}  # by address; as long as a tensor is in here, nobody else gets it

    def keep(tensor: "Tensor") -> "Tensor":
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        if is_energy(config):
            loss = model(ids).sum()
        else:
            loss = F.cross_entropy(model(ids, use_cache=False).logits.flatten(0, 1), ids.flatten())
    assert loss.requires_grad
    sizes = config.network if is_energy(config) else config.to_dict()
    width = sizes.get("n_embd", sizes.get("hidden_size", 0))
    bytes_of = (
        tensor.untyped_storage().nbytes() // (2 if tensor.is_floating_point() else 1) for tensor in kept.values()
    )
    return sum(bytes_of), 2 * sequences * (settings.window + 1) * width


if __name__ == "__main__":
    exit_with(main)

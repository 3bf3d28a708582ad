"""Low-rank updates: a pretrained classifier's matrices stay as they are, and each learns a small product beside it.

What is new (the head, mostly) is trained whole. On saving, products are added to their matrices: the folder is that of
an ordinary model, and nothing that reads it needs peft.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from pipeline.runtime.errors import UserError
from training.energy.classifier import PREFIX
from training.energy.model import Classifier, EnergyModel

SCALING = 2.0  # of every product: alpha is twice the rank
FIRST, SECOND, BESIDE = ".lora_A.default.weight", ".lora_B.default.weight", ".base_layer."


def add_lora(model: EnergyModel, rank: int, new: Sequence[str]) -> None:
    """Freezes what was pretrained and puts products of this rank beside its matrices; `new` tensors are trained."""
    if not isinstance(model.network, Classifier):
        raise UserError("--lora_rank: of a model that --init names, with --preset encoder or decoder")
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise UserError("--lora_rank: peft is not installed: pip install peft") from None
    classifier = model.network.classifier
    layers = sorted({name.rpartition(".")[0] for name in new})
    targets = [name for name, module in classifier.named_modules() if is_matrix(module) and name not in layers]
    inject_adapter_in_model(
        LoraConfig(r=rank, lora_alpha=int(SCALING * rank), lora_dropout=0.0, target_modules=targets), classifier
    )
    for name, parameter in classifier.named_parameters():
        parameter.requires_grad_(name.endswith((FIRST, SECOND)) or name in new)


def is_matrix(module: nn.Module) -> bool:
    """A layer of a Transformer, by whatever name: GPT-2's have their matrices lying on the side."""
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


def merged(state: dict[str, Tensor], model: EnergyModel) -> dict[str, Tensor]:
    """Weights in which every product is added to its matrix, under the names that they have without any."""
    assert isinstance(model.network, Classifier)
    lying = {PREFIX + name for name, module in model.network.classifier.named_modules() if is_lying(module)}
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if name.endswith((FIRST, SECOND)):
            continue
        layer = name.partition(BESIDE)[0]
        if BESIDE in name and name.endswith(".weight"):
            product = SCALING * (state[layer + SECOND].float() @ state[layer + FIRST].float())
            tensor = (tensor.float() + (product.T if layer in lying else product)).to(tensor.dtype)
        found[name.replace(BESIDE, ".")] = tensor
    return found


def is_lying(module: nn.Module) -> bool:
    return bool(getattr(module, "fan_in_fan_out", False))


def trained_share(model: nn.Module) -> float:
    """Of all parameters."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, trained in sizes if trained) / sum(size for size, _ in sizes)

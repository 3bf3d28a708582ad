"""Energy models: token ids in, one energy a sequence out. Real text has low energy; the score is -E.

Five kinds, one class:

  linear   E(x) = sum over positions of one learned scalar a token
  bilstm   E(x) = w . mean over positions of the top states of a bidirectional LSTM + b
  unit     the same with a causal Transformer, whose states never look ahead
  bit      E(x) = w . the top state at the first position of a bidirectional Transformer + b: an encoder, or a language
           model whose causal mask is taken away
  classifier   E(x) = -logit of transformers' own sequence classifier of one label, its head included: an encoder's or
               a decoder's (training/energy/classifier.py)

`EnergyModel.from_pretrained(folder)` opens the first four, `open_energy_model(folder).load()` all.
"""

import inspect
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import (
    MODEL_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
    initialization,
)

from pipeline.models.residual_lm import config_of
from training.energy.names import BILSTM, BIT, CLASSIFIER, LINEAR, UNIT

PARTS = 8  # that a batch of unequal lengths is computed in, at most
LEAST_IN_A_PART = {"cpu": 4, "cuda": 32}  # sequences: fewer would leave a GPU waiting
WITH_NETWORK = (UNIT, BIT, CLASSIFIER)  # whose `network` is the configuration of a Transformer


class EnergyConfig(PretrainedConfig):
    """An energy model's kind and sizes.

    `network` are the sizes of a bilstm, or the whole configuration of the Transformer inside of the others.
    `start_id` is put before every sequence by the model itself (unit and bit). A classifier with `own_tokenizer` does
    not read the store's ids but those of its own tokenizer, which come with whatever it begins a text with; the end of
    a document is its `separator` then.
    """

    model_type = "residual_ebm_energy"

    def __init__(
        self,
        kind: str = LINEAR,
        vocab_size: int = 50257,
        network: dict[str, Any] | None = None,
        start_id: int | None = None,
        own_tokenizer: bool = False,
        separator: str = "",
        **kwargs: Any,
    ):
        self.kind = kind
        self.vocab_size = vocab_size
        self.network = network or {}
        self.start_id = start_id
        self.own_tokenizer = own_tokenizer
        self.separator = separator
        super().__init__(**{"tie_word_embeddings": False} | kwargs)

    @property
    def positions(self) -> int | None:
        """How many ids it can read, those that it adds itself included; None: any number."""
        return positions_in(config_of(self.network)) if self.kind in WITH_NETWORK else None

    @property
    def longest(self) -> int | None:
        """How many of a sequence's own ids it can read; None: any number."""
        return None if self.positions is None else self.positions - (self.start_id is not None)


class EnergyModel(PreTrainedModel):
    """`model(input_ids, attention_mask=None)`: ids of shape (batch, length) to energies of shape (batch,), in fp32.

    Sequences of unequal length are padded at their end, with any id, and masked.
    """

    config_class = EnergyConfig
    base_model_prefix = "energy"
    supports_gradient_checkpointing = True

    def __init__(self, config: EnergyConfig):
        super().__init__(config)
        self.network = NETWORKS[config.kind](config)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Of what is ours; the Transformers inside initialise themselves. A linear model knows nothing at first."""
        if isinstance(module, nn.Embedding):
            if module.embedding_dim == 1:
                initialization.zeros_(module.weight)
            else:
                initialization.normal_(module.weight, std=0.1)
        elif isinstance(module, nn.Linear):
            initialization.normal_(module.weight, std=0.02)
            initialization.zeros_(module.bias)
        elif isinstance(module, nn.LSTM):
            for name, weight in module.named_parameters():
                initialization.uniform_(weight, -(module.hidden_size**-0.5), module.hidden_size**-0.5)
                if name.startswith("bias"):
                    initialization.zeros_(weight)

    def get_input_embeddings(self) -> nn.Module:
        return self.network.get_input_embeddings()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.network(input_ids, attention_mask).float()


class Head(nn.Linear):
    """From states to energies, in fp32 also where the network has 16 bits.

    An energy of 10 would otherwise be known to 0.03 in bf16, and a perplexity is exp of a mean of energies.
    """

    def __init__(self, width: int):
        super().__init__(width, 1)

    def forward(self, states: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.float()
        return F.linear(states.float(), self.weight.float(), bias)


class BagOfTokens(nn.Module):
    def __init__(self, config: EnergyConfig):
        super().__init__()
        self.energies = nn.Embedding(config.vocab_size, 1)

    def get_input_embeddings(self) -> nn.Module:
        return self.energies

    def forward(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        energies = self.energies(ids).squeeze(2).float()
        return energies.sum(1) if mask is None else (energies * mask).sum(1)


class BidirectionalLSTM(nn.Module):
    def __init__(self, config: EnergyConfig):
        super().__init__()
        sizes = config.network
        self.embeddings = nn.Embedding(config.vocab_size, sizes["embedding"])
        self.lstm = nn.LSTM(sizes["embedding"], sizes["hidden"], sizes["layers"], bidirectional=True, batch_first=True)
        self.energy = Head(2 * sizes["hidden"])

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings

    def forward(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        embedded = self.embeddings(ids)
        if mask is None:
            states, _ = self.lstm(embedded)
        else:
            lengths = mask.sum(1).cpu()
            packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
            states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=ids.shape[1])
        return self.energy(mean_over_positions(states, mask)).squeeze(1)


class InParts(nn.Module):
    """A Transformer that computes sequences of like length together."""

    def forward(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """Sequences of like length are computed together, so that little of what is computed is padding."""
        if mask is None:
            return self.energies(ids, None)
        lengths = mask.sum(1)
        parts = parts_of_like_length(lengths)
        widths = [int(lengths[part].max()) for part in parts]
        found = [
            self.energies(ids[part, :width], mask[part, :width]) for part, width in zip(parts, widths, strict=True)
        ]
        return torch.cat(found)[torch.cat(parts).argsort()]

    @abstractmethod
    def energies(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """Of sequences that are computed together."""


class TransformerEnergy(InParts):
    """What unit and bit share: any Transformer of transformers', and a linear function of its top states."""

    def __init__(self, config: EnergyConfig):
        super().__init__()
        self.start_id = config.start_id
        self.transformer = without_pooler(config_of(config.network))
        self.energy = Head(self.transformer.config.hidden_size)
        if not is_causal(self.transformer.config):
            remove_causal_mask(self.transformer)

    def get_input_embeddings(self) -> nn.Module:
        return self.transformer.get_input_embeddings()

    def states(self, ids: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
        ids, mask = started(ids, mask, self.start_id)
        return self.transformer(input_ids=ids, attention_mask=mask, **options).last_hidden_state


class Causal(TransformerEnergy):
    """As in a language model, the start token precedes the window; the mean is over the window's own positions."""

    def energies(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        states = self.states(ids, mask, use_cache=False)[:, -ids.shape[1] :]
        return self.energy(mean_over_positions(states, mask)).squeeze(1)

    def of_states(self, context: Tensor, completion: Tensor, length: int) -> Tensor:
        """From the sum of a context's top states and those of a completion, which were computed apart."""
        return self.energy((context + completion.float().sum(1)) / length).squeeze(1)


class Bidirectional(TransformerEnergy):
    def energies(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        options = {"use_cache": False} if hasattr(self.transformer.config, "is_causal") else {}
        return self.energy(self.states(ids, mask, **options)[:, 0]).squeeze(1)


class Classifier(InParts):
    """A sequence classifier as transformers has it: what it reads besides the ids is what its own users give it."""

    def __init__(self, config: EnergyConfig):
        super().__init__()
        self.classifier = AutoModelForSequenceClassification.from_config(config_of(config.network))
        head_of(self.classifier).__class__ = Head
        self.pad_id: int = self.classifier.config.pad_token_id
        self.start_id = config.start_id

    def get_input_embeddings(self) -> nn.Module:
        return self.classifier.get_input_embeddings()

    @property
    def is_decoder(self) -> bool:
        """Whether the energy is a function of the last state, which sees only what comes before."""
        return hasattr(self.classifier, "score")

    @property
    def transformer(self) -> PreTrainedModel:
        return self.classifier.base_model

    def of_states(self, context: Tensor, completion: Tensor, length: int) -> Tensor:
        """From the top states of a completion, where they are a decoder's: the last one alone counts."""
        return -self.classifier.score(completion[:, -1]).squeeze(1)

    def energies(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        ids, found = started(ids, mask, self.start_id)
        seen = torch.ones_like(ids) if found is None else found
        options = {"use_cache": False} if self.is_decoder else {}
        padded = torch.where(seen > 0, ids, self.pad_id)  # decoders find a sequence's end by it
        return -self.classifier(input_ids=padded, attention_mask=seen, **options).logits[:, 0]


NETWORKS: dict[str, type[BagOfTokens | BidirectionalLSTM | TransformerEnergy | Classifier]] = {
    LINEAR: BagOfTokens,
    BILSTM: BidirectionalLSTM,
    UNIT: Causal,
    BIT: Bidirectional,
    CLASSIFIER: Classifier,
}


def head_of(classifier: nn.Module) -> nn.Linear:
    """The layer that the one logit comes from, whatever its family calls it."""
    return [module for module in classifier.modules() if isinstance(module, nn.Linear) and module.out_features == 1][-1]


def started(ids: Tensor, mask: Tensor | None, start_id: int | None) -> tuple[Tensor, Tensor | None]:
    """Sequences with the token that precedes them, if there is one."""
    if start_id is None:
        return ids, mask
    ids = torch.cat([ids.new_full((len(ids), 1), start_id), ids], dim=1)
    return ids, None if mask is None else torch.cat([mask.new_ones((len(mask), 1)), mask], dim=1)


def parts_of_like_length(lengths: Tensor) -> list[Tensor]:
    """The places of sequences, shortest first, in parts whose number depends on that of the sequences alone.

    Under ZeRO 3 all ranks must go through the network equally often.
    """
    least = LEAST_IN_A_PART["cuda" if torch.cuda.is_available() else "cpu"]
    count = max(1, min(PARTS, len(lengths) // least))
    return list(lengths.argsort(stable=True).tensor_split(count))


def mean_over_positions(states: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return states.float().mean(1)
    weights = mask.unsqueeze(2).float()
    return (states * weights).sum(1) / weights.sum(1)


def is_causal(config: PretrainedConfig) -> bool:
    """Whether a Transformer's states see only what comes before; transformers takes a decoder's mask away by this."""
    return bool(getattr(config, "is_causal", True))


def remove_causal_mask(transformer: PreTrainedModel) -> None:
    """Lets every state of a decoder see all others: its attention asks for the mask where none is made beforehand."""
    for module in transformer.modules():
        if hasattr(module, "is_causal"):
            module.is_causal = False


def positions_in(config: PretrainedConfig) -> int | None:
    """How many ids a Transformer can read; None: any number."""
    positions = getattr(config, "max_position_embeddings", None)
    return positions if positions is None else int(positions) - unused_positions(config)


def unused_positions(config: PretrainedConfig) -> int:
    """RoBERTa and its kin count positions from one after the padding's id: what comes before is never trained."""
    return int(config.pad_token_id) + 1 if "roberta" in config.model_type or config.model_type == "camembert" else 0


def without_pooler(config: PretrainedConfig) -> PreTrainedModel:
    """The bare Transformer; a pooler, where it would come with one, would never be trained."""
    poolable = "add_pooling_layer" in inspect.signature(MODEL_MAPPING[type(config)]).parameters
    return AutoModel.from_config(config, **({"add_pooling_layer": False} if poolable else {}))


AutoConfig.register(EnergyConfig.model_type, EnergyConfig, exist_ok=True)
AutoModel.register(EnergyConfig, EnergyModel, exist_ok=True)

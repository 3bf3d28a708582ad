"""Pretrained models of a few thousand weights, as they would come from elsewhere, and classifiers made of them."""

import json
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from pipeline.models.model_folder import quiet
from pipeline.text.tokenizer import load_tokenizer
from training.energy.first_weights import copy_first_weights, find_first_weights
from training.energy.model import EnergyModel
from training.language.presets import PRESETS as LM_PRESETS

POSITIONS = 64
BIT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 1, "intermediate_size": 128}  # bit-nano's


def save(model, folder: Path, tokenizer) -> str:
    with quiet():
        model.save_pretrained(folder)
        if isinstance(tokenizer, str):
            load_tokenizer(tokenizer).save(str(folder))
        else:
            tokenizer.save_pretrained(folder)
    return str(folder)


def loud(model):
    """Weights large enough that every part of a network shows."""
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model.eval()


def permuted_roberta(encoder) -> tuple[PreTrainedTokenizerFast, dict[int, int]]:
    """RoBERTa's kind of vocabulary: the same pieces under other ids, between specials; and our ids in its terms."""
    content = json.loads(encoder.backend.to_str())
    pieces = sorted(content["model"]["vocab"], key=content["model"]["vocab"].get)
    order = np.random.default_rng(0).permutation(len(pieces))
    theirs = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3} | {pieces[old]: 4 + new for new, old in enumerate(order)}
    theirs["<mask>"] = len(theirs)
    content["model"]["vocab"], content["added_tokens"] = theirs, []
    backend = Tokenizer.from_str(json.dumps(content))
    specials = {
        "bos": "<s>",
        "cls": "<s>",
        "eos": "</s>",
        "sep": "</s>",
        "pad": "<pad>",
        "unk": "<unk>",
        "mask": "<mask>",
    }
    named = {f"{name}_token": piece for name, piece in specials.items()}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **named)
    ours = encoder.backend.get_vocab(with_added_tokens=True)
    return tokenizer, {id: theirs.get(piece, theirs["</s>"]) for piece, id in ours.items()}


def source_of(kind: str, encoder, folder: Path) -> str:
    """A pretrained model of a few thousand weights, as it would come from elsewhere."""
    if kind == "encoder":
        own, _ = permuted_roberta(encoder)
        own.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
        )
        return save(
            loud(BertForMaskedLM(BertConfig(vocab_size=len(own), max_position_embeddings=POSITIONS, **BIT))),
            folder,
            own,
        )
    if kind == "decoder of another vocabulary":
        own, _ = permuted_roberta(encoder)
        config = LM_PRESETS["transf-nano"].build(len(own), 256, None)
        return save(loud(GPT2LMHeadModel(config)), folder, own)
    if kind == "llama":
        sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = LlamaConfig(vocab_size=encoder.vocabulary_size, max_position_embeddings=256, **sizes)
        config.eos_token_id = encoder.eos_token_id
        model = loud(LlamaForCausalLM(config))
    else:
        model = loud(GPT2LMHeadModel(LM_PRESETS["transf-nano"].build(encoder.vocabulary_size, 256, None)))
    load_tokenizer_into(encoder, folder)
    model.save_pretrained(folder)
    return str(folder)


def load_tokenizer_into(encoder, folder: Path) -> None:
    folder.mkdir(parents=True)
    encoder.save(str(folder))


def untrained(kind: str, encoder, folder: Path):
    """An energy model whose every weight shows, from such a source."""
    init = source_of(kind, encoder, folder / "source")
    first = find_first_weights(init, "encoder" if kind == "encoder" else "decoder", encoder.description)
    model = EnergyModel(first.config).eval()
    report = copy_first_weights(model, first, encoder, 32)
    return loud(model), first, report

"""A bit as transformers' ELECTRA classifier, whose body is BERT's and whose head can hold a linear function exactly.

The head is out(gelu(dense(h))), and gelu(u) - gelu(-u) = u for every u: two rows of the dense layer are the score and
its opposite, the others nothing.
"""

import torch
from transformers import BertConfig, ElectraConfig, ElectraForSequenceClassification, PreTrainedTokenizerFast

from pipeline.runtime.errors import UserError
from training.energy.classifier import LABEL
from training.energy.folder import EnergyModelFolder
from training.energy.model import Bidirectional

START = ("<s>", "<|s|>")  # the first that is no piece of the vocabulary
BODY = [
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act", "layer_norm_eps"),
    *("vocab_size", "max_position_embeddings", "type_vocab_size"),
]


def as_electra(folder: EnergyModelFolder) -> tuple[ElectraForSequenceClassification, PreTrainedTokenizerFast]:
    """The same energies from a standard class, and the tokenizer that puts the model's first token before a text."""
    network = folder.load().network
    if not isinstance(network, Bidirectional) or not isinstance(network.transformer.config, BertConfig):
        raise UserError(
            f"{folder.name}: a model of kind {folder.config.kind} fits no class of transformers' exactly; those of "
            f"--preset encoder and decoder are such classes as they are"
        )
    body = network.transformer.config
    sizes = {name: getattr(body, name) for name in BODY}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0}
    config = ElectraConfig(embedding_size=body.hidden_size, pad_token_id=None, **sizes, **dropout)
    config.id2label, config.label2id = {0: LABEL}, {LABEL: 0}
    config.problem_type = "multi_label_classification"
    config.provenance = folder.provenance
    made = ElectraForSequenceClassification(config).eval()
    made.electra.load_state_dict(network.transformer.state_dict())
    weight, bias = network.energy.weight[0], network.energy.bias[0]
    with torch.no_grad():
        for parameter in made.classifier.parameters():
            parameter.zero_()
        for row, sign in enumerate((-1.0, 1.0)):
            made.classifier.dense.weight[row], made.classifier.dense.bias[row] = sign * weight, sign * bias
            made.classifier.out_proj.weight[0, row] = -sign
    return made, tokenizer_of(folder)


def tokenizer_of(folder: EnergyModelFolder) -> PreTrainedTokenizerFast:
    """That of the windows, which begins a text with the model's own first token."""
    from tokenizers import AddedToken, Tokenizer, processors

    start_id = folder.config.start_id
    backend = Tokenizer.from_str(folder.encoder.backend.to_str())
    start = next(piece for piece in START if backend.token_to_id(piece) is None)
    backend.add_special_tokens([AddedToken(start, special=True, normalized=False)])
    if backend.token_to_id(start) != start_id:
        raise UserError(f"{folder.name}: its tokenizer has no room for the token of id {start_id} before a text")
    backend.post_processor = processors.TemplateProcessing(single=f"{start} $A", special_tokens=[(start, start_id)])
    eos = folder.encoder.eos_token
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        cls_token=start,
        eos_token=eos,
        pad_token=eos,  # where attention is masked, any piece will do
        model_max_length=folder.config.positions,
        clean_up_tokenization_spaces=False,
    )

"""The page of a model, from its configuration, what its training wrote into it, and what was measured of it."""

import json
import os
from typing import Any

from evaluation.hub.metrics import Measured, results_of
from evaluation.hub.origins import stores_of
from evaluation.hub.page import Fact, flat, footer, made, measured, page, used
from evaluation.hub.subjects import ModelSubject
from pipeline.models.language_model import LanguageModelFolder
from pipeline.runtime.markdown import table
from schemas.division import LEFT_TO_RIGHT, RIGHT_TO_LEFT

CLASSIFIES, GENERATES = "text-classification", "text-generation"
# What a training writes, and what it is called on the page; what it did not write is left out.
RECORDED = {
    "preset": "preset",
    "objective": "objective",
    "corpus": "corpus",
    "split": "split",
    "train": "trained on the store",
    "negatives": "negatives of each window",
    "seed": "seed",
    "batch_size": "batch size",
    "max_lr": "highest learning rate",
    "max_steps": "steps at most",
    "step": "steps until these weights",
    "perplexity": "perplexity on the validation windows, as the training counted it",
    "accuracy": "accuracy on the validation negatives, as the training counted it",
    "code_version": "version of the code",
}
WHOLE = {"seed", "step", "max_steps"}  # numbers that are names, or are compared digit by digit
ENERGY = (
    "An energy model of text: it reads a whole text and gives it one number, its energy E, low if the text looks real. "
    "A text with −E above 0 is called real. With a language model it stands for P(x) ∝ P_φ(x) · exp(−E(x))."
)
LANGUAGE = {
    LEFT_TO_RIGHT: "A language model, which reads text from left to right.",
    RIGHT_TO_LEFT: "A language model, which reads text from right to left: its tokens are in reversed order.",
}
WITH_PROJECT = "With the package residual-ebm:"

ENERGY_CODE = """
from evaluation import Detector

for found in Detector("{repo}").score(["Call me Ishmael.", "The the the the"]):
    print(found.score)  # above 0: real
"""
CLASSIFIER_CODE = """
from transformers import pipeline

classify = pipeline("text-classification", model="{repo}")
print(classify(["Call me Ishmael.", "The the the the"]))  # sigmoid(-E), of being real
"""
PLAIN_CODE = """
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("{repo}"), AutoModelForCausalLM.from_pretrained("{repo}")
ids = tokenizer({start}"It was a bright cold day", return_tensors="pt").input_ids
print(tokenizer.decode(model.generate(ids, max_new_tokens=20, do_sample=True)[0]))
"""
OWN_CODE = """
from pipeline import Sampling, open_generator
from pipeline.text.tokenizer import load_tokenizer

tokenizer = load_tokenizer("hf://{repo}")
context = tokenizer.encode(["It was a bright cold day"])[0]
generator = open_generator("{repo}", Sampling("temperature"), "torch", window_length=len(context) + 20)
print(tokenizer.decode(generator.sample([context], lengths=[20], seeds=[7])[0].tokens[0]))
"""


def model_card(
    subject: ModelSubject,
    repo: str,
    licence: str | None,
    base_model: str | None,
    data_sets: tuple[str, ...],
    found: Measured,
) -> str:
    from huggingface_hub import ModelCardData

    library, task = library_of(subject), task_of(subject)
    results = results_of(found.metrics, task or (CLASSIFIES if subject.is_energy else GENERATES))
    head = ModelCardData(
        base_model=base_model,
        datasets=list(data_sets) or None,
        license=licence,
        library_name=library,
        pipeline_tag=task,
        tags=["residual-ebm", subject.what.replace(" ", "-")],
        **({"model_name": repo.partition("/")[2], "eval_results": results} if results else {}),
    )
    parts = [
        [about(subject)],
        made(facts_of(subject)),
        training_stores(subject),
        measured(found),
        usage(subject, repo),
        footer(licence),
    ]
    return page(head.to_yaml(), repo, parts)


def about(subject: ModelSubject) -> str:
    return ENERGY if subject.is_energy else LANGUAGE[direction_of(subject)]


def direction_of(subject: ModelSubject) -> str:
    return subject.model.direction if isinstance(subject.model, LanguageModelFolder) else LEFT_TO_RIGHT


def architecture_of(subject: ModelSubject) -> str:
    return str(next(iter(subject.model.config.architectures or []), ""))


def library_of(subject: ModelSubject) -> str:
    """transformers, where its own classes open the folder and read it as it is meant."""
    import transformers

    known = hasattr(transformers, architecture_of(subject))
    return "transformers" if known and direction_of(subject) == LEFT_TO_RIGHT else "residual-ebm"


def task_of(subject: ModelSubject) -> str | None:
    """What the hub may offer to try the model with; nothing where its widget would read the model wrongly."""
    if library_of(subject) != "transformers":
        return None
    architecture = architecture_of(subject)
    if architecture.endswith("ForSequenceClassification"):
        return CLASSIFIES
    return GENERATES if architecture.endswith(("ForCausalLM", "LMHeadModel")) else None


def facts_of(subject: ModelSubject) -> list[Fact]:
    model, known = subject.model, subject.model.provenance
    facts: list[Fact] = [("architecture", architecture_of(subject) or model.config.model_type)]
    facts += [("numbers in its weights", f"{model.parameters:,}")]
    for name, label in RECORDED.items():
        if name in known:
            facts.append((label, str(known[name]) if name in WHOLE else flat(known[name])))
    if "init" in known:
        facts.append(("first weights", started(known["init"])))
    if known.get("base"):
        facts.append(("weights of the language model inside of it", flat(known["base"])))
    facts += [("digest of the weights", model.weights_digest), ("digest of the tokenizer", model.tokenizer_digest)]
    return facts if known else [*facts, ("training", "not recorded in its folder")]


def started(init: Any) -> str:
    return f"those with the digest {flat(init)}" if init else "random"


def training_stores(subject: ModelSubject) -> list[str]:
    """What an energy model learned to tell from real text."""
    if not subject.is_energy or not (stores := stores_of(subject.model.provenance)):
        return []
    rows = []
    for store in stores:
        generator = store.get("generator")
        known: dict[str, Any] = generator if isinstance(generator, dict) else {}
        drawn = [known.get(name) for name in ("architecture", "training_corpus", "digest")]
        rows.append([flat(store.get(name)) for name in ("corpus", "split", "context_lengths")])
        rows[-1] += [*map(flat, drawn), flat(store.get("sampling")), flat(store.get("digest"))]
    columns = ("corpus", "split", "contexts, tokens", "generator", "trained on", "its weights", "sampling", "store")
    return ["It was trained on negatives of these stores:", "", *table(columns, rows)]


def usage(subject: ModelSubject, repo: str) -> list[str]:
    if task_of(subject) == CLASSIFIES:
        return used(CLASSIFIER_CODE.format(repo=repo))
    if subject.is_energy:
        return used(ENERGY_CODE.format(repo=repo), WITH_PROJECT)
    if library_of(subject) != "transformers":
        return used(OWN_CODE.format(repo=repo), WITH_PROJECT)
    return used(PLAIN_CODE.format(repo=repo, start="tokenizer.bos_token + " if has_start(subject) else ""))


def has_start(subject: ModelSubject) -> bool:
    """Whether its tokenizer has the token that came before every text in its training."""
    path = os.path.join(subject.model.folder, "tokenizer_config.json")
    if not (subject.model.provenance and os.path.isfile(path)):
        return False
    with open(path, encoding="utf-8") as file:
        return bool(json.load(file).get("bos_token"))

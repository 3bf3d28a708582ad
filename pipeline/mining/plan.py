"""Which stores a mining run makes: one for every generator and sampling rule, each checked before an engine loads."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.engines.choice import VLLM
from pipeline.engines.sampling import NUCLEUS, RULES, Sampling
from pipeline.engines.vllm_models import check_before_submission
from pipeline.mining.job import StoreJob
from pipeline.mining.settings import MiningSettings
from pipeline.models.language_model import LanguageModelFolder, open_language_model
from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from pipeline.runtime.yaml_file import read_yaml
from pipeline.stores.manifest import Record
from pipeline.stores.writer import StoreWriter
from pipeline.text.inputs import share_text

SCRIPT = "pipeline/mine_negatives.py"
LIST_OF_GENERATORS = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["generator"],
        "additionalProperties": False,
        "properties": {
            "generator": {"type": "string", "minLength": 1},
            "sampling": {"enum": list(RULES)},
            "top_k": {"type": "integer"},
            "top_p": {"type": "number"},
            "name": {
                "type": "string",
                "pattern": r"^(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.+-]*$",
                "description": "a folder's name: letters, digits, - _ . and +, not beginning with a dash or a dot",
            },
        },
    },
}


@dataclass(frozen=True)
class WindowsFacts:
    """What has to be known of the windows before they are read, or made; the digest only if they are there."""

    path: str
    settings: dict[str, Any]
    tokenizer: dict[str, Any]
    digest: str | None
    text: dict[str, Any] | None = None  # see `text_of`

    @property
    def window(self) -> int:
        return int(self.settings["window"])


@dataclass(frozen=True)
class PlannedStore:
    """A store to be made: a generator, its sampling rule, and the name of the folder if there are several."""

    generator: str
    sampling: Sampling
    name: str


def find_stores(
    settings: MiningSettings, windows: WindowsFacts, lengths: Sequence[int], beam: Sequence[str]
) -> Iterator[StoreJob]:
    """A store for every generator and rule; what does not fit the windows is refused."""
    planned = list(planned_stores(settings))
    outputs: set[str] = set()
    for plan in planned:
        name, sampling = plan.generator, plan.sampling
        model = open_language_model(name)
        model.check_fits(windows.window, windows.tokenizer, windows.path)
        if settings.engine == VLLM:
            model.check_runs_elsewhere()
            if is_elsewhere(beam):
                check_before_submission(model, windows.window, on_gpus=bool(settings.accelerator))
        output = settings.output if len(planned) == 1 else files.join(settings.output, plan.name)
        if output in outputs:
            raise UserError(f"--generator {name}: two generators of the same name and rule would share {output}")
        outputs.add(output)
        description = describe_generator(model, windows.text)
        result = settings.result() | {
            "corpus": windows.settings.get("corpus"),
            "split": windows.settings.get("split"),
            "window": windows.window,
            "context_lengths": list(lengths),
            "generator": description["digest"],
            "direction": description["direction"],
            "sampling": sampling.description,
        }
        alone = settings.of_one(name, sampling.rule, sampling.top_k, sampling.top_p, output)
        writer = StoreWriter(output, Record.of(SCRIPT, alone, result, beam), "negatives")
        yield StoreJob(writer, name, settings.engine, sampling, description)


def describe_generator(model: LanguageModelFolder, text: dict[str, Any] | None = None) -> dict[str, Any]:
    """What the manifest says of a generator, from which tables are labelled later; `text` is what it continues."""
    model.check_weights()
    known = model.provenance
    return {
        "path": model.name,
        "digest": model.weights_digest,
        "architecture": known.get("preset") or model.config.model_type,
        "training_corpus": known.get("corpus"),
        "training_seed": known.get("seed"),
        "direction": model.direction,
        "parameters": model.parameters,
        "trained_on_this_text": share_text(known.get("text"), text),
    }


def planned_stores(settings: MiningSettings) -> Iterator[PlannedStore]:
    """Every generator with its rule: from the flags, or from a YAML list."""
    if settings.generators:
        yield from listed_stores(settings.generators, settings)
        return
    for name in settings.generator:
        for rule in settings.rules:
            sampling = Sampling(rule, settings.top_k, settings.top_p)
            yield PlannedStore(name, sampling, f"{os.path.basename(name.rstrip('/'))}-{rule}")


def listed_stores(file: str, settings: MiningSettings) -> Iterator[PlannedStore]:
    for entry in read_yaml(file, LIST_OF_GENERATORS):
        rule = entry.get("sampling", "temperature")
        sampling = Sampling(rule, entry.get("top_k", settings.top_k), float(entry.get("top_p", settings.top_p)))
        own = entry.get("name") or f"{os.path.basename(entry['generator'].rstrip('/'))}-{rule}"
        yield PlannedStore(entry["generator"], sampling, own)


def needs_sharing(stores: Sequence[StoreJob], beam: Sequence[str]) -> bool:
    """Whether generators need processes of their own: several workers, or several vLLM engines."""
    engines = {(store.generator, store.sampling.rule == NUCLEUS) for store in stores if store.engine == VLLM}
    if len(engines) > 1 or not beam:
        return len(engines) > 1
    from pipeline.runtime.beam import beam_options, is_local, worker_processes

    options = beam_options(beam)
    return is_local(options) and worker_processes(options) > 1


def is_elsewhere(beam: Sequence[str]) -> bool:
    """Whether a runner other than this machine's does the work, and replaces workers that end."""
    if not beam:
        return False
    from pipeline.runtime.beam import beam_options, is_local

    return not is_local(beam_options(beam))

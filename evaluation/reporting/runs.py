"""What was run on what: corpora, generators, energy models, samples, and the code and libraries that made them."""

from collections.abc import Callable
from typing import Any

from evaluation.reporting.blocks import (
    Cell,
    Fold,
    Gap,
    PageBlock,
    PageSection,
    Table,
    count,
    digest,
    listed,
    percent,
    perplexity,
    times,
    words,
)
from evaluation.reporting.health import health_table
from evaluation.reporting.inputs import Result, StudyResults
from pipeline.runtime import files
from pipeline.runtime.errors import UserError

TRAIN_LM = "deepspeed training/train_lm.py --preset NAME --train WINDOWS --valid WINDOWS --output MODEL"
TRAIN_ENERGY = "deepspeed training/train_energy.py --preset NAME --train NEGATIVES --valid NEGATIVES --output MODEL"
MAKE_WINDOWS = "python pipeline/make_windows.py --input TEXTS --split test --output STORE"
MINE = "python pipeline/mine_negatives.py --windows STORE --generator MODEL --output STORE"
SCORE = "python evaluation/score.py --energy MODEL --store NEGATIVES --output STORE"

Digests = Callable[[str], str | None]


def runs_section(found: StudyResults, digests: Digests | None = None) -> PageSection:
    digests = digests or weights_digest
    blocks: list[PageBlock] = []
    tables = (
        (corpora(found.of("windows")), "No windows stores", MAKE_WINDOWS),
        (generators(found.of("language_model"), digests), "No language models", TRAIN_LM),
        (energy_models(found.of("energy_model"), digests), "No energy models", TRAIN_ENERGY),
        (sample_stores(found.of("negatives")), "No stores of negatives or samples", MINE),
        (energy_stores(found.of("energies")), "No stores of energies", SCORE),
    )
    for table, lacking, command in tables:
        if table.rows:
            blocks.append(Fold(f"{table.caption} ({len(table.rows)})", [table]))
        else:
            blocks.append(Gap(f"{lacking} in these folders.", [command]))
    if negatives := found.of("negatives"):
        blocks.append(health_table(negatives))
    last = versions(found)
    blocks.append(Fold(last.caption, [last]))
    return PageSection("runs", "What was run on what", blocks)


def corpora(stores: list[Result]) -> Table:
    rows = []
    for store in stores:
        settings, counts = store.content["settings"], store.content["counts"]
        shape = f"{settings.get('window', '?')} tokens, stride {settings.get('stride', '?')}"
        rows.append(
            [
                words(store.name),
                words(f"{settings.get('corpus') or '–'}, {settings.get('split') or '–'}"),
                count(counts.get("documents")),
                count(counts.get("tokens")),
                Cell(f"{store.content['rows']:,}", store.content["rows"], small=of_all(store.content)),
                words(shape),
                count(counts.get("rejected")),
                digest(store.content["digest"]),
            ]
        )
    columns = ("Store", "Corpus", "Documents", "Tokens", "Windows", "A window", "Rejected", "Digest")
    return Table("Corpora", columns, rows)


def of_all(content: dict[str, Any]) -> tuple[str, ...]:
    """How many windows the text has, where a limit took fewer."""
    there = content["counts"].get("windows")
    return (f"of {there:,}",) if there and there != content["rows"] else ()


def generators(models: list[Result], digests: Digests) -> Table:
    rows = []
    for model in models:
        known = model.content.get("provenance") or {}
        rows.append(
            [
                words(model.name),
                words(known.get("preset") or model.content["model_type"]),
                words(known.get("corpus")),
                words((known.get("direction") or model.content.get("direction") or "").replace("_", " ")),
                count(known.get("parameters")),
                perplexity(known.get("perplexity")),
                count(known.get("step")),
                words(known.get("seed")),
                digest(digests(model.path)),
            ]
        )
    columns = ("Model", "Preset", "Corpus", "Direction", "Parameters", "Valid perplexity", "Steps", "Seed", "Digest")
    return Table("Language models", columns, rows)


def energy_models(models: list[Result], digests: Digests) -> Table:
    rows = []
    for model in models:
        known = model.content.get("provenance") or {}
        stores = known.get("stores") or []
        rows.append(
            [
                words(model.name),
                words(known.get("preset") or model.content.get("kind")),
                words(known.get("objective")),
                words(listed(store_label(store) for store in stores)),
                count(known.get("parameters")),
                percent(known.get("accuracy"), 2),
                count(known.get("step")),
                words(known.get("seed")),
                digest(digests(model.path)),
            ]
        )
    columns = (
        "Model",
        "Preset",
        "Objective",
        "Trained on",
        "Parameters",
        "Valid accuracy",
        "Steps",
        "Seed",
        "Digest",
    )
    return Table("Energy models", columns, rows)


def store_label(store: dict[str, Any]) -> str:
    """Of a store that an energy model was trained on, as its provenance describes it."""
    generator, rule = store.get("generator") or {}, (store.get("sampling") or {}).get("rule")
    drawn = " ".join(str(word) for word in (generator.get("architecture"), rule) if word)
    return f"{store.get('corpus') or '?'} {store.get('split') or ''}".strip() + (f" ({drawn})" if drawn else "")


def sample_stores(stores: list[Result]) -> Table:
    rows = []
    for store in stores:
        settings, sampling = store.content["settings"], store.content["sampling"] or {}
        generator = store.content["generator"] or {}
        lengths = settings.get("context_lengths") or []
        rows.append(
            [
                words(store.name),
                words(f"{settings.get('corpus') or '–'}, {settings.get('split') or '–'}"),
                words(generator.get("architecture")),
                words(generator.get("training_seed")),
                words(rule_of(sampling)),
                count(settings.get("negatives")),
                words(f"{lengths[0]} to {lengths[-1]}" if len(lengths) > 3 else listed(map(str, lengths))),
                count(store.content["rows"]),
                digest(generator.get("digest")),
            ]
        )
    columns = ("Store", "Of", "Generator", "Its seed", "Rule", "Samples", "Contexts", "Rows", "Generator's digest")
    return Table("Samples: negatives, and what bounds are computed from", columns, rows)


def rule_of(sampling: dict[str, Any]) -> str:
    """`top_k 10`: a rule and what it depends on."""
    rule = sampling.get("rule")
    amount = sampling.get({"top_k": "top_k", "nucleus": "top_p"}.get(str(rule), ""))
    return "" if rule is None else f"{rule} {amount:g}" if amount is not None else str(rule)


def energy_stores(stores: list[Result]) -> Table:
    rows = []
    for store in stores:
        settings, parent = store.content["settings"], store.content["parent"] or {}
        energy = settings.get("energy") or {}
        rows.append(
            [
                words(store.name),
                words(energy.get("preset") or energy.get("kind")),
                words(files.join("", *str(parent.get("path", "–")).rstrip("/").split("/")[-2:]).strip("/")),
                count(store.content["rows"]),
                digest(energy.get("digest")),
            ]
        )
    return Table("Energies", ("Store", "Model", "Of", "Energies", "Model's digest"), rows)


def versions(found: StudyResults) -> Table:
    """The code and the libraries, and when: of everything that says so."""
    code: list[str] = []
    libraries: dict[str, list[str]] = {}
    machines: list[str] = []
    created = []
    for result in found.results:
        provenance = result.content.get("provenance") or {}
        code += [str(known) for known in (result.content.get("code_version"), provenance.get("code_version")) if known]
        created += [result.content["created"]] if result.content.get("created") else []
        machines += [result.content["machine"]] if result.content.get("machine") else []
        for name, version in (result.content.get("versions") or {}).items():
            libraries.setdefault(name, []).append(version)
    span = f"{moment(min(created))} to {moment(max(created))}" if created else None
    rows = [
        [words("Stores were made"), words(span)],
        [words("Code"), words(listed(sorted(code), 6))],
        *([words(name), words(listed(sorted(known)))] for name, known in sorted(libraries.items())),
        [words("Machine"), words(listed(sorted(machines)) or None)],
    ]
    return Table("Code, libraries and times", ("What", "Which"), rows, [summary_of(found)])


def moment(created: str) -> str:
    """`2026-11-16 11:26 UTC`."""
    return created[:16].replace("T", " ") + (" UTC" if created.endswith("+00:00") else "")


def summary_of(found: StudyResults) -> str:
    kinds = {"windows": "store", "negatives": "store", "energies": "store"}
    kinds |= {"language_model": "model", "energy_model": "model"}
    numbers: dict[str, int] = {}
    for result in found.results:
        kind = kinds.get(result.kind, "result")
        numbers[kind] = numbers.get(kind, 0) + 1
    return "Found: " + ", ".join(times(number, kind) for kind, number in numbers.items()) + "."


def weights_digest(folder: str) -> str | None:
    """Of a model on this machine; weights elsewhere are not fetched for it."""
    if not files.is_local(folder):
        return None
    from pipeline.models.model_folder import ModelFolder

    try:
        return ModelFolder(folder, folder, None).weights_digest  # its weights alone are read
    except (UserError, OSError):
        return None

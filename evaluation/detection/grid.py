"""A grid of accuracies: every row's model on every column's test set, each cell with its setting."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.detection.accuracy import Accuracy, Rule, balanced_accuracy, best_rule
from evaluation.detection.labels import (
    ENERGY,
    LIKELIHOOD,
    TFIDF,
    Origin,
    origin,
    origin_of_stores,
    setting_of,
    warning_about,
)
from evaluation.detection.texts import whole_texts
from evaluation.detection.tfidf import Tfidf, train_tfidf
from evaluation.detection.window_texts import texts_of
from evaluation.score import ScoreSettings, describe_energy, score
from pipeline.models.language_model import open_language_model
from pipeline.runtime import files
from pipeline.runtime.digests import digest_of
from pipeline.runtime.errors import UserError
from pipeline.stores.reader import Store
from pipeline.text.named_texts import find_texts
from training.energy.folder import open_energy_model

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """s = -E of a test set's real and generated windows (or texts), which window each is of, and its context."""

    real: Numbers
    generated: Numbers
    real_windows: NDArray[Any]
    generated_windows: NDArray[Any]
    real_contexts: NDArray[np.int64]
    generated_contexts: NDArray[np.int64]

    def accuracy(self, rule: Rule, context: int | None = None) -> Accuracy:
        kept = [
            np.ones(len(lengths), bool) if context is None else lengths == context
            for lengths in (self.real_contexts, self.generated_contexts)
        ]
        return balanced_accuracy(
            rule.sign * self.real[kept[0]],
            rule.sign * self.generated[kept[1]],
            self.real_windows[kept[0]],
            self.generated_windows[kept[1]],
            rule.threshold,
        )


@dataclass(frozen=True)
class GridData:
    """A test set, or what a baseline learns from: stores of negatives, or files of real and of generated texts."""

    stores: tuple[str, ...] = ()
    real: tuple[str, ...] = ()
    generated: tuple[str, ...] = ()

    @staticmethod
    def of(given: Any, root: str) -> "GridData":
        def placed(paths: Sequence[str]) -> tuple[str, ...]:
            return tuple(at(root, path) for path in paths)

        if isinstance(given, list):
            return GridData(stores=placed(given))
        return GridData(
            placed(given.get("stores", ())), placed(given.get("real", ())), placed(given.get("generated", ()))
        )

    def opened(self) -> list[Store]:
        return [Store(path, kind="negatives") for path in self.stores]


@dataclass(frozen=True)
class GridModel:
    """A row's model: what it is, what it was trained on, what it calls real, how it scores a test set, its folder."""

    description: dict[str, Any]
    train: Origin
    rule: Rule
    scores: Callable[[GridData], Scores]
    folder: str | None = None  # none where no store of energies is kept


def at(root: str, path: str) -> str:
    """A path of a grid file, which is relative to the root."""
    return path if "://" in path or os.path.isabs(path) else files.join(root, path)


@dataclass
class Grid:
    """What the cells of a grid are computed with; energies are stores below `energies`, made once."""

    root: str
    energies: str
    baselines: dict[str, Tfidf] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)

    def cell(self, row: dict[str, Any], column: dict[str, Any]) -> dict[str, Any]:
        """Accuracy, interval, setting and warnings; or what stood in the way."""
        cell: dict[str, Any] = {"row": row["name"], "column": column["name"]}
        try:
            model = self.model(row, column["name"])
            cell["model"] = model.description
            data = GridData.of(column, self.root)
            test = origin_of_column(column, data)
            scores = model.scores(data)
        except UserError as error:
            return cell | {"problem": str(error)}
        lengths = sorted({int(length) for length in np.unique(scores.real_contexts)})
        warning = warning_about(model.train, test)
        if model.folder and data.stores:
            cell["energies"] = [self.energies_of(model.folder, path) for path in data.stores]
        return cell | {
            "setting": setting_of(model.train, test),
            "trained": model.train.described(),
            "tested": test.described() | {"rules": rules_of(data)},
            **scores.accuracy(model.rule).described(),
            "by_context": {str(length): scores.accuracy(model.rule, length).described() for length in lengths},
            "rule": {"sign": model.rule.sign, "threshold": model.rule.threshold},
            "warnings": [warning] if warning else [],
        }

    def model(self, row: dict[str, Any], column: str) -> GridModel:
        """A row's model, as the grid file names it for this column."""
        if "energy" in row:
            name = self.chosen(row, "energy", column)
            folder = open_energy_model(name)
            known = {"role": ENERGY, "kind": folder.family, "preset": folder.provenance.get("preset")}
            return GridModel(
                known | {"digest": folder.weights_digest},
                origin(folder.provenance.get("stores") or []),
                Rule(1, 0.0),
                lambda data: self.scored(name, data),
                name,
            )
        valid = GridData.of(self.chosen(row, "valid", column), self.root)
        if "likelihood" in row:
            name = self.chosen(row, "likelihood", column)
            model = open_language_model(name)
            generator = {"architecture": model.provenance.get("preset"), "digest": model.weights_digest}
            train = origin([{"corpus": model.provenance.get("corpus"), "generator": generator}])
            if (key := digest_of({"model": model.weights_digest, "valid": valid.stores})) not in self.rules:
                there = self.scored(name, valid)
                self.rules[key] = best_rule(there.real, there.generated)
            known = {"role": LIKELIHOOD, "preset": model.provenance.get("preset"), "digest": model.weights_digest}
            return GridModel(known, train, self.rules[key], lambda data: self.scored(name, data), name)
        learned = GridData.of(self.chosen(row, "tfidf", column), self.root)
        key = digest_of({"train": repr(learned), "valid": repr(valid)})
        if key not in self.baselines:
            self.baselines[key] = train_tfidf(*labelled(learned), *labelled(valid))
        train = origin_of_stores(learned.opened()) if learned.stores else Origin(frozenset(), frozenset())
        return GridModel({"role": TFIDF}, train, Rule(1, 0.0), lambda data: by_text(self.baselines[key], data))

    def chosen(self, row: dict[str, Any], key: str, column: str) -> Any:
        """What a row names, or, where it names one for each column, what it names for this one."""
        given = row[key]
        if isinstance(given, dict) and not {"real", "generated"} >= given.keys():
            if column not in given:
                raise UserError(f"row {row['name']}: {key} names nothing for the column {column}")
            given = given[column]
        if not isinstance(given, str):
            return given
        placed = at(self.root, given)
        return placed if files.exists(placed) else given  # else, perhaps, a name of the hub

    def scored(self, model: str, data: GridData) -> Scores:
        if data.real:
            return detected(model, data)
        return joined([read_energies(self.energies_of(model, path)) for path in data.stores])

    def energies_of(self, model: str, path: str) -> str:
        """The store of a model's energies on a store of negatives, made if it is not there."""
        store = Store(path, kind="negatives")
        names = [os.path.basename(os.path.normpath(name)) for name in (model, path)]
        weights_digest = describe_energy(model, store)["digest"]
        pair_digest = digest_of({"energy": weights_digest, "store": store.manifest.digest})[:12]
        output = files.join(self.energies, f"{names[0]}-on-{names[1]}-{pair_digest}")
        score(ScoreSettings(energy=model, store=path, output=output))
        return output


def origin_of_column(column: dict[str, Any], data: GridData) -> Origin:
    """Of stores, from their manifests; of texts, what the grid file says."""
    if data.stores:
        return origin_of_stores(data.opened())
    return Origin(
        frozenset([column["corpus"]] if "corpus" in column else []),
        frozenset([column["architecture"]] if "architecture" in column else []),
    )


def rules_of(data: GridData) -> list[str]:
    """How the negatives of a test set were drawn."""
    return sorted({str((store.manifest.sampling or {}).get("rule")) for store in data.opened()})


def read_energies(path: str) -> Scores:
    store = Store(path, kind="energies")
    names = ["window_id", "context_length", "sample", "energy"]
    rows = store.take(range(len(store)), names)
    windows = rows["window_id"].to_numpy(zero_copy_only=False)
    scores, contexts = -rows["energy"].to_numpy(), rows["context_length"].to_numpy().astype(np.int64)
    real = rows["sample"].to_numpy() < 0
    if real.all():
        raise UserError(f"{path}: there are no negatives in what it was made from")
    return Scores(scores[real], scores[~real], windows[real], windows[~real], contexts[real], contexts[~real])


def joined(parts: Sequence[Scores]) -> Scores:
    names = Scores.__dataclass_fields__
    return Scores(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def by_text(baseline: Tfidf, data: GridData) -> Scores:
    """A baseline that reads text, on a test set."""
    if data.real:
        real, generated = read_all(data.real), read_all(data.generated)
        return unpaired(baseline.score(real), baseline.score(generated))
    parts = []
    for store in data.opened():
        texts = texts_of(store)
        contexts = np.array(texts.contexts, np.int64)
        owners = np.array(texts.windows, object)
        repeated = texts.owners
        parts.append(
            Scores(
                baseline.score(texts.real),
                baseline.score(texts.generated),
                owners,
                owners[repeated],
                contexts,
                contexts[repeated],
            )
        )
    return joined(parts)


def read_all(paths: Sequence[str]) -> list[str]:
    """The texts of files that are not empty, white space collapsed."""
    found = [text for data in find_texts("grid", paths, "text", "utf-8") for text in whole_texts(data)]
    return [text for text in found if text]


def labelled(data: GridData) -> tuple[list[str], list[int]]:
    """Texts and whether they are real, for a baseline to learn from."""
    if data.real:
        real, generated = read_all(data.real), read_all(data.generated)
    else:
        found = [texts_of(store) for store in data.opened()]
        real = [text for texts in found for text in texts.real]
        generated = [text for texts in found for text in texts.generated]
    return [*real, *generated], [1] * len(real) + [0] * len(generated)


def detected(model: str, data: GridData) -> Scores:
    """An energy model on whole texts, block by block."""
    from evaluation.detection.detector import Detector

    detector = Detector(model)
    found = [
        [result.score for result in detector.score(read_all(paths)) if result.score is not None]
        for paths in (data.real, data.generated)
    ]
    return unpaired(np.array(found[0]), np.array(found[1]))


def unpaired(real: Numbers, generated: Numbers) -> Scores:
    """Of texts that have nothing to do with each other."""
    owners = np.arange(len(real)), -1 - np.arange(len(generated))
    return Scores(real, generated, *owners, np.zeros(len(real), np.int64), np.zeros(len(generated), np.int64))

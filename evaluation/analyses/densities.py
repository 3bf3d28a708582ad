"""Densities of log-probability: real completions beside the models' own samples, for the base and the joint model.

  python evaluation/analyses/densities.py --negatives stores/books-test-samples \\
      --energies stores/books-test-energies --output results/densities

A necessary condition for matching the data: under a model that matches them, real completions and the model's own
samples have the same distribution of log-probability. The base model's is log_p, the joint model's log_p - E - log Z,
with the midpoint of the bounds on log Z of each context. The joint model's sample of a context is one of the base
model's, chosen with probability softmax(-E). The stores are those of evaluation/perplexity_bounds.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from evaluation.analyses.analysis import Analysis, AnalysisSettings, mean_and_error, provenance_of, run, write
from evaluation.analyses.inputs import seed_setting, store_of, store_setting
from evaluation.joint.bounds import log_partition_bounds, warnings_about
from evaluation.joint.contexts import open_stores
from evaluation.joint.model import resample
from evaluation.results.figures import BASE, JOINT, REAL, panels, styled
from evaluation.results.parquet_file import write_parquet
from pipeline.engines.sampling import request_seed, uniform
from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.stores.reader import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class ScoredContext:
    """One context: log P_phi and energy of its real completion, (), and of its samples, (n,)."""

    window_id: str
    context_length: int
    real_log_p: float
    real_energy: float
    log_p: Numbers
    energy: Numbers


@dataclass(frozen=True, kw_only=True)
class DensitiesSettings(AnalysisSettings):
    """Samples and their energies, and the seed of the choice among them."""

    negatives: str = store_setting("samples at temperature 1, many a window")
    energies: str = store_setting("their energies, from evaluation/score.py")
    seed: int = seed_setting("the choice among the samples")


def main(arguments: Sequence[str] | None = None) -> int:
    return run(DensitiesSettings, analyse, arguments, __doc__)


def analyse(settings: DensitiesSettings) -> Analysis:
    """Log-probabilities of real completions and of samples under both models; those of each context are written too."""
    store_of(settings.negatives, "negatives")
    samples, scored = open_stores(settings.negatives, settings.energies)
    values, warnings = values_of(samples, scored, settings.seed)
    drawn = int(samples.manifest.settings["negatives"])
    analysis = Analysis(
        analysis="densities",
        title="Log-probability of real completions and of the models' own samples",
        description="Each model's log-probability of real completions beside that of its own samples, by context.",
        rows=[summary("base", values), summary("joint", values)],
        warnings=warnings,
        **provenance_of(settings, {"negatives": samples, "energies": scored}, samples=drawn),
    )
    write_parquet(files.join(settings.output, "values.parquet"), pa.table(values))
    return write(analysis, figure_of(values), settings.output)


def values_of(samples: Store, scored: Store, seed: int) -> tuple[dict[str, Any], list[str]]:
    """The log-probabilities of all contexts, and what is to be said of the estimates of log Z."""
    parts, sentences = [], []
    for contexts in scored_contexts(samples, scored):
        bounds = log_partition_bounds([-context.energy for context in contexts])
        parts.append(log_probabilities(contexts, bounds.midpoint, seed))
        sentences += warnings_about(bounds)
    if not parts:
        raise UserError(f"{scored.path}: there are no energies in it")
    values = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return values, sorted(set(sentences))


def scored_contexts(samples: Store, scored: Store) -> Iterator[list[ScoredContext]]:
    """All contexts, those of one shard of windows at a time: a window's samples may be in several, in succession."""
    drawn = int(samples.manifest.settings["negatives"])
    chunks = -(-drawn // int((samples.manifest.sampling or {})["samples_per_row"]))
    for first in range(0, len(scored.manifest.shards), chunks):
        tables = list(scored.batches(shards=range(first, first + chunks)))
        if not tables or not len(rows := pa.concat_tables(tables)):
            continue
        if rows["log_p"].null_count:
            raise UserError(f"{scored.path}: texts whose log-probability nobody knows have no density")
        rows = rows.sort_by([(name, "ascending") for name in ("window_id", "context_length", "sample")])
        if (rows["sample"].to_numpy().reshape(-1, 1 + drawn) != np.arange(-1, drawn)).any():
            raise UserError(f"{scored.path}: not every context has samples 0 to {drawn - 1}: score the whole store")
        energy, log_p = (rows[name].to_numpy().reshape(-1, 1 + drawn) for name in ("energy", "log_p"))
        firsts = rows.take(np.arange(0, len(rows), 1 + drawn))
        names, lengths = firsts["window_id"].to_pylist(), firsts["context_length"].to_pylist()
        yield [
            ScoredContext(name, length, float(own_log_p[0]), float(own_energy[0]), own_log_p[1:], own_energy[1:])
            for name, length, own_log_p, own_energy in zip(names, lengths, log_p, energy, strict=True)
        ]


def log_probabilities(contexts: Sequence[ScoredContext], log_z: Numbers, seed: int) -> dict[str, Any]:
    """For every context, under each model: of the real completion, of one sample, and expected of a sample.

    The base model's sample is the first drawn. The expectation is over all n: their mean for the base model, their
    mean with the weights softmax(-E) for the joint one.
    """
    columns: dict[str, list[Any]] = {}
    for context, z in zip(contexts, log_z, strict=True):
        joint = context.log_p - context.energy - z
        weights = np.exp(context.energy.min() - context.energy)
        own_seed = np.array([request_seed(seed, context.window_id, context.context_length)], np.uint64)
        chosen = resample(-context.energy, float(uniform(own_seed, 1)[0, 0]))
        values = {
            "window_id": context.window_id,
            "context_length": context.context_length,
            "base_real": context.real_log_p,
            "base_sample": context.log_p[0],
            "base_expected": context.log_p.mean(),
            "joint_real": context.real_log_p - context.real_energy - z,
            "joint_sample": joint[chosen],
            "joint_expected": (weights * joint).sum() / weights.sum(),
        }
        for name, value in values.items():
            columns.setdefault(name, []).append(value)
    return {name: np.array(column) for name, column in columns.items()}


def summary(model: str, values: dict[str, Numbers]) -> dict[str, Any]:
    """Means, and the differences of means, samples less real text, with standard errors over contexts.

    In a difference log Z of the context cancels: it depends on how well log Z is known only through what was drawn.
    """
    row: dict[str, Any] = {"model": model, "contexts": len(values[f"{model}_real"])}
    row |= {name: float(values[f"{model}_{name}"].mean()) for name in ("real", "sample", "expected")}
    for name, of in (("difference", "sample"), ("expected_difference", "expected")):
        row[name], row[f"{name}_error"] = mean_and_error(values[f"{model}_{of}"] - values[f"{model}_real"])
    return row


@styled
def figure_of(values: dict[str, Numbers]) -> "Figure":
    figure, axes = panels(2, sharey=True)
    for place, (model, colour) in zip(axes, (("base", BASE), ("joint", JOINT)), strict=True):
        real, sample = values[f"{model}_real"], values[f"{model}_sample"]
        edges = np.histogram_bin_edges(np.concatenate([real, sample]), bins=min(60, max(10, len(real) // 10)))
        for found, own, word in ((real, REAL, "real completions"), (sample, colour, f"samples of the {model} model")):
            place.hist(found, edges, density=True, histtype="stepfilled", color=own, alpha=0.25)
            place.hist(found, edges, density=True, histtype="step", color=own, linewidth=1.5, label=word)
            place.axvline(found.mean(), color=own, linestyle="--", linewidth=1)
        place.set_xlabel(f"log-probability under the {model} model")
        place.legend(loc="lower left", bbox_to_anchor=(0, 1))
    axes[0].set_ylabel("density")
    return figure


if __name__ == "__main__":
    exit_with(main)

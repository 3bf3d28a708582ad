"""Perplexity of the base language model, exactly, and of the joint model, between two bounds.

  python evaluation/perplexity_bounds.py --negatives stores/books-test-samples \\
      --energies stores/books-test-energies --output results/books

Both stores are made beforehand: the samples by pipeline/mine_negatives.py at temperature 1, many of each window
(--negatives 1000), their energies by evaluation/score.py. All of this is arithmetic on them, and is done again from the
beginning in seconds; what needs a network (--exact_windows, --language_model) continues after a kill. Written are
bounds.json, a Parquet file with a row for every context, and figures.

--samples_curve shows the bounds for fewer and fewer samples. --positions takes the probability apart token by token; it
needs samples at every context length (mine_negatives.py --every_context_length --context_lengths 120,121,…,159).
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from evaluation.joint.bounds import joint_perplexity, log_partition_bounds, warnings_about
from evaluation.joint.contexts import Contexts, contexts_of, open_stores
from evaluation.joint.matches import matches
from evaluation.joint.paired import LEVEL, Units, difference, in_words, mean_per_token, units_of
from evaluation.results.cache import ResultCache
from evaluation.results.figures import bounds_figure
from evaluation.results.json_file import write_json
from evaluation.results.parquet_file import write_parquet
from evaluation.results.tables import BoundsTable
from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.settings import Settings, read_settings, setting
from pipeline.stores.reader import Store
from schemas.results import BOUNDS, BOUNDS_FILE, CONTEXTS, CONTEXTS_FILE

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class BoundsSettings(Settings):
    """Samples and their energies, and what is to be computed from them."""

    negatives: str = setting(help="samples at temperature 1, many a window", metavar="STORE")
    energies: str = setting(help="their energies, from evaluation/score.py", metavar="STORE")
    output: str = setting(help="where tables and figures go", metavar="DIR")
    samples: int | None = setting(None, help="the first N of each context (default: all)", metavar="N")
    samples_curve: bool = setting(False, help="the bounds for fewer samples too")
    positions: bool = setting(False, help="perplexity at every position")
    matches: bool = setting(False, help="how often a sample is the real completion: for corpora with one truth")
    language_model: tuple[str, ...] = setting(
        (),
        help="another language model (balm, ralm, …), whose perplexity is put beside. May be given several times",
        metavar="DIR_OR_NAME",
    )
    exact_windows: int | None = setting(
        None,
        help="at the last position of K windows, the exact sum over the vocabulary; needs --energy and --generator",
        metavar="K",
        least=1,
    )
    energy: str | None = setting(None, help="the energy model, for --exact_windows", metavar="DIR_OR_NAME")
    generator: str | None = setting(None, help="the base language model, for --exact_windows", metavar="DIR_OR_NAME")

    def check(self) -> None:
        if self.exact_windows is not None and not (self.energy and self.generator):
            raise UserError("--exact_windows: name the models with --energy and --generator")


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(BoundsSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    describe(perplexity_bounds(settings), settings.output)
    return 0


def perplexity_bounds(settings: BoundsSettings) -> BoundsTable:
    """What bounds.json says, which is written with the table of contexts and the figures."""
    samples, scored = open_stores(settings.negatives, settings.energies)
    rows, warnings = table_of_contexts(samples, scored, settings.samples)
    units = units_of(samples, rows["window_id"].to_pylist())
    result = summary(rows, samples, scored) | {"warnings": warnings}
    cache = ResultCache(files.join(settings.output, "kept.json"))
    others = {name: cached_log_p(name, rows, samples, cache) for name in settings.language_model}
    if others:
        tokens = rows["tokens"].to_numpy().sum()
        result["language_models"] = {name: float(np.exp(-own.sum() / tokens)) for name, own in others.items()}
    result["differences"] = differences(rows, units, others)
    if settings.samples_curve:
        result["samples_curve"], result["closing"] = samples_curve(samples, scored, settings.samples, units)
    if settings.matches:
        result["matches"] = matches(samples, scored, settings.samples)
    if settings.positions:
        result["positions"] = positions(rows, samples)
    if settings.exact_windows and settings.energy and settings.generator:
        from evaluation.joint.exact import last_token_log_probs

        exact = last_token_log_probs(settings.energy, settings.generator, samples, settings.exact_windows, cache)
        result["last_position"] = last_position(rows, samples, exact, units)
    write(result, rows, settings.output)
    files.remove(cache.url)
    return BoundsTable(result)


def table_of_contexts(samples: Store, scored: Store, count: int | None) -> tuple[pa.Table, list[str]]:
    """A row for every context: its real completion, and the estimates of its log Z; and what speaks against these."""
    pieces, sentences = [], []
    for contexts in contexts_of(samples, scored, count):
        bounds = log_partition_bounds(contexts.scores)
        sentences += warnings_about(bounds)
        columns = {
            "window_id": contexts.window_ids,
            "context_length": contexts.context_lengths,
            "tokens": contexts.tokens,
            "log_p": contexts.log_p,
            "energy": contexts.energy,
            "log_z_lower": bounds.lower,
            "log_z_upper": bounds.upper,
            "log_z_midpoint": bounds.midpoint,
            "standard_error": bounds.standard_error,
            "effective_samples": bounds.effective_samples,
            "tail_index": bounds.tail_index,
            "samples": np.full(len(contexts), contexts.scores.shape[1]),
        }
        pieces.append(pa.table(columns, CONTEXTS))
    if not pieces:
        raise UserError(f"{scored.path}: there are no energies in it")
    return pa.concat_tables(pieces), sorted(set(sentences))


def summary(rows: pa.Table, samples: Store, scored: Store) -> dict[str, Any]:
    """The perplexity of the base model and the bounds of the joint model's, over all completions."""
    columns = {name: rows[name].to_numpy() for name in rows.column_names if name != "window_id"}
    log_p, energy, tokens = columns["log_p"], columns["energy"], columns["tokens"]
    joint = {
        name: joint_perplexity(log_p, energy, columns[f"log_z_{name}"], tokens)
        for name in ("lower", "midpoint", "upper")
    }
    return {
        "corpus": samples.manifest.settings.get("corpus"),
        "split": samples.manifest.settings.get("split"),
        "generator": samples.manifest.generator,
        "energy": scored.manifest.settings["energy"],
        "contexts": len(rows),
        "samples": int(columns["samples"][0]),
        "base_perplexity": float(np.exp(-log_p.sum() / tokens.sum())),
        "joint_perplexity": joint,
        "effective_samples": {
            "median": float(np.median(columns["effective_samples"])),
            "least": float(columns["effective_samples"].min()),
        },
    }


def differences(rows: pa.Table, units: Units, others: dict[str, Numbers]) -> dict[str, Any]:
    """What the joint perplexity is above or below the base model's and others', paired, with intervals over units."""
    log_p, energy, tokens = (rows[name].to_numpy() for name in ("log_p", "energy", "tokens"))
    # log P of the joint model is log_p - (E + log Z): its loss against the base model is what the brackets hold.
    lower, upper = (energy + rows[f"log_z_{name}"].to_numpy() for name in ("lower", "upper"))
    found: dict[str, Any] = {"over": units.over, "count": units.count, "level": LEVEL}
    if units.reason:
        found["reason"] = units.reason
    found["base"] = difference(lower, upper, tokens, units.numbers)
    if others:
        found["language_models"] = {
            name: difference(own - log_p + lower, own - log_p + upper, tokens, units.numbers)
            | {"preset": preset_of(name)}
            for name, own in others.items()
        }
    return found


def preset_of(name: str) -> str | None:
    from pipeline.models.language_model import open_language_model

    return open_language_model(name).provenance.get("preset")


def samples_curve(
    samples: Store, scored: Store, count: int | None, units: Units
) -> tuple[list[dict[str, float]], dict[str, Any]]:
    """The bounds from the first 2, 5, 10, 20, … samples of every context; none is drawn again.

    And how far they have closed since a tenth of all samples: the change of the log of their ratio, per token.
    """
    most = count or int(samples.manifest.settings["negatives"])
    sizes = [n for power in range(10) for n in (10**power, 2 * 10**power, 5 * 10**power) if 2 <= n < most] + [most]
    found: dict[int, list[tuple[Contexts, Numbers, Numbers]]] = {size: [] for size in sizes}
    for contexts in contexts_of(samples, scored, most):
        for size in sizes:
            bounds = log_partition_bounds(contexts.scores[:, :size])
            found[size].append((contexts, bounds.lower, bounds.upper))
    curve, apart = [], {}
    for size, parts in found.items():
        log_p, energy, tokens = (
            np.concatenate([getattr(part[0], name) for part in parts]) for name in ("log_p", "energy", "tokens")
        )
        log_z = [np.concatenate([part[place] for part in parts]) for place in (1, 2)]
        lower, upper = (joint_perplexity(log_p, energy, one, tokens) for one in log_z)
        curve.append({"samples": size, "lower": lower, "upper": upper})
        apart[size] = log_z[1] - log_z[0]
    first = max((size for size in sizes if size <= most / 10), default=sizes[0])
    change = mean_per_token(apart[most] - apart[first], tokens, units.numbers)
    closing = {"from": first, "to": most, "apart": [float(apart[size].sum() / tokens.sum()) for size in (first, most)]}
    return curve, closing | {"change": asdict(change)}


def positions(rows: pa.Table, samples: Store) -> list[dict[str, float]]:
    """Perplexity of every token of the completion, given all before it.

    log P(x_t | x_<t) = log P_phi(x_t | x_<t) + log Z(x_<=t) - log Z(x_<t); Z of the whole window is exp(-E). The lower
    bound takes the lower one of the numerator and the upper one of the denominator.
    """
    window = int(samples.manifest.settings["window"])
    lengths = sorted(set(rows["context_length"].to_pylist()))
    if lengths != list(range(lengths[0], window)):
        raise UserError(
            f"--positions: {samples.path} has samples at the context lengths {lengths[:3]}, …, {lengths[-1]}: mine "
            f"every one up to {window - 1} with --every_context_length"
        )
    frame = rows.sort_by([("window_id", "ascending"), ("context_length", "ascending")])
    shape = (-1, len(lengths))
    log_p, energy, lower, upper = (
        frame[name].to_numpy().reshape(shape) for name in ("log_p", "energy", "log_z_lower", "log_z_upper")
    )
    last = -energy[:, :1]
    base = log_p - np.concatenate([log_p[:, 1:], np.zeros_like(last)], axis=1)
    least = base + np.concatenate([lower[:, 1:], last], axis=1) - upper
    most = base + np.concatenate([upper[:, 1:], last], axis=1) - lower
    return [
        {
            "position": length,
            "base": float(np.exp(-base[:, place].mean())),
            "lower": float(np.exp(-most[:, place].mean())),
            "upper": float(np.exp(-least[:, place].mean())),
        }
        for place, length in enumerate(lengths)
    ]


def cached_log_p(name: str, rows: pa.Table, samples: Store, cache: ResultCache) -> Numbers:
    """Another language model's log-probability of the same completions, given the same contexts, row by row."""
    from evaluation.joint.exact import completion_log_probs
    from pipeline.models.model_folder import open_model_folder

    key = f"log_p {samples.manifest.digest} {open_model_folder(name).weights_digest}"
    known = cache.get(key, lambda: completion_log_probs(name, samples))
    by_context = {(window, length): log_p for window, length, log_p in known}
    places = zip(rows["window_id"].to_pylist(), rows["context_length"].to_pylist(), strict=True)
    return np.array([by_context[place] for place in places], np.float64)


def last_position(
    rows: pa.Table, samples: Store, exact: dict[str, tuple[float, float]], units: Units
) -> dict[str, Any]:
    """The last token's exact probability, by the sum over the vocabulary, beside the estimate if there is one."""
    found: dict[str, Any] = {
        "windows": len(exact),
        "base": float(np.exp(-np.mean([base for base, _ in exact.values()]))),
        "exact": float(np.exp(-np.mean([joint for _, joint in exact.values()]))),
    }
    length = int(samples.manifest.settings["window"]) - 1
    numbered = zip(rows.to_pylist(), units.numbers.tolist(), strict=True)
    there = {row["window_id"]: row | {"unit": unit} for row, unit in numbered if row["context_length"] == length}
    if all(window in there for window in exact):
        known, own = np.array([joint for _, joint in exact.values()]), [there[window] for window in exact]
        lower, upper = (
            np.array([row["log_p"] - row["energy"] - row[f"log_z_{name}"] for row in own])
            for name in ("lower", "upper")
        )
        found["lower"], found["upper"] = (float(np.exp(-estimates.mean())) for estimates in (lower, upper))
        found["difference"] = difference(known - lower, known - upper, np.ones(len(own)), [row["unit"] for row in own])
    return found


def write(result: dict[str, Any], rows: pa.Table, output: str) -> None:
    write_parquet(files.join(output, CONTEXTS_FILE), rows)
    for name, across in (("samples_curve", "samples"), ("positions", "position")):
        if name in result:
            for kind in ("svg", "png"):
                base = result["base_perplexity"] if name == "samples_curve" else None
                files.put(files.join(output, f"{name}.{kind}"), bounds_figure(result[name], across, kind, base))
    write_json(files.join(output, BOUNDS_FILE), result, BOUNDS)


def describe(result: dict[str, Any], output: str) -> None:
    joint, effective = result["joint_perplexity"], result["effective_samples"]
    print(f"perplexity of {result['contexts']:,} completions, {result['samples']:,} samples each")
    print(f"  base       {result['base_perplexity']:.4f}")
    print(f"  joint      {joint['lower']:.4f} to {joint['upper']:.4f}, the upper bound being asymptotic")
    against = result["differences"]
    print(f"  difference {in_words(against['base'], against)}")
    for name, value in result.get("language_models", {}).items():
        print(f"  {os.path.basename(name.rstrip('/')):<10} {value:.4f}")
        print(f"             joint against it: {in_words(against['language_models'][name], against)}")
    print(f"  effective  {effective['median']:,.1f} samples of a context (median), {effective['least']:,.1f} (least)")
    if "last_position" in result:
        last = result["last_position"]
        estimate = f", estimated {last['lower']:.4f} to {last['upper']:.4f}" if "lower" in last else ""
        print(
            f"  last token {last['exact']:.4f} exactly, base {last['base']:.4f}{estimate} ({last['windows']} windows)"
        )
    if "matches" in result:
        print(f"  correct    {result['matches']['base']:.2%} of the base model's samples")
        for found in result["matches"]["joint"]:
            line = f"{found['joint']:.2%} of the joint model's, {found['samples']:,} samples each"
            print(f"             {line}; a correct one is there for {found['oracle']:.2%}")
    for sentence in [*([against["reason"]] if "reason" in against else []), *result["warnings"][:5]]:
        print(f"  careful    {sentence}")
    print(f"  written    {output}/{BOUNDS_FILE}, {CONTEXTS_FILE}" + (", figures" if "samples_curve" in result else ""))


if __name__ == "__main__":
    exit_with(main)

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

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from evaluation.joint.bounds import joint_perplexity, log_partition_bounds, warnings_about
from evaluation.joint.contexts import Contexts, contexts_of, open_stores
from evaluation.joint.matches import matches
from evaluation.results.figures import bounds_figure
from evaluation.results.kept import Kept
from pipeline.runtime import files
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import UserError, exit_with
from pipeline.stores.reader import Store

Numbers = NDArray[np.float64]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    samples, scored = open_stores(options.negatives, options.energies)
    rows = table_of_contexts(samples, scored, options.samples)
    result = summary(rows, samples, scored)
    kept = Kept(files.join(options.output, "kept.json"))
    result["warnings"] = sorted(set(rows.schema.metadata[b"warnings"].decode().splitlines()))
    if options.language_model:
        result["language_models"] = {name: kept_perplexity(name, samples, kept) for name in options.language_model}
    if options.samples_curve:
        result["samples_curve"] = samples_curve(samples, scored, options.samples)
    if options.matches:
        result["matches"] = matches(samples, scored, options.samples)
    if options.positions:
        result["positions"] = positions(rows, samples)
    if options.exact_windows:
        result["last_position"] = last_position(rows, samples, options, kept)
    write(result, rows, options.output)
    files.remove(kept.url)
    describe(result, options.output)
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--negatives", required=True, metavar="STORE", help="samples at temperature 1, many a window")
    parser.add_argument("--energies", required=True, metavar="STORE", help="their energies, from evaluation/score.py")
    parser.add_argument("--output", required=True, metavar="DIR", help="where tables and figures go")
    parser.add_argument("--samples", type=int, metavar="N", help="the first N of each context (default: all)")
    parser.add_argument("--samples_curve", action="store_true", help="the bounds for fewer samples too")
    parser.add_argument("--positions", action="store_true", help="perplexity at every position")
    parser.add_argument(
        "--matches", action="store_true", help="how often a sample is the real completion: for corpora with one truth"
    )
    parser.add_argument(
        "--language_model",
        action="append",
        default=[],
        metavar="DIR_OR_NAME",
        help="another language model (balm, ralm, …), whose perplexity is put beside. May be given several times",
    )
    parser.add_argument(
        "--exact_windows",
        type=int,
        metavar="K",
        help="at the last position of K windows, the exact sum over the vocabulary; needs --energy and --generator",
    )
    parser.add_argument("--energy", metavar="DIR_OR_NAME", help="the energy model, for --exact_windows")
    parser.add_argument("--generator", metavar="DIR_OR_NAME", help="the base language model, for --exact_windows")
    options = parser.parse_args(arguments)
    if options.exact_windows is not None:
        if options.exact_windows < 1:
            raise UserError(f"--exact_windows {options.exact_windows}: at least 1")
        if not (options.energy and options.generator):
            raise UserError("--exact_windows: name the models with --energy and --generator")
    return options


def table_of_contexts(samples: Store, scored: Store, count: int | None) -> pa.Table:
    """A row for every context: its real completion, and the estimates of its log Z."""
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
        pieces.append(pa.table(columns))
    if not pieces:
        raise UserError(f"{scored.path}: there are no energies in it")
    table = pa.concat_tables(pieces)
    return table.replace_schema_metadata({b"warnings": "\n".join(sentences).encode()})


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


def samples_curve(samples: Store, scored: Store, count: int | None) -> list[dict[str, float]]:
    """The bounds from the first 2, 5, 10, 20, … samples of every context; none is drawn again."""
    most = count or int(samples.manifest.settings["negatives"])
    sizes = [n for power in range(10) for n in (10**power, 2 * 10**power, 5 * 10**power) if 2 <= n < most] + [most]
    found: dict[int, list[tuple[Contexts, Numbers, Numbers]]] = {size: [] for size in sizes}
    for contexts in contexts_of(samples, scored, most):
        for size in sizes:
            bounds = log_partition_bounds(contexts.scores[:, :size])
            found[size].append((contexts, bounds.lower, bounds.upper))
    curve = []
    for size, parts in found.items():
        log_p, energy, tokens = (
            np.concatenate([getattr(part[0], name) for part in parts]) for name in ("log_p", "energy", "tokens")
        )
        lower, upper = (
            joint_perplexity(log_p, energy, np.concatenate([part[place] for part in parts]), tokens) for place in (1, 2)
        )
        curve.append({"samples": size, "lower": lower, "upper": upper})
    return curve


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


def kept_perplexity(name: str, samples: Store, kept: Kept) -> float:
    """Of another language model, on the same completions, given the same contexts."""
    from evaluation.joint.exact import perplexity_of
    from pipeline.models.model_folder import open_model_folder

    key = f"{samples.manifest.digest} {open_model_folder(name).weights_digest}"
    return float(kept.get(key, lambda: perplexity_of(name, samples)))


def last_position(rows: pa.Table, samples: Store, options: argparse.Namespace, kept: Kept) -> dict[str, Any]:
    """The last token's exact probability, by the sum over the vocabulary, beside the estimate if there is one."""
    from evaluation.joint.exact import last_token_log_probs

    exact = last_token_log_probs(options.energy, options.generator, samples, options.exact_windows, kept)
    found: dict[str, Any] = {
        "windows": len(exact),
        "base": float(np.exp(-np.mean([base for base, _ in exact.values()]))),
        "exact": float(np.exp(-np.mean([joint for _, joint in exact.values()]))),
    }
    length = int(samples.manifest.settings["window"]) - 1
    there = {row["window_id"]: row for row in rows.to_pylist() if row["context_length"] == length}
    if all(window in there for window in exact):
        for name in ("lower", "upper"):
            estimates = [
                there[window]["log_p"] - there[window]["energy"] - there[window][f"log_z_{name}"] for window in exact
            ]
            found[name] = float(np.exp(-np.mean(estimates)))
    return found


def write(result: dict[str, Any], rows: pa.Table, output: str) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    files.put(files.join(output, "contexts.parquet"), sink.getvalue())
    for name, across in (("samples_curve", "samples"), ("positions", "position")):
        if name in result:
            for kind in ("svg", "png"):
                base = result["base_perplexity"] if name == "samples_curve" else None
                files.put(files.join(output, f"{name}.{kind}"), bounds_figure(result[name], across, kind, base))
    files.put(files.join(output, "bounds.json"), json.dumps(result, indent=1).encode())


def describe(result: dict[str, Any], output: str) -> None:
    joint, effective = result["joint_perplexity"], result["effective_samples"]
    print(f"perplexity of {result['contexts']:,} completions, {result['samples']:,} samples each")
    print(f"  base       {result['base_perplexity']:.4f}")
    print(f"  joint      {joint['lower']:.4f} to {joint['upper']:.4f}, the upper bound being asymptotic")
    for name, value in result.get("language_models", {}).items():
        print(f"  {os.path.basename(name.rstrip('/')):<10} {value:.4f}")
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
    for sentence in result["warnings"][:5]:
        print(f"  careful    {sentence}")
    print(f"  written    {output}/bounds.json, contexts.parquet" + (", figures" if "samples_curve" in result else ""))


if __name__ == "__main__":
    exit_with(lambda: main(sys.argv[1:]))

"""What was measured of a model: rows of a page's table and of the hub's own index, from the files of the jobs."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evaluation.results.json_file import parse_json, read_json
from pipeline.runtime.errors import UserError
from schemas.results import BOUNDS, DETECTION, GRID

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

ACCURACY, PERPLEXITY = "accuracy", "perplexity"
Number = tuple[str, float]  # and what it is called


@dataclass(frozen=True)
class Metric:
    """Something measured on some data: its numbers, and a row that says them with their interval."""

    data: str
    kind: str
    numbers: tuple[Number, ...]
    shown: str
    interval: str  # of 95 %; empty where the file has none
    remark: str


@dataclass(frozen=True)
class Measured:
    """All that the files say of a model, and the reasons to doubt it that stand in them."""

    metrics: tuple[Metric, ...] = ()
    warnings: tuple[str, ...] = ()


def read_metrics(urls: Sequence[str], digest: str, of: str) -> Measured:
    """Of the model whose weights have this digest; a file that says nothing of it is refused."""
    metrics: list[Metric] = []
    warnings: list[str] = []
    for url in urls:
        content = parse_json(url)
        keys = content.keys() if isinstance(content, dict) else set()
        if "cells" in keys:
            found = list(of_grid(read_json(url, GRID), digest))
        elif "base_perplexity" in keys:
            found = list(of_bounds(read_json(url, BOUNDS), digest))
        elif {"files", "accuracy"} <= keys:
            found = list(of_detection(read_json(url, DETECTION), digest))
        else:
            raise UserError(f"--metrics {url}: neither grid.json nor bounds.json, nor what detect.py writes")
        if not found:
            raise UserError(f"--metrics {url}: it says nothing of {of}, whose weights have the digest {digest}")
        metrics += [metric for metric, _ in found]
        warnings += [sentence for _, sentences in found for sentence in sentences]
    return Measured(tuple(metrics), tuple(dict.fromkeys(warnings)))


def of_grid(grid: dict[str, Any], digest: str) -> Iterator[tuple[Metric, list[str]]]:
    """The cells in which this model was tested."""
    for cell in grid["cells"]:
        model = cell.get("model") or {}
        if "accuracy" not in cell or model.get("digest") != digest:
            continue
        interval = between(cell["low"], cell["high"], percent)
        by = "by its likelihood" if model.get("role") == "likelihood" else "by its energy"
        windows = f", {int(cell['windows']):,} windows" if "windows" in cell else ""
        auroc = f", AUROC {cell['auroc']:.4f}" if "auroc" in cell else ""
        numbers = ((f"balanced accuracy {by} ({cell['setting']}; 95% interval {interval})", cell["accuracy"]),)
        remark = f"balanced accuracy {by}, {cell['setting']}{windows}{auroc}"
        metric = Metric(str(cell["column"]), ACCURACY, numbers, percent(cell["accuracy"]), interval, remark)
        yield metric, [f"{cell['column']}: {sentence}" for sentence in cell.get("warnings", [])]


def of_bounds(bounds: dict[str, Any], digest: str) -> Iterator[tuple[Metric, list[str]]]:
    """Of an energy model the joint model's perplexity between its bounds; of the language model its own."""
    places = [bounds.get(name) for name in ("corpus", "split") if bounds.get(name)]
    data = " ".join(map(str, places)) or "a corpus that the file does not name"
    counted = f"{int(bounds['contexts']):,} completions"
    base = bounds["base_perplexity"]
    if (bounds.get("generator") or {}).get("digest") == digest:
        numbers: tuple[Number, ...] = (("perplexity", base),)
        yield Metric(data, PERPLEXITY, numbers, f"{base:.4f}", "", f"perplexity of {counted}"), []
    if bounds["energy"].get("digest") != digest:
        return
    joint = bounds["joint_perplexity"]
    samples = f"{int(bounds['samples']):,} samples each"
    numbers = (
        (f"perplexity of the joint model, lower bound ({samples})", joint["lower"]),
        (f"perplexity of the joint model, upper bound, asymptotic ({samples})", joint["upper"]),
    )
    shown = f"{joint['lower']:.4f} to {joint['upper']:.4f}"
    remark = (
        f"perplexity of the joint model between its bounds, {counted}, {samples}; the language model alone {base:.4f}"
    )
    yield Metric(data, PERPLEXITY, numbers, shown, "", remark), [f"{data}: {one}" for one in bounds.get("warnings", [])]
    if against := bounds.get("differences"):
        yield of_difference(data, against), [f"{data}: {against['reason']}"] if "reason" in against else []


def of_difference(data: str, against: dict[str, Any]) -> Metric:
    """How far the joint perplexity is from the language model's, with the interval of both bounds."""
    own = against["base"]["percent"]
    ends = [f"{own[name]:+.1f}" for name in ("lower", "upper")]
    shown = f"{ends[0] if ends[0] == ends[1] else ' to '.join(ends)} %"
    interval = "" if own["low"] is None else f"{own['low']:+.1f} to {own['high']:+.1f} %"
    remark = f"the joint model's perplexity against the language model's, over {against['count']:,} {against['over']}"
    return Metric(data, PERPLEXITY, (), shown, interval, remark)


def of_detection(detection: dict[str, Any], digest: str) -> Iterator[tuple[Metric, list[str]]]:
    """Whole texts, called real or generated."""
    if detection["energy"].get("digest") != digest:
        return
    for found in detection["accuracy"]:
        if found["detector"] != "energy":
            continue
        low, high, *_ = found["interval"]
        interval = between(low, high, percent)
        name = f"generated texts in {found['generated'].rsplit('/', 1)[-1]}, against real ones"
        numbers = ((f"balanced accuracy on whole texts (95% interval {interval})", found["balanced_accuracy"]),)
        remark = f"balanced accuracy on whole texts, AUROC {found['auroc']:.4f}"
        yield Metric(name, ACCURACY, numbers, percent(found["balanced_accuracy"]), interval, remark), []


def results_of(metrics: Sequence[Metric], task: str) -> "list[EvalResult]":
    """For the hub's index; what is no number (a file may hold NaN) is left out."""
    from huggingface_hub import EvalResult

    kinds: dict[str, str] = {}  # the index tells data apart by this word alone, which is made of the whole name
    for metric in metrics:
        slug = re.sub(r"[^a-z0-9]+", "-", metric.data.lower()).strip("-") or "data"
        taken = {word for data, word in kinds.items() if data != metric.data}
        kinds.setdefault(metric.data, slug if slug not in taken else f"{slug}-{len(kinds) + 1}")
    return [
        EvalResult(
            task_type=task,
            dataset_type=kinds[metric.data],
            dataset_name=" ".join(metric.data.split()),
            metric_type=metric.kind,
            metric_name=" ".join(name.split()),
            metric_value=value,
        )
        for metric in metrics
        for name, value in metric.numbers
        if math.isfinite(value)
    ]


def percent(share: float) -> str:
    return f"{share:.2%}"


def between(low: float, high: float, shown: Callable[[float], str]) -> str:
    return f"{shown(low)} to {shown(high)}"

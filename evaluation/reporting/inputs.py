"""What a report is made from: the results below some folders, each known by what is in it.

What cannot be read is named in `problems`; the rest is found all the same.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from evaluation.results.json_file import parse_json, read_json
from pipeline.runtime import files
from pipeline.runtime.errors import UserError, first_line
from pipeline.stores.manifest import MANIFEST, read_manifest, read_record
from schemas.results import (
    ANALYSIS,
    ANALYSIS_FILE,
    BOUNDS,
    BOUNDS_FILE,
    DETECTION,
    FINDINGS,
    FINDINGS_FILE,
    GRID,
    GRID_FILE,
    HUMAN,
    HUMAN_FILE,
    SAMPLES_FILE,
)

# Folders inside of results, stores and models that hold none themselves.
INSIDE = {"shards", "tokenizer", "checkpoints", "logs", "parts", "rejects"}
DEEPEST = 12
SAMPLES = 12  # contexts whose samples are shown
TEXTS = ("context", "real", "base", "chosen", "worst")


@dataclass(frozen=True)
class Result:
    """Something found: its kind, the folder (or file) it lies in, how a reader knows it, and what is in it."""

    kind: str
    path: str
    name: str
    content: dict[str, Any]


@dataclass
class StudyResults:
    """All results, in the order in which they were found, and what could not be read."""

    results: list[Result] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def of(self, kind: str) -> list[Result]:
        return [result for result in self.results if result.kind == kind]


def find_results(inputs: Sequence[str]) -> StudyResults:
    """Everything below the given folders that a report can show."""
    found = StudyResults()
    seen: set[str] = set()
    for given in inputs:
        root = given if "/" in given else f"./{given}"
        if not files.exists(root):
            raise UserError(f"--input {given}: there is no such folder: check the path")
        for url in _walk(root, found.problems):
            if (identity := files.identity(url)) in seen:
                continue
            seen.add(identity)
            try:
                if result := read_result(url, root, several=len(inputs) > 1):
                    found.results.append(result)
            except (UserError, OSError, pa.ArrowException) as error:
                known = str(error) if url in str(error) else f"{url}: cannot be read ({first_line(error)})"
                found.problems.append(known)
    if not found.results and not found.problems:
        raise UserError(
            f"--input {', '.join(inputs)}: there are no results in it: name folders with stores, models, or what "
            f"evaluation jobs wrote ({BOUNDS_FILE}, {GRID_FILE}, {ANALYSIS_FILE}, {SAMPLES_FILE})"
        )
    return found


def read_result(url: str, root: str, several: bool = False) -> Result | None:
    """The result that a file is, or stands for; None for what is no result."""
    folder, _, file = url.rpartition("/")
    if reader := READERS.get(file):
        found = reader(url)
        path = folder
    elif file.endswith(".json") and files.is_file(f"{url.removesuffix('.json')}.parquet"):
        found, path = _detection(url), url
    else:
        return None
    return Result(found[0], path, _name(path, root, several), found[1]) if found else None


def _walk(root: str, problems: list[str], depth: int = 0) -> Iterator[str]:
    """The files below a folder, sorted; one whose folder cannot be listed is a problem."""
    system, path = files.resolve(root)
    if files.is_file(root):
        yield root
        return
    try:
        entries = system.get_file_info(fs.FileSelector(path))
    except OSError as error:
        problems.append(f"{root}: cannot be listed ({first_line(error)})")
        return
    entries.sort(key=lambda entry: entry.base_name)
    yield from (files.join(root, entry.base_name) for entry in entries if entry.type == fs.FileType.File)
    for entry in entries:
        name = entry.base_name
        if entry.type == fs.FileType.Directory and name not in INSIDE and name[0] != "." and depth < DEEPEST:
            yield from _walk(files.join(root, name), problems, depth + 1)


def _name(path: str, root: str, several: bool) -> str:
    """A path as it is seen from the folder that was given; of several folders, with that folder's own name."""
    folder, _, own = files.identity(root).rstrip("/").rpartition("/")
    inside = path.removeprefix(root.rstrip("/")).strip("/") if path.startswith(root.rstrip("/")) else ""
    if not inside:
        return own if files.identity(path) != folder else folder.rpartition("/")[2]
    return f"{own}/{inside}" if several else inside


KindAndContent = tuple[str, dict[str, Any]] | None


def _valid(kind: str, schema: dict[str, Any]) -> Callable[[str], KindAndContent]:
    """Reads a JSON file of a result."""
    return lambda url: (kind, read_json(url, schema))


def _store(url: str) -> KindAndContent:
    content = parse_json(url)
    if not isinstance(content, dict) or not {"shards", "schema_version"} & content.keys():
        return None  # another program's
    manifest = read_manifest(url.rpartition("/")[0])
    return manifest.kind, asdict(manifest) | {"rows": manifest.rows, "digest": manifest.digest}


def _model(url: str) -> KindAndContent:
    """A model of this project says what it was made from; models from elsewhere say at least what they are."""
    content = parse_json(url)
    if not isinstance(content, dict) or not isinstance(content.get("model_type"), str):
        return None
    if not isinstance(content.get("provenance") or {}, dict):
        raise UserError(f"{url}: its provenance is not a list of facts: train it again")
    kind = "energy_model" if content["model_type"] == "residual_ebm_energy" else "language_model"
    return kind, content


def _samples(url: str) -> KindAndContent:
    """Samples of the joint model or of a language model alone: the first contexts' texts, and what all share."""
    with files.open_random(url) as source:
        file = pq.ParquetFile(source)
        names = set(file.schema_arrow.names)
        if "context_text" not in names or names.isdisjoint({"chosen_text", "base_text"}):
            return None
        wanted = [f"{text}_{what}" for text in TEXTS for what in ("text", "energy") if f"{text}_{what}" in names]
        batch = next(file.iter_batches(SAMPLES, columns=wanted), None)
        content: dict[str, Any] = {"contexts": file.metadata.num_rows, "rows": batch.to_pylist() if batch else []}
        if "effective_samples" in names:
            effective = file.read(["effective_samples"])["effective_samples"].drop_null().to_numpy()
            if len(effective):
                content["effective_samples"] = {"median": float(np.median(effective)), "least": float(effective.min())}
    record = read_record(url.rpartition("/")[0])
    return "samples", content | {"settings": record.settings if record else {}}


def _figure(url: str) -> KindAndContent:
    """A figure that an analysis drew."""
    drawn = files.read(url)
    try:
        ElementTree.fromstring(drawn)
    except ElementTree.ParseError as error:
        raise UserError(f"{url}: a broken figure ({error}): make it again") from None
    return "figure", {"svg": drawn}


def _detection(url: str) -> KindAndContent:
    """The summary beside a Parquet file of scores; other JSON files beside Parquet files are nobody's."""
    content = parse_json(url)
    is_one = isinstance(content, dict) and {"files", "accuracy", "energy"} <= content.keys()
    return ("detection", read_json(url, DETECTION)) if is_one else None


READERS: dict[str, Callable[[str], KindAndContent]] = {
    MANIFEST: _store,
    "config.json": _model,
    "figure.svg": _figure,
    SAMPLES_FILE: _samples,
    BOUNDS_FILE: _valid("bounds", BOUNDS),
    GRID_FILE: _valid("grid", GRID),
    ANALYSIS_FILE: _valid("analysis", ANALYSIS),
    HUMAN_FILE: _valid("human", HUMAN),
    FINDINGS_FILE: _valid("findings", FINDINGS),
}

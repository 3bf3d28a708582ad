"""Input files: whether a store may be made from them, and whether they are still those that it was made from."""

from collections import Counter
from typing import Any

from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from pipeline.stores.manifest import Manifest
from pipeline.text.builtin_corpora import parse_lines
from pipeline.text.document_part import DocumentPart
from pipeline.text.documents import Source
from pipeline.text.survey import survey_file

MOST_LISTED = 1000  # files that a description of text names one by one


def text_of(manifest: Manifest) -> dict[str, Any]:
    """The text that windows were cut from, as a model that is trained on them remembers it: digests, not names.

    Lines that are drawn from a rule are no text: a model learns the rule, there are too many to remember.
    """
    digests = sorted(entry["digest"] for entry in manifest.inputs if parse_lines(entry["file"]) is None)
    return {"inputs": digests[:MOST_LISTED], "documents": manifest.settings.get("documents")}


def share_text(one: dict[str, Any] | None, other: dict[str, Any] | None) -> bool | None:
    """Whether two texts have documents in common, as far as their digests show; None where one is not known."""
    if not (one and other and one.get("inputs") and other.get("inputs")):
        return None
    parts = [DocumentPart.parse(text.get("documents")) for text in (one, other)]
    return bool(set(one["inputs"]) & set(other["inputs"])) and parts[0].meets(parts[1])


def refuse_own_output(sources: list[Source], output: str) -> None:
    for source in sources:
        if source.bytes is not None and f"{files.identity(source.url)}/".startswith(f"{files.identity(output)}/"):
            raise UserError(f"--input {source.url}: it lies in --output {output}: choose another folder for the store")


def changed_input(sources: list[Source], manifest: Manifest, output: str) -> str | None:
    """Says which input file does not hold what the store was made from, if there is one.

    A file of the same name, size and time is taken for the same; any other one is read.
    """
    made = {(entry["file"], entry["bytes"], entry["modified"]): entry["digest"] for entry in manifest.inputs}
    left = Counter(entry["digest"] for entry in manifest.inputs)
    unknown = [source for source in sources if (source.url, source.bytes, source.modified) not in made]
    left.subtract(made[source.url, source.bytes, source.modified] for source in sources if source not in unknown)
    for source in unknown:
        digest = survey_file(source).digest
        if not left[digest]:
            return f"{source.url}: it has changed since {output} was made from it"
        left[digest] -= 1
    return None


def input_names(sources: list[Source]) -> list[list[object]]:
    """Files as a store's settings have them: a file is known by its name, size and content, wherever it lies.

    Anything else, a data set or a built-in corpus, is known by its whole address.
    """
    return sorted(
        [source.url if source.bytes is None else source.url.rsplit("/", 1)[-1], source.format, source.bytes]
        for source in sources
    )

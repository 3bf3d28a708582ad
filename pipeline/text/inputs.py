"""Input files: whether a store may be made from them, and whether they are still those that it was made from."""

from collections import Counter

from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from pipeline.stores.manifest import Manifest
from pipeline.text.documents import Source
from pipeline.text.survey import survey_file


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

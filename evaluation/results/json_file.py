"""JSON files of results, held to their schemas when they are written and when they are read."""

import json
from typing import Any

import jsonschema

from pipeline.runtime import files
from pipeline.runtime.errors import UserError, first_line
from pipeline.runtime.json_schema import hold_to


def write_json(url: str, content: dict[str, Any], schema: dict[str, Any], **layout: Any) -> None:
    """Writes a result; one that a report could not read is a mistake of the job's, and is not written."""
    hold_to(content, schema)
    files.put(url, json.dumps(content, indent=1, **layout).encode())


def parse_json(url: str) -> Any:
    """What a JSON file holds; a UserError where it is none."""
    try:
        return json.loads(files.read(url))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{url}: broken JSON ({first_line(error)}): make it again") from None


def read_json(url: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A result; a UserError says what of it is not as its job writes it."""
    content = parse_json(url)
    try:
        hold_to(content, schema)
    except jsonschema.ValidationError as error:
        place = "".join(f"[{part!r}]" for part in error.absolute_path)
        raise UserError(f"{url}: not what its job writes ({place} {error.message[:200]}): make it again") from None
    return dict(content)

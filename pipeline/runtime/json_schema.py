"""Holding JSON to a schema. The schemas are this project's own: that they are schemas at all is a test's to check."""

from typing import Any

import jsonschema


def first_error(content: Any, schema: dict[str, Any]) -> jsonschema.ValidationError | None:
    """What does not fit a schema, if anything."""
    return jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(content))


def hold_to(content: Any, schema: dict[str, Any]) -> None:
    """Raises what does not fit a schema, as jsonschema.validate does, without checking the schema each time."""
    if (error := first_error(content, schema)) is not None:
        raise error

"""What the JSON files of results look like, as far as a report reads them."""

from typing import Any

NUMBER: dict[str, Any] = {"type": "number"}
TEXT: dict[str, Any] = {"type": "string"}
OBJECT: dict[str, Any] = {"type": "object"}


def a_list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def an_object(required: dict[str, Any], **more: dict[str, Any]) -> dict[str, Any]:
    """With these entries, and those that may be there; others are left alone."""
    return {"type": "object", "required": list(required), "properties": required | more}


def numbers(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, NUMBER)


BOUNDS = an_object(
    {
        "base_perplexity": NUMBER,
        "joint_perplexity": an_object(numbers("lower", "upper")),
        "contexts": NUMBER,
        "samples": NUMBER,
        "effective_samples": an_object(numbers("median", "least")),
        "energy": OBJECT,
    },
    generator={"type": ["object", "null"]},
    warnings=a_list(TEXT),
    language_models={"type": "object", "additionalProperties": NUMBER},
    samples_curve=a_list(an_object(numbers("samples", "lower", "upper"))),
    positions=a_list(an_object(numbers("position", "base", "lower", "upper"))),
    last_position=an_object(numbers("windows", "base", "exact"), **numbers("lower", "upper")),
    matches=an_object({"base": NUMBER, "joint": a_list(an_object(numbers("samples", "joint", "oracle")))}),
)
ACCURACY = an_object(numbers("accuracy", "low", "high"), **numbers("windows", "auroc"))
CELL = an_object(
    {"row": TEXT, "column": TEXT},
    **numbers("accuracy", "low", "high", "auroc", "windows", "paper"),
    setting=TEXT,
    problem=TEXT,
    warnings=a_list(TEXT),
    by_context={"type": "object", "additionalProperties": ACCURACY},
) | {"anyOf": [{"required": ["problem"]}, {"required": ["accuracy", "low", "high", "setting"]}]}
GRID = an_object(
    {"title": TEXT, "rows": a_list(TEXT), "columns": a_list(TEXT), "cells": a_list(CELL)},
    row_means={"type": "object", "additionalProperties": NUMBER},
)
ANALYSIS = an_object(
    {"analysis": TEXT, "title": TEXT, "rows": a_list(OBJECT)},
    description=TEXT,
    warnings=a_list(TEXT),
    examples=a_list(OBJECT),
    settings=OBJECT,
    inputs=a_list(OBJECT),
)
DETECTION = an_object(
    {
        "energy": OBJECT,
        "files": a_list(an_object({"file": TEXT} | numbers("texts", "called_real", "left_out"))),
        "accuracy": a_list(
            an_object(
                {"detector": TEXT, "generated": TEXT, "interval": a_list(NUMBER) | {"minItems": 2}}
                | numbers("balanced_accuracy", "auroc")
            )
        ),
    }
)
HUMAN = an_object({"title": TEXT, "columns": a_list(TEXT), "rows": a_list({"type": ["array", "object"]})})

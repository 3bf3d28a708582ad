"""Results are held to their schemas, when they are written and when they are read."""

import json

import jsonschema
import pytest

from evaluation.results.json_file import read_json, write_json
from pipeline.runtime.errors import UserError
from schemas import results

SCHEMAS = ("BOUNDS", "GRID", "ANALYSIS", "DETECTION", "HUMAN")
GRID = {"title": "t", "rows": ["r"], "columns": ["c"], "cells": [{"row": "r", "column": "c", "problem": "p"}]}


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_one_and_asks_for_something(name):
    schema = getattr(results, name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert set(schema["required"]) <= schema["properties"].keys()
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({}, schema)


def test_what_is_written_is_read_again(tmp_path):
    url = str(tmp_path / "grid.json")
    write_json(url, GRID, results.GRID)
    assert read_json(url, results.GRID) == GRID


def test_what_no_report_could_read_is_not_written(tmp_path):
    wrong = GRID | {"cells": [{"row": "r", "column": "c"}]}
    with pytest.raises(jsonschema.ValidationError):
        write_json(str(tmp_path / "grid.json"), wrong, results.GRID)
    assert not (tmp_path / "grid.json").exists()


def test_what_is_wrong_with_a_file_is_named_with_its_place(tmp_path):
    url = tmp_path / "grid.json"
    url.write_text(json.dumps(GRID | {"rows": ["r", 5]}))
    with pytest.raises(UserError, match=r"grid\.json: not what its job writes \(\['rows'\]\[1\] 5 is not of type"):
        read_json(str(url), results.GRID)
    url.write_text("{")
    with pytest.raises(UserError, match=r"grid\.json: broken JSON"):
        read_json(str(url), results.GRID)

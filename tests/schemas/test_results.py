"""Columns of results, spelled once more: whoever reads the files relies on them."""

import jsonschema
import pytest

from schemas import results


def test_columns_are_those_that_were_published():
    assert results.CONTEXTS.names == [
        *["window_id", "context_length", "tokens", "log_p", "energy", "log_z_lower", "log_z_upper", "log_z_midpoint"],
        *["standard_error", "effective_samples", "tail_index", "samples"],
    ]
    assert results.CELLS.names == [
        *["row", "column", "setting", "accuracy", "low", "high", "auroc", "real", "generated", "windows", "paper"],
        "problem",
    ]
    assert [*results.DETECTIONS.names, results.TFIDF_SCORE.name] == [
        *["id", "file", "label", "score", "probability", "blocks", "tokens", "short", "problem", "tfidf"]
    ]


def test_the_table_of_a_grid_has_what_its_json_has_of_a_cell():
    cell = results.GRID["properties"]["cells"]["items"]["properties"]
    no_single_value = {"by_context", "rule", "warnings", "model", "trained", "tested", "energies"}
    beside = {"paper_row", "paper_column"}
    assert [name for name in cell if name not in no_single_value | beside] == results.CELLS.names


@pytest.mark.parametrize("name", ["BOUNDS", "GRID", "ANALYSIS", "DETECTION", "HUMAN", "FINDINGS"])
def test_the_schemas_of_json_files_are_schemas(name):
    jsonschema.Draft202012Validator.check_schema(getattr(results, name))

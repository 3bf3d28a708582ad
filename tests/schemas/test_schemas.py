import jsonschema
import pyarrow as pa
import pytest

import schemas


def test_columns_are_those_of_the_design():
    assert schemas.WINDOWS.names == ["window_id", "corpus", "split", "document", "offset", "tokens"]
    assert schemas.NEGATIVES.names == [
        *["window_id", "corpus", "split", "tokens", "direction", "context_length", "positive_log_p"],
        *["first_sample", "negatives", "log_p", "log_q", "seed"],
    ]
    assert schemas.ENERGIES.names == [
        *["window_id", "corpus", "split", "context_length", "sample", "energy", "log_p", "log_q"]
    ]


def test_tokens_are_int32_and_log_probabilities_float64():
    assert schemas.WINDOWS.field("tokens").type.value_type == pa.int32()
    assert schemas.NEGATIVES.field("negatives").type.value_type.value_type == pa.int32()
    for name in ("log_p", "log_q"):
        assert schemas.NEGATIVES.field(name).type.value_type == pa.float64()
        assert schemas.ENERGIES.field(name).type == pa.float64()


def test_the_manifests_schema_is_a_schema_and_refuses_what_is_no_manifest():
    jsonschema.Draft202012Validator.check_schema(schemas.MANIFEST)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"kind": "windows"}, schemas.MANIFEST)

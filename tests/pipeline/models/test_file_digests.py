"""A model's folder as its trainer left it, and as it must not be."""

import json
import shutil
from pathlib import Path

import pytest

from pipeline.models.file_digests import DIGESTS, write_digests
from pipeline.models.language_model import open_language_model
from pipeline.runtime.errors import UserError
from tests.helpers.mining import save_generator


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = Path(save_generator(tmp_path / "model"))
    write_digests(str(folder))
    return folder


def test_what_the_trainer_wrote_is_opened(folder):
    assert open_language_model(str(folder)).load() is not None
    assert set(json.loads((folder / DIGESTS).read_text())) == {
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    }


def test_weights_of_another_model_of_the_same_shape_are_noticed(folder, tmp_path):
    other = save_generator(tmp_path / "other", seed=1)
    shutil.copy(f"{other}/model.safetensors", folder)
    with pytest.raises(UserError, match=r"model.safetensors: other than the training wrote it .* remove digests.json"):
        open_language_model(str(folder)).load()
    (folder / DIGESTS).unlink()  # on purpose, then
    assert open_language_model(str(folder)).load() is not None


def test_a_byte_of_any_file_and_a_missing_file_are_noticed_when_it_is_opened(folder):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole.replace(b"{", b"{ ", 1))
        with pytest.raises(UserError, match=f"{name}: other than the training wrote it"):
            open_language_model(str(folder))
        (folder / name).write_bytes(whole)
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(UserError, match=r"tokenizer_config.json: missing \(digests.json\)"):
        open_language_model(str(folder))


@pytest.mark.parametrize("content", ["[", "[]", '{"../secret": "0"}', "[" * 100_000])
def test_digests_that_are_none_are_named(folder, content):
    (folder / DIGESTS).write_text(content)
    with pytest.raises(UserError, match=r"digests.json: .*copy the folder again"):
        open_language_model(str(folder))

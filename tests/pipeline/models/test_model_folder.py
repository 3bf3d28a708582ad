"""Folders of models from strangers: what is in them is read, and never run."""

import json
import os
import pickle
import shutil
import tempfile

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from pipeline.models.language_model import open_language_model
from pipeline.models.model_folder import quiet
from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from pipeline.text.builtin_corpora import ALPHABET
from pipeline.text.tokenizer import character_tokenizer, load_tokenizer

SIZES = {"vocab_size": 14, "n_embd": 32, "n_layer": 1, "n_head": 1, "n_positions": 16, "bos_token_id": 13}


class Evil:
    """What runs when it is unpickled."""

    def __init__(self, mark: str):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (self.mark,)


@pytest.fixture
def folder(tmp_path) -> str:
    with quiet():
        GPT2LMHeadModel(GPT2Config(**SIZES, eos_token_id=13)).save_pretrained(tmp_path / "model")
    character_tokenizer(ALPHABET).save(str(tmp_path / "model"))
    return str(tmp_path / "model")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt"])
def test_pickles_are_refused_in_one_line_and_nothing_in_them_runs(folder, tmp_path, name):
    os.remove(os.path.join(folder, "model.safetensors"))
    mark = str(tmp_path / "ran")
    with open(os.path.join(folder, name), "wb") as file:
        pickle.dump({"weights": Evil(mark)}, file)
    model = open_language_model(folder)
    for use in (model.load, model.check_weights, lambda: model.weights_digest, lambda: model.precision):
        with pytest.raises(UserError, match=rf"{name}: a pickle, .* convert it to model\.safetensors") as error:
            use()
        assert len(str(error.value).splitlines()) == 1
    assert not os.path.exists(mark)


def test_a_pickle_beside_sound_weights_is_not_looked_at(folder, tmp_path):
    mark = str(tmp_path / "ran")
    with open(os.path.join(folder, "pytorch_model.bin"), "wb") as file:
        pickle.dump(Evil(mark), file)
    assert open_language_model(folder).load().config.vocab_size == 14
    assert not os.path.exists(mark)


def test_copies_of_a_buckets_models_lie_where_nobody_else_can_put_any(folder, tmp_path, monkeypatch):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            files.put(f"memory://strangers/model/{name}", file.read())
    copied = open_language_model("memory://strangers/model")
    own = temporary / f"residual-ebm-{os.getuid()}"
    assert os.path.dirname(copied.folder) == str(own)
    assert own.stat().st_mode & 0o777 == 0o700
    assert copied.weights_digest == open_language_model(folder).weights_digest
    assert torch.equal(
        *(one.load().get_input_embeddings().weight for one in (copied, open_language_model(folder)))  # type: ignore
    )
    # A folder that others can write to, or a link that somebody has put there, is not used.
    shutil.rmtree(own)
    (tmp_path / "theirs").mkdir(mode=0o700)
    for prepare in (lambda: own.symlink_to(tmp_path / "theirs"), lambda: (own.mkdir(), own.chmod(0o777))):
        prepare()
        with pytest.raises(UserError, match="somebody else's, or others can write in it"):
            open_language_model("memory://strangers/model")
        own.unlink() if own.is_symlink() else own.rmdir()


@pytest.mark.parametrize("answer", ["y", "yes"])
def test_programs_in_a_models_folder_are_not_run_not_even_if_somebody_says_yes(folder, tmp_path, monkeypatch, answer):
    """transformers asks at the terminal whether to run what `auto_map` names, unless it was told."""
    mark = tmp_path / "ran"
    for name in ("config.json", "tokenizer_config.json"):
        path = os.path.join(folder, name)
        with open(path) as file:
            content = json.load(file)
        content |= {"model_type": "evil", "tokenizer_class": "EvilTokenizer"}
        content["auto_map"] = {"AutoConfig": "evil.Evil", "AutoTokenizer": ["evil.Evil", "evil.Evil"]}
        with open(path, "w") as file:
            json.dump(content, file)
    with open(os.path.join(folder, "evil.py"), "w") as file:
        file.write(f"import os\nos.mkdir({str(mark)!r})\nclass Evil: pass\n")
    os.remove(os.path.join(folder, "tokenizer.json"))
    monkeypatch.setattr("builtins.input", lambda *_: answer)
    with pytest.raises(UserError, match=r"config.json is not that of a"):
        open_language_model(folder)
    with pytest.raises(UserError, match=r"neither a folder with tokenizer.json"):
        load_tokenizer(folder)
    assert not mark.exists()

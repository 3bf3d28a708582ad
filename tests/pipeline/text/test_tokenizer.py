import json
import random
from itertools import chain

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer

from pipeline import make_windows
from pipeline.runtime.errors import UserError
from pipeline.text import tokenizer as module
from pipeline.text.builtin_corpora import python_docs
from pipeline.text.tokenizer import END_OF_TEXT, TextEncoder, chunks, load_tokenizer, train_tokenizer
from tests.helpers.commands import DATA, words

LLAMA_3 = (  # the pattern that today's models split words with: a line break joins the punctuation before it
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def pieces_of(text: str, seed: int) -> list[str]:
    rng, cuts = random.Random(seed), [0, len(text)]
    cuts += [rng.randrange(len(text)) for _ in range(5)]
    return [text[a:b] for a, b in zip(sorted(cuts), sorted(cuts)[1:], strict=False)]


def with_pattern(encoder: TextEncoder, split: object) -> TextEncoder:
    backend = Tokenizer.from_str(encoder.backend.to_str())
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    return TextEncoder(backend, END_OF_TEXT)


def hard_text() -> str:
    rng = random.Random(0)
    symbols = [
        "a",
        "Bc",
        "7",
        "12345",
        ".",
        "?!",
        "'s",
        " ",
        "  ",
        "\n",
        "\n\n",
        "\r\n",
        "\t",
        "\u00a0",
        "é",
        "中文",
        "😀",
        "_",
    ]
    return "".join(rng.choices(symbols, k=60_000))


@pytest.mark.parametrize("pattern", ["gpt2", "llama3"])
def test_text_in_chunks_gets_the_ids_of_the_whole_text(tokenizer, monkeypatch, pattern):
    encoder = load_tokenizer(tokenizer)
    if pattern == "llama3":
        from tokenizers import Regex

        encoder = with_pattern(encoder, pre_tokenizers.Split(Regex(LLAMA_3), "isolated"))
    assert encoder.cuts_exactly
    monkeypatch.setattr(module, "CHUNK", 50)
    for text in (hard_text(), words(20_000, 1), "".join(python_docs("test"))):
        cut = list(chunks(pieces_of(text, 2)))
        assert "".join(cut) == text
        assert len(cut) > len(text) / 500
        assert list(chain(*encoder.encode(cut))) == encoder.encode([text])[0]


def test_a_tokenizer_that_looks_across_words_is_not_cut(tokenizer):
    encoder = load_tokenizer(tokenizer)
    normalised = Tokenizer.from_str(encoder.backend.to_str())
    normalised.normalizer = normalizers.Strip()
    spaces = Tokenizer(models.BPE({"a": 0, " ": 1, "a ": 2, "a a": 3, END_OF_TEXT: 4}, [("a", " "), ("a ", "a")]))
    prefixed = Tokenizer.from_str(encoder.backend.to_str())
    prefixed.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    added = Tokenizer.from_str(encoder.backend.to_str())
    added.add_tokens(["New York"])
    whole = Tokenizer(models.WordLevel({"a b": 0, END_OF_TEXT: 1}, unk_token=END_OF_TEXT))
    for backend in (normalised, spaces, prefixed, added, whole):
        assert not TextEncoder(backend, END_OF_TEXT).cuts_exactly
    assert list(chunks(["x " * 9000, "y"], cut=False)) == ["x " * 9000 + "y"]


def test_transformers_loads_what_was_saved_and_gives_the_same_ids(tokenizer):
    theirs, ours = AutoTokenizer.from_pretrained(tokenizer), load_tokenizer(tokenizer)
    text = words(500, 3)
    assert theirs(text).input_ids == ours.encode([text])[0]
    assert theirs.decode(theirs(text).input_ids) == ours.decode(ours.encode([text])[0]) == text
    assert (theirs.eos_token_id, len(theirs)) == (ours.eos_token_id, ours.vocabulary_size) == (399, 400)


def test_the_digest_survives_transformers_and_changes_with_the_vocabulary(tokenizer, tmp_path):
    AutoTokenizer.from_pretrained(tokenizer).save_pretrained(tmp_path)
    assert load_tokenizer(str(tmp_path)).digest == load_tokenizer(tokenizer).digest
    other = train_tokenizer(python_docs("test"), 400)
    assert other.digest != load_tokenizer(tokenizer).digest


def test_merges_that_differ_are_distinguished_where_ids_mean_the_same(tokenizer, tmp_path):
    content = json.loads(load_tokenizer(tokenizer).backend.to_str())
    content["model"]["merges"] = content["model"]["merges"][:-1]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    changed, encoder = load_tokenizer(str(tmp_path)), load_tokenizer(tokenizer)
    assert changed.digest == encoder.digest
    assert changed.encoding_digest != encoder.encoding_digest


def test_training_does_not_depend_on_how_the_text_comes():
    texts = list(python_docs("valid"))
    first = train_tokenizer(texts, 350)
    assert train_tokenizer(reversed(texts), 350).encoding_digest == first.encoding_digest
    assert first.vocabulary_size == 350


def test_gpt2s_two_files_are_a_tokenizer(tokenizer, tmp_path):
    encoder = load_tokenizer(tokenizer)
    model = json.loads(encoder.backend.to_str())["model"]
    vocabulary = model["vocab"] | {END_OF_TEXT: 399}
    (tmp_path / "encoder.json").write_text(json.dumps(vocabulary))
    (tmp_path / "vocab.bpe").write_text(
        "#version: 0.2\n" + "\n".join(" ".join(merge) for merge in model["merges"]) + "\n"
    )
    loaded = load_tokenizer(str(tmp_path))
    assert loaded.encode([words(500, 3)]) == encoder.encode([words(500, 3)])
    assert loaded.digest == encoder.digest


def test_what_only_transformers_can_read_is_left_to_it(tokenizer, tmp_path):
    encoder = load_tokenizer(tokenizer)
    model = json.loads(encoder.backend.to_str())["model"]
    merges = "\n".join(" ".join(merge) for merge in model["merges"])
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"] | {END_OF_TEXT: 399}))
    (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    config = {"tokenizer_class": "GPT2Tokenizer", "eos_token": END_OF_TEXT}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    loaded = load_tokenizer(str(tmp_path))
    assert loaded.encode([words(500, 3)]) == encoder.encode([words(500, 3)])
    assert loaded.digest == encoder.digest


@pytest.mark.skipif(not DATA.exists(), reason="GPT-2's own BPE is not part of the project")
def test_gpt2s_own_bpe():
    encoder = load_tokenizer(str(DATA / "gpt2-bpe"))
    assert encoder.encode(["Hello world"]) == [[15496, 995]]
    assert (encoder.vocabulary_size, encoder.eos_token_id, encoder.cuts_exactly) == (50257, 50256, True)


def test_text_that_spells_a_special_token_is_only_text(tokenizer):
    encoder = load_tokenizer(tokenizer)
    ids = encoder.encode([f"a{END_OF_TEXT}b"])[0]
    assert encoder.eos_token_id not in ids
    assert encoder.decode(ids) == f"a{END_OF_TEXT}b"


def test_a_tokenizer_without_eos_or_of_no_kind_is_refused(tmp_path):
    backend = Tokenizer(models.BPE({"a": 0}, []))
    backend.decoder = decoders.Fuse()
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match=f"--tokenizer {tmp_path}: it has no EOS token.*tokenizer_config.json"):
        load_tokenizer(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match=r"not a tokenizer.json"):
        load_tokenizer(str(tmp_path))
    with pytest.raises(UserError, match=r"--tokenizer /nowhere: neither a folder .* nor a hub name"):
        load_tokenizer("/nowhere")


def test_eos_is_found_in_the_config_as_a_string_or_as_a_token(tokenizer, tmp_path):
    content = load_tokenizer(tokenizer).backend.to_str()
    for eos in ("!", {"content": "!", "special": True}):
        (tmp_path / "tokenizer.json").write_text(content)
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": eos}))
        assert load_tokenizer(str(tmp_path)).eos_token == "!"


def test_another_tokenizer_beside_a_store_is_not_taken_for_its_own(tmp_path):
    store = tmp_path / "store"
    make_windows.main(f"--input builtin:sums:lines=20 --split train --shards 1 --output {store}".split())
    assert load_tokenizer(str(store)).vocabulary_size == 14
    path = store / "tokenizer/tokenizer.json"
    content = json.loads(path.read_text())
    pieces = content["model"]["vocab"]
    pieces["1"], pieces["2"] = pieces["2"], pieces["1"]
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"store/tokenizer: not the tokenizer that the manifest names: run .* --repair"):
        load_tokenizer(str(store))

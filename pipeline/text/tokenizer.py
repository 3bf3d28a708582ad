"""Tokenizers: loading one from wherever it is, training one, saving one with a store, and saying which it is."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from pipeline.runtime import files
from pipeline.runtime.digests import digest_of
from pipeline.runtime.errors import UserError, first_line
from pipeline.stores.manifest import MANIFEST, read_manifest
from pipeline.stores.shards import TOKENIZER_FILES, TOKENIZER_FOLDER

END_OF_TEXT = "<|endoftext|>"
CHUNK = 8_000  # characters that are encoded as one string: small enough to keep all cores busy with few documents
# Before a space or a line break that follows a letter or digit, or a space that follows punctuation: the usual
# byte-level tokenizers never join what stands on the two sides.
CUT = re.compile(r"(?<=[^\W_])[ \n]|(?<=[!-~]) ")


@dataclass(frozen=True)
class TextEncoder:
    """A tokenizer as this project uses it: text to ids, no special tokens added, EOS known by name.

    Text is only ever text: a literal `<|endoftext|>` in a document is encoded letter by letter, not as EOS.
    """

    backend: Tokenizer
    eos_token: str

    @property
    def description(self) -> dict[str, Any]:
        """What a manifest says of it."""
        return {
            "digest": self.digest,
            "encoding": self.encoding_digest,
            "vocabulary_size": self.vocabulary_size,
            "eos_token_id": self.eos_token_id,
        }

    @cached_property
    def pieces(self) -> dict[str, int]:
        """Every piece with its id. Asking the backend takes a while, as does its content."""
        return self.backend.get_vocab(with_added_tokens=True)

    @cached_property
    def content(self) -> dict[str, Any]:
        """What a tokenizer.json says of it."""
        return dict(json.loads(self.backend.to_str()))

    @cached_property
    def eos_token_id(self) -> int:
        return self.pieces[self.eos_token]

    @cached_property
    def vocabulary_size(self) -> int:
        """One more than the largest id, which is what a model's embedding must hold."""
        return max(self.pieces.values()) + 1

    @cached_property
    def digest(self) -> str:
        """Of what the ids mean: every piece with its id, and the EOS id. Stores and models must agree on it."""
        pieces = sorted(zip(self.pieces.values(), self.pieces, strict=True))
        return digest_of([pieces, self.eos_token_id])

    @cached_property
    def encoding_digest(self) -> str:
        """Of everything that decides which ids a text gets: merges, normaliser and pre-tokeniser too."""
        return digest_of([self.content | {"truncation": None, "padding": None}, self.eos_token])

    @cached_property
    def cuts_exactly(self) -> bool:
        """Whether a text cut at `CUT` gets the same ids as the whole text.

        True if nothing rewrites the text before it is split into words, no piece of the vocabulary spans a cut,
        and around a cut, whatever kinds of characters stand before and after it, the words are the same either way.
        """
        if self.content["normalizer"] is not None or any(
            not token["special"] for token in self.content["added_tokens"]
        ):
            return False
        ids = self.backend.get_vocab(with_added_tokens=False).values()
        if any(CUT.search(piece, 1) for piece in self.backend.decode_batch([[id] for id in ids])):
            return False
        if self.backend.pre_tokenizer is None:
            model = self.content["model"]
            return bool(model["type"] == "BPE" and not model["fuse_unk"] and not model["ignore_merges"])
        kinds = ["a", "Z", "7", ".", "'", "_", "\u00e9", "\u4e2d", "\u0301", "\U0001f600", " ", "\n", "\r", "\u00a0"]
        sides = ["".join(pair) for pair in itertools.product(kinds, repeat=2)]
        cuts = [(left, gap) for left in sides for gap in " \n" if CUT.search(left + gap, 2)]
        # Each left side with a few right ones, and the other way round: no rule of words looks far to both sides.
        texts = [(left, gap + right) for left, gap in cuts for right in (" a", "\n\n", ".7", "'s")]
        texts += [(left, gap + right) for left, gap in cuts if left in ("aa", "77", ".a", "a.") for right in sides]
        return all(self._words(left) + self._words(right) == self._words(left + right) for left, right in texts)

    def _words(self, text: str) -> list[str]:
        pre_tokenizer: Any = self.backend.pre_tokenizer
        return [word for word, _ in pre_tokenizer.pre_tokenize_str(text)]

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self.backend.encode_batch_fast(texts, add_special_tokens=False)]

    def decode(self, ids: Iterable[int]) -> str:
        return str(self.backend.decode([int(id) for id in ids], skip_special_tokens=False))

    def save(self, folder: str) -> None:
        """Writes a folder that `AutoTokenizer.from_pretrained` loads."""
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": self.eos_token,
            "bos_token": self.eos_token,
            "unk_token": None,
            "clean_up_tokenization_spaces": False,
        }
        contents = (json.dumps(config, indent=1), self.backend.to_str(pretty=True))
        for name, content in zip(TOKENIZER_FILES, contents, strict=True):
            files.put(files.join(folder, name), content.encode())


def chunks(pieces: Iterable[str], cut: bool = True) -> Iterator[str]:
    """A document's text, given in pieces of any size, in chunks that can be encoded one by one."""
    held = ""
    for piece in pieces:
        held += piece
        start = 0
        while cut and (found := CUT.search(held, start + CHUNK)):
            yield held[start : found.start()]
            start = found.start()
        held = held[start:]
    if held:
        yield held


class UnfitTokenizer(Exception):
    """Why a tokenizer cannot be used."""


def load_tokenizer(name: str) -> TextEncoder:
    """From a tokenizer.json, a folder (a tokenizer's, a store's, a model's, GPT-2's two files), or a hub name."""
    try:
        return _load(name)
    except UnfitTokenizer as error:
        raise UserError(f"--tokenizer {name}: {error}") from None


def read_tokenizer(path: str, eos_token: str | None) -> TextEncoder:
    """From a tokenizer.json of any name, whose EOS is known."""
    try:
        return _parsed(files.read(path), eos_token)
    except OSError as error:
        raise UserError(f"{path}: it cannot be read ({first_line(error)}): copy the folder again") from None
    except UnfitTokenizer as error:
        raise UserError(f"{path}: {error}") from None


def _load(name: str) -> TextEncoder:
    if name.endswith(".json") and files.is_file(name):
        return _parsed(files.read(name), None)
    inside = files.join(name, TOKENIZER_FOLDER)
    for folder in (name, inside):
        if files.is_file(files.join(folder, "tokenizer.json")):
            config = files.join(folder, "tokenizer_config.json")
            settings = _json_object(config) if files.is_file(config) else {}
            eos = settings.get("eos_token")
            eos = eos.get("content") if isinstance(eos, dict) else eos
            content = files.read(files.join(folder, "tokenizer.json"))
            encoder = _parsed(content, eos if isinstance(eos, str) else None)
            if folder == inside and files.is_file(files.join(name, MANIFEST)):
                _check_stores_own(name, encoder)
            return encoder
    if files.is_file(files.join(name, "encoder.json")) and files.is_file(files.join(name, "vocab.bpe")):
        return _gpt2(name)
    return _from_transformers(name)


def _check_stores_own(store: str, encoder: TextEncoder) -> None:
    """That the tokenizer beside a store's shards is the one that its rows were made with."""
    if encoder.description != read_manifest(store).tokenizer:
        raise UserError(
            f"{files.join(store, TOKENIZER_FOLDER)}: not the tokenizer that the manifest names: "
            f"run pipeline/verify_store.py {store} --repair"
        )


def _json_object(url: str) -> dict[str, Any]:
    try:
        content = json.loads(files.read(url))
    except (ValueError, RecursionError) as error:
        raise UserError(f"--tokenizer: {url} is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise UserError(f"--tokenizer: {url} is not a JSON object")
    return content


@lru_cache(maxsize=4)  # a run meets the same few tokenizers beside each of its stores and models
def _parsed(content: bytes, eos_token: str | None) -> TextEncoder:
    try:
        backend = Tokenizer.from_str(content.decode())
    except Exception as error:  # tokenizers raises bare Exception
        raise UnfitTokenizer(f"not a tokenizer.json ({error})") from None
    return _checked(backend, eos_token)


def _gpt2(folder: str) -> TextEncoder:
    vocabulary = _json_object(files.join(folder, "encoder.json"))
    lines = files.read(files.join(folder, "vocab.bpe")).decode(errors="replace").split("\n")
    pairs = [line.rstrip("\r").partition(" ") for line in lines if not line.startswith("#version")]
    try:
        backend = Tokenizer(models.BPE(vocabulary, [(left, right) for left, _, right in pairs if right]))
    except Exception as error:  # tokenizers raises bare Exception
        raise UnfitTokenizer(f"encoder.json and vocab.bpe do not fit ({error})") from None
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if END_OF_TEXT in vocabulary:
        backend.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    return _checked(backend, END_OF_TEXT)


def _from_transformers(name: str) -> TextEncoder:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # slow to import: only where nothing else fits

    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)  # or it would ask
    except Exception as error:
        reason = first_line(error)
        raise UnfitTokenizer(
            f"neither a folder with tokenizer.json (or encoder.json and vocab.bpe) "
            f"nor a hub name that can be reached ({reason})"
        ) from None
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise UnfitTokenizer(f"{type(tokenizer).__name__} has no fast version, which this project needs")
    return _checked(tokenizer.backend_tokenizer, tokenizer.eos_token)


def _checked(backend: Tokenizer, eos_token: str | None) -> TextEncoder:
    if eos_token is None and backend.token_to_id(END_OF_TEXT) is not None:
        eos_token = END_OF_TEXT
    if eos_token is None or backend.token_to_id(eos_token) is None:
        raise UnfitTokenizer(
            'it has no EOS token, which joins documents: name one of its pieces as "eos_token" in tokenizer_config.json'
        )
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    return TextEncoder(backend, eos_token)


def train_tokenizer(texts: Iterable[str], vocabulary_size: int) -> TextEncoder:
    """Byte-level BPE, as GPT-2's, of `vocabulary_size` pieces, EOS included (as the last one)."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size - 1,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    backend.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    return _checked(backend, END_OF_TEXT)


def character_tokenizer(alphabet: str) -> TextEncoder:
    """One piece a character, and EOS."""
    backend = Tokenizer(models.BPE({character: id for id, character in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    return _checked(backend, END_OF_TEXT)

"""How many tokens texts have: the paper's corpora, OpenAI's samples, and what a command line says."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.runtime.errors import UserError

# The paper's table 1, in GPT-2's pieces. OpenAI's gpt-2-output-dataset has 250,000, 5,000 and 5,000 texts of each kind;
# 1,300 of them had 590 tokens on average.
PAPER = {
    "books/train": 690e6,
    "books/valid": 7.3e6,
    "books/test": 8.0e6,
    "ccnews/train": 21_718e6,
    "ccnews/valid": 1.0e6,
    "ccnews/test": 3.4e6,
    "wikitext/train": 113e6,
    "wikitext/valid": 0.2e6,
    "wikitext/test": 0.3e6,
    "webtext/train": 250_000 * 590.0,
    "webtext/valid": 5_000 * 590.0,
    "webtext/test": 5_000 * 590.0,
}
NAMED = re.compile(r"(?P<corpus>.+)\.(?P<split>train|valid|test)\.\w+")  # webtext.train.jsonl


@dataclass(frozen=True)
class Texts:
    """Tokens of a corpus and split; `given` stands before what is known."""

    given: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, pairs: Sequence[str]) -> "Texts":
        """From words like ccnews/train=21.7e9."""
        found = {}
        for pair in pairs:
            name, _, number = pair.partition("=")
            try:
                found[name] = float(number)
            except ValueError:
                raise UserError(f"--tokens {pair}: CORPUS/SPLIT=N is needed, such as ccnews/train=21.7e9") from None
            if "/" not in name or not found[name] > 0:
                raise UserError(f"--tokens {pair}: CORPUS/SPLIT=N is needed, such as ccnews/train=21.7e9")
        return cls(found)

    def find(self, corpus: str, split: str) -> float | None:
        name = f"{corpus}/{split}"
        return self.given.get(name, PAPER.get(name))

    def tokens(self, corpus: str, split: str, wanted_by: str) -> float:
        if (found := self.find(corpus, split)) is None:
            raise UserError(f"--tokens {corpus}/{split}=N: how many tokens has this text? {wanted_by} reads all of it")
        return found

    def of_file(self, path: str, wanted_by: str) -> float:
        """Of a file whose name says what is in it: webtext.train.jsonl."""
        name = NAMED.match(os.path.basename(path))
        corpus, split = (name["corpus"], name["split"]) if name else (os.path.basename(path), "all")
        return self.tokens(corpus, split, wanted_by)

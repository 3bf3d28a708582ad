"""What has to be known to turn text into a store of windows."""

from dataclasses import dataclass, replace
from typing import Any

from pipeline.runtime.errors import UserError
from pipeline.runtime.settings import Settings, setting
from pipeline.text.builtin_corpora import parse_lines
from pipeline.text.document_part import DocumentPart
from pipeline.text.documents import FORMATS

WINDOW = 160
STRIDE = 40
STRETCH_BYTES = 128 << 20
STRIDES = {"books": 40, "wikitext": 40, "ccnews": 160}  # the paper's
TEXT, TOKENS, STORE = "the text", "the tokens", "the store"


@dataclass(frozen=True, kw_only=True)
class WindowsSettings(Settings):
    """Which text is cut into which windows, and where they go."""

    input: tuple[str, ...] = setting(
        metavar="PATTERN",
        help="files (.txt .jsonl .parquet, also .gz and .zst) on any filesystem; or hf:NAME[:CONFIG], a data set; or "
        "builtin:sorting[:digits=6][:lines=N], builtin:sums[:digits=3][:lines=N] or builtin:python-docs. "
        "May be given several times",
        group=TEXT,
    )
    corpus: str | None = setting(
        None,
        help="its name, part of every window's id; books, wikitext and ccnews have the paper's strides "
        "(default: a built-in corpus's own name)",
        group=TEXT,
        result=True,
    )
    split: str = setting(help="train, valid or test; part of every window's id", group=TEXT, result=True)
    format: str = setting("auto", choices=FORMATS, help="of the files (default: by name and first line)", group=TEXT)
    text_field: str = setting(
        "text", help="field or column that holds the text (default: text)", group=TEXT, result=True
    )
    encoding: str = setting("utf-8", help="of text and JSON files (default: utf-8)", group=TEXT, result=True)
    deduplicate: bool = setting(False, help="keep only one of several equal documents", group=TEXT, result=True)
    near_copies: float | None = setting(
        None,
        metavar="F",
        help="keep only one of several equal or similar documents: of the runs of eight words that either of two has, "
        "both have the share F or more, such as 0.8, as MinHash estimates it",
        group=TEXT,
        least=0.3,
        most=1,
    )
    documents: str | None = setting(
        None,
        metavar="I/N",
        help="only part I of N of the documents, by their digests: 1/2 and 2/2 have none in common, so that energies "
        "are trained on text that the language model has not seen",
        group=TEXT,
    )
    max_reject_fraction: float = setting(
        0.01,
        metavar="F",
        help="fail if more than this share of the documents has to be left out: invalid UTF-8, NUL bytes, broken JSON "
        "(default: 0.01)",
        group=TEXT,
        least=0,
        most=1,
    )
    tokenizer: str | None = setting(
        None,
        metavar="DIR_OR_NAME",
        help="a tokenizer's folder, a store's or a model's, one with GPT-2's encoder.json and vocab.bpe, or a hub name",
        group=TOKENS,
    )
    train_tokenizer: int | None = setting(
        None,
        metavar="SIZE",
        help="or train a byte-level BPE of SIZE pieces on the input",
        group=TOKENS,
        least=257,  # one piece a byte, and EOS
        most=10**7,
    )
    window: int | None = setting(
        None,
        metavar="TOKENS",
        help=f"length of a window (default: {WINDOW}; sorting, sums: a line)",
        group=TOKENS,
        least=2,
        most=10**9,
        result=True,
    )
    stride: int | None = setting(
        None,
        metavar="TOKENS",
        help=f"from a window's start to the next one's (default: {STRIDE}; ccnews: 160; sorting, sums: a line)",
        group=TOKENS,
        least=1,
        most=10**9,
        result=True,
    )
    output: str = setting(metavar="DIR", help="its folder, on any filesystem", group=STORE)
    shards: int | None = setting(
        None,
        metavar="N",
        help="how many (default: one for every 8192 windows)",
        group=STORE,
        least=1,
        most=10**6,
        result=True,
    )
    limit: int | None = setting(
        None,
        metavar="N",
        help="keep N windows, chosen at random (the paper tests on 60000)",
        group=STORE,
        least=1,
        most=10**10,
        result=True,
    )
    seed: int = setting(
        0,
        help="of the shuffle, and of --limit's choice (default: 0)",
        group=STORE,
        least=0,
        most=2**63 - 1,
        result=True,
    )
    stretch_bytes: int = setting(
        STRETCH_BYTES,
        metavar="N",
        help="divide larger files, unless compressed, into stretches of so many bytes, each the work of one worker and "
        f"all that a kill costs; the store is the same (default: {STRETCH_BYTES}, 128 MB)",
        group=STORE,
        least=1,
        most=10**12,
    )
    overwrite: bool = setting(False, help="replace a store that was made with other settings", group=STORE)

    def check(self) -> None:
        builtin = self.builtin
        if builtin and len(self.input) > 1:
            raise UserError(f"--input {builtin}: a built-in corpus stands alone")
        line = self.line_length
        if not (self.corpus or builtin):
            raise UserError("--corpus: give the corpus a name, it becomes part of every window's id")
        for flag in ("corpus", "split", "output"):
            value = getattr(self, flag)
            if value is not None and not (value and value.isprintable()):
                raise UserError(f"--{flag} {value!r}: it must have characters, and only such as can be printed")
        if self.documents is not None:
            DocumentPart.parse(self.documents)
        if self.tokenizer and self.train_tokenizer is not None:
            raise UserError("--train_tokenizer: not together with --tokenizer")
        if not (self.tokenizer or self.train_tokenizer or line):
            raise UserError("--tokenizer: name one, or train one with --train_tokenizer SIZE")

    @property
    def builtin(self) -> str | None:
        return next((pattern for pattern in self.input if pattern.startswith("builtin:")), None)

    @property
    def line_length(self) -> int | None:
        """Of a built-in corpus whose lines are all as long, and are its windows."""
        lines = parse_lines(self.builtin) if self.builtin else None
        return lines.line_length if lines else None

    @property
    def part(self) -> DocumentPart:
        """Which of the documents are wanted."""
        return DocumentPart.parse(self.documents)

    def result(self) -> dict[str, Any]:
        """What leaves documents out is named only where it does."""
        named = {"documents": self.documents, "near_copies": self.near_copies}
        return super().result() | {name: value for name, value in named.items() if value}

    def settled(self) -> "WindowsSettings":
        """With the defaults that depend on the corpus."""
        corpus = self.corpus or (self.builtin or "").split(":")[1]
        window = self.window or self.line_length or WINDOW
        stride = self.stride or self.line_length or STRIDES.get(corpus, STRIDE)
        return replace(self, corpus=corpus, window=window, stride=stride)

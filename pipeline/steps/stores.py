"""Stores from what a notebook holds: texts to windows, windows and a language model to negatives.

Whatever else a stage can be told is given by the names of its settings: `window=64`, `negatives=100`, `engine="torch"`.
"""

import json
from collections.abc import Sequence
from typing import Any

from pipeline.make_windows import make_windows
from pipeline.mine_negatives import mine_negatives
from pipeline.mining.settings import MiningSettings
from pipeline.models.model_folder import ModelFolder
from pipeline.runtime import files
from pipeline.stores.reader import Store
from pipeline.windows.settings import WindowsSettings


def windows_from(
    texts: Sequence[str], output: str, *, corpus: str = "texts", split: str = "train", **settings: Any
) -> Store:
    """A store of windows of texts, which are kept beside it, so that it can be checked and made again.

    It needs a tokenizer: `tokenizer`, a folder, another store's path or a hub name, or `train_tokenizer`, a size.
    """
    kept = f"{output.rstrip('/')}.jsonl"
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    if not files.is_file(kept) or files.read(kept) != lines:
        files.put(kept, lines)
    make_windows(WindowsSettings(input=(kept,), corpus=corpus, split=split, output=output, **settings))
    return Store(output, kind="windows")


def negatives_of(windows: Store | str, generator: ModelFolder | str, output: str, **settings: Any) -> Store:
    """A store of the completions that a language model samples for the windows' contexts."""
    mine_negatives(MiningSettings(windows=path_of(windows), generator=(name_of(generator),), output=output, **settings))
    return Store(output, kind="negatives")


def path_of(store: Store | str) -> str:
    return store if isinstance(store, str) else store.path


def name_of(model: ModelFolder | str) -> str:
    return model if isinstance(model, str) else model.name

"""Results that took long, kept in a file, so that a killed job does not compute them again."""

import json
import time
from collections.abc import Callable
from typing import Any

from pipeline.runtime import files

SECONDS = 10.0  # what a kill may cost


class ResultCache:
    """A JSON object on any filesystem, by the keys of which results are found again; `save` is for the end."""

    def __init__(self, url: str):
        self.url = url
        self.saved = time.monotonic()
        try:
            self.results: dict[str, Any] = json.loads(files.read(url)) if files.is_file(url) else {}
        except ValueError:  # nothing that cannot be computed again
            self.results = {}

    def get(self, key: str, compute: Callable[[], Any]) -> Any:
        """What is kept under this key, computed if there is nothing."""
        if key not in self.results:
            self.results[key] = compute()
            if time.monotonic() - self.saved > SECONDS:
                self.save()
        return self.results[key]

    def save(self) -> None:
        files.put(self.url, json.dumps(self.results).encode())
        self.saved = time.monotonic()

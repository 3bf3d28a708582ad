"""A part of a corpus, by its documents' digests: the same documents wherever they stand, and none in two parts."""

import math
import re
from dataclasses import dataclass

from pipeline.runtime.errors import UserError


@dataclass(frozen=True)
class DocumentPart:
    """Part `number` of `of`, counted from 1."""

    number: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str | None) -> "DocumentPart":
        """From `1/2`; nothing is everything."""
        if text is None:
            return cls()
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise UserError(f"--documents {text}: a part of how many, such as 1/2 or 2/2")
        return cls(int(found[1]), int(found[2]))

    def has(self, digest: bytes) -> bool:
        """Whether a document of this digest belongs to it."""
        return int.from_bytes(digest[-8:]) % self.of == self.number - 1

    def meets(self, other: "DocumentPart") -> bool:
        """Whether a document can be in both."""
        return (self.number - other.number) % math.gcd(self.of, other.of) == 0

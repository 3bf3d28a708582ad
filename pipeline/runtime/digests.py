"""Digests: what identifies settings, rows and files. Each is a SHA-256, in hexadecimal digits."""

import hashlib
import json
from typing import Any


def digest_of(facts: Any) -> str:
    """Of anything that JSON can hold: the same whatever order its keys come in."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

"""Digests of a model's files, beside them: damage and mix-ups are noticed by whoever reads the model."""

import hashlib
import json
import os

from pipeline.runtime.errors import UserError, first_line

DIGESTS = "digests.json"  # of the other files, as its trainer wrote them


def write_digests(folder: str) -> None:
    """Notes what a model's files are, so that whoever reads them sees whether they still are."""
    found = {}
    for name in sorted(os.listdir(folder)):
        if name != DIGESTS and os.path.isfile(path := os.path.join(folder, name)):
            found[name] = file_digest(path)
    with open(os.path.join(folder, DIGESTS), "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)


def known_digests(folder: str) -> dict[str, str]:
    """What a trainer noted; nothing for models from elsewhere."""
    path = os.path.join(folder, DIGESTS)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError, OSError) as error:
        raise UserError(f"{path}: it cannot be read ({first_line(error)}): copy the folder again") from None
    if not isinstance(found, dict) or not all(name == os.path.basename(name) for name in found):
        raise UserError(f"{path}: not digests of files in this folder: copy the folder again")
    return found


def check_file(path: str) -> None:
    """Refuses a file of a model that is missing, or other than its trainer has noted."""
    folder, name = os.path.split(path)
    if (wanted := known_digests(folder).get(name)) is None:
        return
    if not os.path.isfile(path) or file_digest(path) != wanted:
        what = "other than the training wrote it" if os.path.isfile(path) else "missing"
        raise UserError(
            f"{path}: {what} ({DIGESTS}): copy the folder again, or, if you changed it yourself, remove {DIGESTS}"
        )


def file_digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

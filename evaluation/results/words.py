"""Words of a command line, as settings read them."""

from collections.abc import Sequence


def spread(arguments: Sequence[str], *flags: str) -> list[str]:
    """`--flag A B` as `--flag A --flag B`, for flags that several values may follow at once."""
    words: list[str] = []
    current = ""
    for word in arguments:
        if word.startswith("--"):
            current = word if word in flags else ""
            words.append(word)
        elif current and words[-1] != current:
            words += [current, word]
        else:
            words.append(word)
    return words

"""What a command says when it ends: the name of what it made, and a line for each thing to know of it."""

from collections.abc import Mapping


def print_summary(title: str, facts: Mapping[str, str]) -> None:
    """Facts that are empty are left out."""
    print(title)
    for name, value in facts.items():
        if value:
            print(f"  {name:<10} {value}")

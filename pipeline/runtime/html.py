"""Tables of HTML, in which objects show themselves in notebooks; whatever text comes in is text, and never markup."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, rows: Iterable[Sequence[object]], head: Sequence[object] = ()) -> str:
    """A table whose rows begin with their names; `head` names the columns."""
    top = f"<thead><tr>{''.join(map(_name, head))}</tr></thead>" if head else ""
    body = "".join(f"<tr>{_name(row[0])}{''.join(map(_value, row[1:]))}</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption>{top}<tbody>{body}</tbody></table>"


def html_list(sentences: Iterable[str]) -> str:
    """Sentences below a table; nothing where there are none."""
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>" if items else ""


def _name(value: object) -> str:
    return f"<th>{escape(str(value))}</th>"


def _value(value: object) -> str:
    return f"<td>{escape(str(value))}</td>"

"""Settings: what a stage needs, as a frozen dataclass; its command line, its record and its checks come from that.

    @dataclass(frozen=True, kw_only=True)
    class ScoreSettings(Settings):
        energy: str = setting(help="an energy model", metavar="DIR")
        batch_size: int = setting(64, help="windows at once", least=1)

A field is a flag: `str`, `int`, `float`, `bool` (a switch), `X | None`, or `tuple[X, ...]` (a flag that may be given
several times; once with commas where `commas` is set, once with several values where `several` is). A field without a
default is required. One that is `positional` is the word itself, without a flag.
"""

import argparse
import json
import types
from collections.abc import Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from pipeline.runtime import files
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import UserError


def setting(
    default: Any = MISSING,
    *,
    help: str,
    metavar: str | None = None,
    choices: Sequence[str] | Sequence[int] | None = None,
    group: str = "",
    least: float | None = None,
    most: float | None = None,
    commas: bool = False,
    several: bool = False,
    flag: bool = True,
    positional: bool = False,
    result: bool = False,
    recorded: bool = True,
) -> Any:
    """A field of settings: its flag's help, the group that it is listed in, and the values that it may have.

    One that is no flag (`flag=False`) is given from Python alone. What is made depends on those with `result`. How one
    run goes about it (`recorded=False`) is not part of what was made, and is not used again when it is made again.
    """
    facts = {"help": help, "metavar": metavar, "choices": choices, "group": group, "least": least, "most": most}
    metadata = facts | {"commas": commas, "several": several, "flag": flag, "positional": positional, "result": result}
    metadata["recorded"] = recorded
    return field(default=default, metadata=metadata) if default is not MISSING else field(metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The base of every stage's settings. `check` refuses what cannot work, in the words of the flags."""

    def __post_init__(self) -> None:
        for one in fields(self):
            check_value(one.name, getattr(self, one.name), one.metadata)
        self.check()

    def check(self) -> None:
        """What fields have to do with each other; nothing, unless a stage says so."""

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return {one.name: _plain(getattr(self, one.name)) for one in fields(self)}

    @classmethod
    def from_json(cls, content: Any, source: str) -> Self:
        """Settings that were written down; `source` is the file that an error names. Nothing unknown passes."""
        if not isinstance(content, dict):
            raise UserError(f"{source}: not settings, but {type(content).__name__}")
        known, hints = {one.name: one for one in fields(cls)}, get_type_hints(cls)
        if unknown := sorted(content.keys() - known.keys()):
            raise UserError(f"{source}: {unknown[0]}: not a setting of {cls.__name__}")
        values = {name: _typed(value, hints[name], f"{source}: {name}") for name, value in content.items()}
        if missing := [name for name, one in known.items() if one.default is MISSING and name not in values]:
            raise UserError(f"{source}: {missing[0]}: missing")
        return cls(**values)

    def result(self) -> dict[str, Any]:
        """The settings that what is made depends on."""
        return {one.name: _plain(getattr(self, one.name)) for one in fields(self) if one.metadata.get("result")}

    def recorded(self) -> Self:
        """The same without what concerns one run alone."""
        return replace(
            self, **{one.name: one.default for one in fields(self) if not one.metadata.get("recorded", True)}
        )

    def to_words(self) -> list[str]:
        """The words that give these settings, those that are as by default left out."""
        words: list[str] = []
        for one in sorted(fields(self), key=lambda one: not one.metadata.get("positional")):
            value = getattr(self, one.name)
            if value == one.default or not one.metadata.get("flag", True):
                continue
            if one.metadata["positional"]:
                words.append(str(value))
                continue
            if isinstance(value, tuple) and one.metadata["commas"]:
                value = ",".join(map(str, value))
            if isinstance(value, tuple) and one.metadata["several"]:
                words += [f"--{one.name}", *map(str, value)]
                continue
            for each in value if isinstance(value, tuple) else [value]:
                words += [f"--{one.name}"] if each is True else [f"--{one.name}", str(each)]
        return words


S = TypeVar("S", bound=Settings)


def read_settings(cls: type[S], arguments: Sequence[str], about: str | None) -> S:
    """The settings that a command line gives; what it does not know is refused."""
    settings, rest = read_known_settings(cls, arguments, about, others=False)
    if rest:
        raise UserError(f"unrecognized arguments: {' '.join(rest)[:200]}: see --help")
    return settings


def read_known_settings(
    cls: type[S], arguments: Sequence[str], about: str | None, others: bool = True
) -> tuple[S, list[str]]:
    """The settings that a command line gives, and the words that are no flags of theirs, which there may be: `others`.

    `about` is the help's text.
    """
    from_file = any(word.partition("=")[0] == "--settings" for word in arguments)
    parser = parser_of(cls, about, required=not from_file)
    parser.refuse_foreign(arguments, misspelt=not others)
    given, rest = parser.parse_known_args(list(arguments))
    values = {name: value for name, value in vars(given).items() if value is not None and name != "settings"}
    hints = get_type_hints(cls)
    for one in fields(cls):
        if isinstance(values.get(one.name), str) and _items(hints[one.name]) is not None:
            values[one.name] = [part for part in values[one.name].split(",") if part]
        if isinstance(values.get(one.name), list):
            values[one.name] = tuple(values[one.name])
    if given.settings is not None:
        values = read_recorded(given.settings) | values
    if given.settings is not None:
        return cls.from_json({name: _plain(value) for name, value in values.items()}, given.settings), rest
    return cls(**values), rest


def read_recorded(url: str) -> dict[str, Any]:
    """Settings from a file: as they are, or as a manifest or a record has them."""
    try:
        content = json.loads(files.read(url))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"--settings {url}: it cannot be read ({error})") from None
    if isinstance(content, dict) and isinstance(content.get("call"), dict):
        content = content["call"].get("settings")
    if not isinstance(content, dict):
        raise UserError(f"--settings {url}: there are no settings in it")
    return content


def parser_of(cls: type[Settings], about: str | None, required: bool = True) -> Parser:
    """The command line of settings: a flag a field, in the groups and the order in which they stand.

    What a class adds comes before what it inherits: the subject of a stage before what it shares with others.
    """
    parser = Parser(about)
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    for one in sorted(fields(cls), key=lambda one: _depth(cls, one.name)):
        if one.metadata.get("flag", True):
            name = one.metadata["group"]
            if name not in groups:
                groups[name] = parser.add_argument_group(name)
            _add_flag(groups[name], one, get_type_hints(cls)[one.name], required and one.default is MISSING)
    parser.add_argument(
        "--settings", metavar="FILE", help="take them from a JSON file or a store's manifest; flags come before it"
    )
    return parser


def _depth(cls: type[Settings], name: str) -> int:
    """How far above a class in its order of inheritance a field is declared."""
    return next(depth for depth, owner in enumerate(cls.__mro__) if name in vars(owner).get("__annotations__", {}))


def _add_flag(parser: argparse._ActionsContainer, one: "Field[Any]", hint: Any, required: bool) -> None:
    facts = one.metadata
    inner = _without_none(hint)
    items = _items(inner)
    if inner is bool:
        parser.add_argument(f"--{one.name}", action="store_const", const=True, help=facts["help"])
        return
    options: dict[str, Any] = {"metavar": facts["metavar"], "help": facts["help"].replace("%", "%%")}
    if facts["positional"]:
        parser.add_argument(one.name, nargs=None if required else "?", choices=facts["choices"], **options)
        return
    options["required"] = required
    if items is not None and facts["several"]:
        options |= {"action": "extend", "nargs": "+"}
    elif items is not None and not facts["commas"]:
        options["action"] = "append"
    kind = items if items is not None and not facts["commas"] else str if items is not None else inner
    if kind in (int, float):
        options["type"] = kind
    if facts["choices"] is not None:
        options |= {"choices": facts["choices"], "metavar": facts["metavar"]}
        if facts["metavar"] is None:
            del options["metavar"]
    parser.add_argument(f"--{one.name}", **options)


def check_value(name: str, value: Any, facts: Any) -> None:
    for each in value if isinstance(value, tuple) else [value]:
        choices, least, most = (facts.get(key) for key in ("choices", "least", "most"))
        if each is None:
            continue
        if choices is not None and each not in choices:
            raise UserError(f"--{name} {each}: one of {', '.join(map(str, choices))}")
        if (least, most) == (0, 1) and not least <= each <= most:
            raise UserError(f"--{name} {each}: between 0 and 1")
        if least is not None and not each >= least:
            raise UserError(f"--{name} {each}: at least {least}")
        if most is not None and not each <= most:
            raise UserError(f"--{name} {each}: at most {most}")


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        return kinds[0]
    return hint


def _items(hint: Any) -> Any:
    """What a tuple's items are; None for what is no tuple."""
    inner = _without_none(hint)
    return get_args(inner)[0] if get_origin(inner) is tuple else None


def _plain(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.to_json()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _typed(value: Any, hint: Any, where: str) -> Any:
    """A value of JSON as a field's type; anything else is refused."""
    if value is None and type(None) in get_args(hint):
        return None
    inner, items = _without_none(hint), _items(hint)
    if items is not None:
        if not isinstance(value, list | tuple):
            raise UserError(f"{where}: a list is needed")
        return tuple(_typed(each, items, where) for each in value)
    if isinstance(inner, type) and issubclass(inner, Settings):
        return inner.from_json(value, where)
    fits = isinstance(value, inner) and (inner is bool or not isinstance(value, bool))
    if inner is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not fits:
        raise UserError(f"{where}: {inner.__name__} is needed, not {str(value)[:80]!r}")
    return value

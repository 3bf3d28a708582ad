"""Studies that repeat themselves: entries for every corpus, direction or seed, written once.

    axes:
      corpus:                      # an axis: its names, and what is known of each
        books: {title: Books}
        wiki: {title: Wiki}
      direction: {prefix: {reads: left_to_right}, suffix: {reads: right_to_left}}
      union: {both: {corpus: [books, wiki]}}
    values: {steps: 1000}
    language_models:
      "{corpus}-{direction}": {direction: "{direction.reads}", train: "{corpus}-train", max_steps: "{steps}"}
    energy_models:
      "{union}-unit": {train: ["{corpus}-{direction}-train"], …}

Where a name stands, as a key or in a list, an axis in it makes as many of it as the axis has names: four language
models above, and a union that is trained on four stores. `{corpus.title}` is what is known of the name at hand; what is
known of one under the name of another axis, as of the union above, says which names go with it. `{steps}` is a value,
of its own type where it stands alone; null leaves the flag out. A file that `extends` another one has all of it that is
not said otherwise, or left out with null.
"""

import os
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import yaml

from pipeline.runtime.errors import UserError
from pipeline.runtime.json_schema import first_error
from pipeline.runtime.yaml_file import UNKNOWN, described, line_of, parse_yaml

PLACEHOLDER = re.compile(r"\{([a-zA-Z_]\w*)(?:\.(\w+))?\}")
OWN = ("axes", "values", "extends")  # what a template says of itself, and no study has

Bound = dict[str, str]  # an axis, and the name of it at hand


def read_template(path: str, schema: dict[str, Any], variables: dict[str, str]) -> dict[str, Any]:
    """The study that a file describes, written out; what does not fit the schema is named with its line."""
    content, root = read_with_bases(path, variables)
    if (wrong := first_error({name: content[name] for name in OWN if name in content}, TEMPLATE)) is not None:
        raise UserError(f"{path}, line {line_of(root, wrong)}: {described(wrong)}")
    values = (content.get("values") or {}) | given_values(content, variables)
    template = Template(content.get("axes") or {}, values, path)
    written = template.expand({name: value for name, value in content.items() if name not in OWN}, {})
    if (wrong := first_error(written, schema)) is not None:
        raise UserError(f"{path}, line {line_of(root, wrong, template.origins)}: {described(wrong)}")
    return dict(written)


def variables_in(path: str) -> set[str]:
    """The names that a study, or one that it extends, has ${…} around."""
    content, _ = read_with_bases(path, {}, (path,))
    return set(UNKNOWN.findall(yaml.safe_dump(content, allow_unicode=True, width=10**6)))


def read_with_bases(path: str, variables: dict[str, str], above: tuple[str, ...] = ()) -> tuple[Any, yaml.Node | None]:
    """A file's content, over that of the files that it extends."""
    content, root = parse_yaml(path, variables, all_known=not above)  # what a base asks for may be left out above it
    if not isinstance(content, dict):
        raise UserError(f"{path}, line 1: not a study, but {type(content).__name__}")
    if base := content.get("extends"):
        source = os.path.join(os.path.dirname(path), str(base))
        if source in above:
            raise UserError(f"{path}: it extends itself, by way of {source}")
        content = merged(read_with_bases(source, variables, (*above, path))[0], content)
    return content, root


def merged(base: Any, over: Any, place: tuple[str, ...] = ()) -> Any:
    """Mappings key by key, what is null left out; anything else as it stands on top."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    found = base | {name: merged(base.get(name), value, (*place, str(name))) for name, value in over.items()}
    if place == ("values",) or (place[:1] == ("axes",) and len(place) == 3):  # here null is a value like others
        return found
    return {name: value for name, value in found.items() if value is not None or name not in over}


def given_values(content: dict[str, Any], variables: dict[str, str]) -> dict[str, Any]:
    """Values that a command line gives (--set steps=100) in place of the file's."""
    return {name: yaml.safe_load(text) for name, text in variables.items() if name in (content.get("values") or {})}


class Template:
    """Axes and values, and what they make of names. `origins` says which name in the file each one comes from."""

    def __init__(self, axes: dict[str, Any], values: dict[str, Any], path: str):
        self.axes = {
            axis: {str(name): {} for name in names}
            if isinstance(names, list)
            else {str(name): known or {} for name, known in names.items()}
            for axis, names in axes.items()
        }
        self.values, self.path = values, path
        self.origins: dict[str, str] = {}
        if both := sorted(self.axes.keys() & values.keys()):
            raise UserError(f"{path}: {both[0]} is an axis and a value")

    def expand(self, node: Any, bound: Bound) -> Any:
        """A node of YAML with every name written out."""
        if isinstance(node, str):
            return self.filled(node, bound)
        if isinstance(node, list):
            return [self.expand(item, inner) for item in node for inner in self.choices(label_of(item), bound)]
        if not isinstance(node, dict):
            return node
        found: dict[str, Any] = {}
        for key, value in node.items():
            for inner in self.choices(str(key), bound):
                name = str(self.filled(str(key), inner))
                if name in found:
                    raise UserError(f"{self.path}: two entries are called {name}")
                self.origins[name] = str(key)
                found[name] = self.expand(value, inner)
                if found[name] is None and value is not None:  # a value that is null: the flag is left out
                    del found[name]
        return found

    def choices(self, label: str, bound: Bound) -> Iterator[Bound]:
        """Every way to bind the axes in a name that are still free."""
        free = next((axis for axis, _ in PLACEHOLDER.findall(label) if axis in self.axes and axis not in bound), None)
        if free is None:
            yield bound
            return
        for name in self.names(free, bound):
            yield from self.choices(label, bound | {free: name})

    def names(self, axis: str, bound: Bound) -> list[str]:
        """An axis's names that go with those at hand."""
        return [
            name
            for name in self.axes[axis]
            if all(self.allows(other, at_hand, axis, name) for other, at_hand in bound.items())
            and all(self.allows(axis, name, other, at_hand) for other, at_hand in bound.items())
        ]

    def allows(self, axis: str, name: str, other: str, candidate: str) -> bool:
        """Whether what is known of a name leaves a candidate of another axis."""
        known = self.axes[axis][name].get(other)
        if known is None:
            return True
        wanted = {str(one) for one in (known if isinstance(known, list) else [known])}
        if unknown := sorted(wanted - self.axes[other].keys()):
            raise UserError(f"{self.path}: {axis} {name}: there is no {other} {unknown[0]}")
        return candidate in wanted

    def filled(self, text: str, bound: Bound) -> Any:
        """A text with what its placeholders stand for; one that stands alone keeps its type."""
        if missing := UNKNOWN.search(text):
            raise UserError(f"{self.path}: {text}: say what {missing[1]} is: --set {missing[1]}=…")
        if alone := PLACEHOLDER.fullmatch(text):
            return self.value(alone[1], alone[2], bound, text)
        return PLACEHOLDER.sub(lambda found: str(self.value(found[1], found[2], bound, text)), text)

    def value(self, name: str, field: str | None, bound: Bound, text: str) -> Any:
        if name in self.values and field is None:
            return self.values[name]
        if name not in self.axes:
            listed = ", ".join([*self.axes, *self.values]) or "none"
            raise UserError(f"{self.path}: {text}: there is no axis or value {name} (there are: {listed})")
        there = [bound[name]] if name in bound else self.names(name, bound)
        if len(there) != 1:
            raise UserError(f"{self.path}: {text}: which {name}? It is not in the entry's name, nor in a list")
        known = self.axes[name][there[0]]
        if field is None:
            return there[0]
        if field not in known:
            raise UserError(f"{self.path}: {text}: of {name} {there[0]} no {field} is known")
        return self.filled(known[field], bound) if isinstance(known[field], str) else known[field]


def label_of(item: Any) -> str:
    """The name that an item of a list has: itself, or what stands under `name`."""
    return str(item.get("name", "")) if isinstance(item, dict) else str(item) if isinstance(item, str) else ""


TEMPLATE = {
    "type": "object",
    "properties": {
        "extends": {"type": "string"},
        "values": {"type": "object"},
        "axes": {
            "type": "object",
            "additionalProperties": {
                "description": "names, or names with what is known of each",
                "anyOf": [
                    {"type": "array", "minItems": 1, "items": {"type": ["string", "number"]}},
                    {"type": "object", "minProperties": 1, "additionalProperties": {"type": ["object", "null"]}},
                ],
            },
        },
    },
}
jsonschema.Draft202012Validator.check_schema(TEMPLATE)

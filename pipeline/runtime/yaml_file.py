"""YAML files that people write: checked against a schema, and what is wrong is said with its line."""

import json
import re
from string import Template
from typing import Any

import jsonschema
import yaml

from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from pipeline.runtime.json_schema import first_error

MOST_PARTS = 1_000_000
UNKNOWN = re.compile(r"\$\{(\w+)\}")  # a variable that nobody has given a value


def read_yaml(path: str, schema: dict[str, Any], variables: dict[str, str] | None = None) -> Any:
    """The content of a file that fits a JSON Schema; a UserError names file, line and place of what does not.

    With `variables`, ${NAME} stands for a value.
    """
    content, root = parse_yaml(path, variables)
    if (wrong := first_error(content, schema)) is not None:
        raise UserError(f"{path}, line {line_of(root, wrong)}: {described(wrong)}")
    return content


def parse_yaml(
    path: str, variables: dict[str, str] | None = None, all_known: bool = True
) -> tuple[Any, yaml.Node | None]:
    """The content of a file, and the nodes that know its lines; no key stands twice.

    A variable that is not known is an error, or, if not all have to be, stays as it is.
    """
    if not files.is_file(path):
        raise UserError(f"{path}: there is no such file")
    try:
        text = files.read(path).decode()
        if variables is not None:
            text = filled(text, variables, path, all_known)
        root = yaml.compose(text, yaml.SafeLoader)
        if written_out(root) > MOST_PARTS:
            raise UserError(f"{path}: written out, its anchors are more than {MOST_PARTS:,} parts")
        content = yaml.safe_load(text)
        twice = repeated_key(root)
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{path}{place}: not YAML ({getattr(error, 'problem', error)})") from None
    except RecursionError:
        raise UserError(f"{path}: its parts contain each other without end") from None
    except (ValueError, TypeError, AttributeError, OverflowError) as error:  # such as an impossible date
        raise UserError(f"{path}: not YAML ({error})") from None
    if twice:
        raise UserError(f"{path}, line {twice.start_mark.line + 1}: {twice.value} is given twice")
    return content, root


def written_out(root: yaml.Node | None) -> int:
    """How many parts a file has if every alias is written out: a few lines of them can stand for billions."""
    counted: dict[int, int] = {}

    def count(node: yaml.Node) -> int:
        if id(node) not in counted:
            parts = node.value if isinstance(node, yaml.CollectionNode) else []
            pairs = [one for part in parts for one in (part if isinstance(part, tuple) else (part,))]
            counted[id(node)] = 1 + sum(map(count, pairs))
        return counted[id(node)]

    return 0 if root is None else count(root)


def described(error: jsonschema.ValidationError) -> str:
    """An error's place and what is wrong there."""
    where = ".".join(map(str, error.absolute_path))
    return f"{where + ': ' if where else ''}{said(error)}"


def filled(text: str, variables: dict[str, str], path: str, all_known: bool = True) -> str:
    """A text with its variables' values, which stand within double quotes; comments may say what they like."""
    values = {name: json.dumps(value)[1:-1] for name, value in variables.items()}
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.lstrip().startswith("#"):
            line = Template(line).safe_substitute(values)
            if all_known and (missing := UNKNOWN.search(line)):
                raise UserError(f"{path}, line {number}: say what {missing[1]} is: --set {missing[1]}=…")
        lines.append(line)
    return "\n".join(lines)


def repeated_key(node: yaml.Node | None) -> yaml.Node | None:
    """A key that stands twice in a mapping, which YAML's reader passes over in silence."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                return key
            seen.add(str(key.value))
            if found := repeated_key(value):
                return found
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            if found := repeated_key(item):
                return found
    return None


def line_of(node: yaml.Node | None, error: jsonschema.ValidationError, places: dict[str, str] | None = None) -> int:
    """Where in the file the value is that the error speaks of; an unknown key is its own place.

    `places` are the keys of the file that stand for several others, which the error may name: as deep as the file goes.
    """
    if node is None:
        return 1
    for step in error.absolute_path:
        if isinstance(node, yaml.MappingNode):
            names = {str(step), (places or {}).get(str(step), str(step))}
            found = next((value for key, value in node.value if key.value in names), None)
            if found is None:
                break
            node = found
        elif isinstance(node, yaml.SequenceNode):
            node = node.value[int(step)]
    if error.validator == "additionalProperties" and isinstance(node, yaml.MappingNode):
        known = error.schema.get("properties", {})
        for key, _ in node.value:
            if key.value not in known:
                return int(key.start_mark.line) + 1
    return int(node.start_mark.line) + 1


def said(error: jsonschema.ValidationError) -> str:
    """The schema's own words where it has some (`description`), else the checker's."""
    if error.validator in ("anyOf", "oneOf", "not", "pattern") and "description" in error.schema:
        return f"{error.instance!r} is not {error.schema['description']}"
    return str(error.message)

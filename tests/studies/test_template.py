"""Studies that are written once for several corpora: what names become, and what is wrong with them."""

from pathlib import Path

import pytest
import yaml

from pipeline.runtime.errors import UserError
from studies.orchestration.template import Template, merged, read_template

AXES = {
    "corpus": {"books": {"title": "Books"}, "news": {"title": "News"}, "wiki": {"title": "Wiki"}},
    "direction": {"prefix": {"reads": "left"}, "suffix": {"reads": "right"}},
    "seed": [1, 2],
    "union": {"two": {"corpus": ["books", "wiki"]}, "one": {"corpus": "news"}},
    "model": {"small": None, "big": {"corpus": "news", "seed": [2]}},
}
VALUES = {"steps": 100, "contexts": [48, 56], "nothing": None}


def expand(node):
    return Template(AXES, VALUES, "study.yaml").expand(node, {})


def test_a_key_is_written_out_for_every_name_of_its_axes():
    found = expand({"{corpus}-{seed}": {"title": "{corpus.title}", "seed": "{seed}"}})
    assert list(found) == ["books-1", "books-2", "news-1", "news-2", "wiki-1", "wiki-2"]
    assert found["news-2"] == {"title": "News", "seed": "2"}


def test_an_item_of_a_list_is_written_out_for_the_axes_that_its_entry_leaves_free():
    found = expand(
        {"{corpus}-unit": {"train": ["{corpus}-{direction}"], "reads": ["{direction.reads} {corpus.title}"]}}
    )
    assert found["wiki-unit"] == {"train": ["wiki-prefix", "wiki-suffix"], "reads": ["left Wiki", "right Wiki"]}


def test_what_is_known_of_a_name_decides_which_names_of_another_axis_go_with_it():
    found = expand({"{union}": ["{corpus}"]})
    assert found == {"two": ["books", "wiki"], "one": ["news"]}
    combined = list(expand({"{corpus}-{model}-{seed}": "x"}))
    assert [name for name in combined if "big" in name] == ["news-big-2"]
    assert sum("small" in name for name in combined) == 6
    assert expand({"{union}": ["{model}"]})["two"] == ["small", "big"]  # a union says nothing of models


def test_one_name_that_goes_with_what_is_at_hand_need_not_be_said():
    assert Template(AXES, VALUES, "s").expand({"{union}": ["{corpus.title}"]}, {"union": "one"})["one"] == ["News"]
    only = Template({"text": {"a": {"corpus": "b"}}, "corpus": {"b": {"title": "B"}, "c": {"title": "C"}}}, {}, "s")
    assert only.expand({"{text}": {"title": "{corpus.title}"}}, {}) == {"a": {"title": "B"}}


def test_mappings_in_lists_are_written_out_by_their_name():
    rows = [{"name": "{corpus.title}", "energy": {"{direction}": "{corpus}-{direction}"}}]
    assert expand({"rows": rows})["rows"][1] == {
        "name": "News",
        "energy": {"prefix": "news-prefix", "suffix": "news-suffix"},
    }


def test_a_value_keeps_its_type_and_null_leaves_the_flag_out():
    found = expand({"a": {"max_steps": "{steps}", "lengths": "{contexts}", "limit": "{nothing}", "note": "{steps} x"}})
    assert found == {"a": {"max_steps": 100, "lengths": [48, 56], "note": "100 x"}}


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"a": {"train": "{corpus}"}}, "which corpus?"),
        ({"a": {"train": "{color}"}}, "there is no axis or value color"),
        ({"{corpus}": {"train": "{corpus.color}"}}, "of corpus books no color is known"),
        ({"{corpus}": {}, "books": {}}, "two entries are called books"),
        ({"a": {"train": ["${DATA}/x"]}}, "say what DATA is: --set DATA="),
    ],
)
def test_what_a_name_does_not_say_is_asked_for(node, message):
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        expand(node)


def test_an_axis_that_names_what_is_not_there_is_named():
    template = Template({"union": {"a": {"corpus": ["b"]}}, "corpus": ["c"]}, {}, "s")
    with pytest.raises(UserError, match="union a: there is no corpus b"):
        template.expand({"{union}": ["{corpus}"]}, {})


def test_a_file_above_another_replaces_key_by_key_and_null_leaves_out():
    base = {
        "values": {"a": 1, "b": 2},
        "axes": {"x": {"p": {"k": 1, "l": 2}, "q": {}}},
        "windows": {"w": {"s": 1}, "v": {}},
    }
    over = {"values": {"a": None}, "axes": {"x": {"p": {"k": None}, "q": None}}, "windows": {"w": {"t": 2}, "v": None}}
    assert merged(base, over) == {
        "values": {"a": None, "b": 2},
        "axes": {"x": {"p": {"k": None, "l": 2}}},
        "windows": {"w": {"s": 1, "t": 2}},
    }


def write(folder: Path, name: str, content: dict) -> str:
    (folder / name).write_text(yaml.safe_dump(content, sort_keys=False))
    return str(folder / name)


def test_a_study_extends_another_and_a_command_line_gives_values(tmp_path):
    write(
        tmp_path,
        "base.yaml",
        {
            "values": {"steps": 100},
            "axes": {"corpus": ["a", "b"]},
            "lms": {"{corpus}": {"steps": "{steps}"}, "other": {"input": "${UNKNOWN}"}},
        },
    )
    top = write(tmp_path, "top.yaml", {"extends": "base.yaml", "axes": {"corpus": ["c"]}, "lms": {"other": None}})
    assert read_template(top, {}, {}) == {"lms": {"c": {"steps": 100}}}
    assert read_template(top, {}, {"steps": "7"}) == {"lms": {"c": {"steps": 7}}}
    with pytest.raises(UserError, match="say what UNKNOWN is"):
        read_template(str(tmp_path / "base.yaml"), {}, {})
    write(tmp_path, "base.yaml", {"extends": "top.yaml"})
    with pytest.raises(UserError, match="it extends itself"):
        read_template(top, {}, {})


def test_what_does_not_fit_the_schema_is_said_with_the_line_of_the_name_that_it_comes_from(tmp_path):
    path = write(tmp_path, "study.yaml", {"axes": {"corpus": ["a"]}, "lms": {"{corpus}-x": {"steps": "many"}}})
    schema = {"properties": {"lms": {"additionalProperties": {"properties": {"steps": {"type": "integer"}}}}}}
    with pytest.raises(UserError, match=r"study.yaml, line 6: lms.a-x.steps: 'many' is not of type 'integer'"):
        read_template(path, schema, {})
    with pytest.raises(UserError, match=r"axes\.corpus"):
        read_template(write(tmp_path, "bad.yaml", {"axes": {"corpus": 7}}), schema, {})

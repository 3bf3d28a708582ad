"""YAML that people write, or strangers: what is wrong is said in one line, and in no time."""

import pytest

from pipeline.runtime.errors import UserError
from pipeline.runtime.yaml_file import MOST_PARTS, read_yaml


def test_a_few_lines_that_stand_for_billions_are_refused_at_once(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    (tmp_path / "laughs.yaml").write_text("\n".join(lines))
    with pytest.raises(UserError, match=rf"laughs.yaml: written out, its anchors are more than {MOST_PARTS:,} parts"):
        read_yaml(str(tmp_path / "laughs.yaml"), {})


def test_anchors_of_an_ordinary_size_are_what_they_stand_for(tmp_path):
    (tmp_path / "few.yaml").write_text("one: &one {steps: 3}\ntwo: *one\nthree: [*one, *one]\n")
    steps = {"steps": 3}
    assert read_yaml(str(tmp_path / "few.yaml"), {}) == {"one": steps, "two": steps, "three": [steps, steps]}


def test_parts_that_contain_themselves_are_refused(tmp_path):
    (tmp_path / "ring.yaml").write_text("a: &a [*a]\n")
    with pytest.raises(UserError, match="contain each other without end"):
        read_yaml(str(tmp_path / "ring.yaml"), {})

"""Settings: flags from fields, fields from flags and from JSON, and what is refused."""

import json
from dataclasses import dataclass

import pytest

from pipeline.runtime.errors import UserError
from pipeline.runtime.settings import Settings, parser_of, read_known_settings, read_settings, setting


@dataclass(frozen=True, kw_only=True)
class Inner(Settings):
    depth: int = setting(help="how deep", least=1)


@dataclass(frozen=True, kw_only=True)
class Example(Settings):
    name: str = setting(help="its name", group="one")
    many: tuple[str, ...] = setting((), help="100% of them", group="one", result=True)
    numbers: tuple[int, ...] = setting((), help="with commas", commas=True)
    files: tuple[str, ...] = setting((), help="several at once", several=True)
    size: int = setting(3, help="its size", least=2, most=9, result=True)
    share: float | None = setting(None, help="of all", least=0, most=1)
    kind: str = setting("a", choices=("a", "b"), help="which kind")
    loud: bool = setting(False, help="say it", result=True)
    inner: Inner | None = setting(None, help="more", flag=False)

    def check(self) -> None:
        if self.kind == "b" and not self.loud:
            raise UserError("--kind b: needs --loud")


def test_flags_give_settings_and_settings_give_flags():
    words = ["--name", "x", "--many", "a", "--many", "b", "--size", "5", "--kind", "b", "--loud"]
    settings = read_settings(Example, words, None)
    assert settings == Example(name="x", many=("a", "b"), size=5, kind="b", loud=True)
    assert settings.to_words() == words
    assert read_settings(Example, settings.to_words(), None) == settings
    assert settings.result() == {"many": ["a", "b"], "size": 5, "loud": True}


def test_a_flag_may_take_several_values_at_once_or_come_several_times():
    for words in (["--files", "a", "b"], ["--files", "a", "--files", "b"]):
        settings = read_settings(Example, ["--name", "x", *words], None)
        assert settings.files == ("a", "b")
    assert settings.to_words() == ["--name", "x", "--files", "a", "b"]


@dataclass(frozen=True, kw_only=True)
class Positional(Settings):
    loud: bool = setting(False, help="say it")
    place: str = setting(metavar="PLACE", help="where", positional=True)


def test_a_word_without_a_flag_is_the_positional_setting(tmp_path):
    for words in (["here", "--loud"], ["--loud", "here"]):
        assert read_settings(Positional, words, None) == Positional(place="here", loud=True)
    assert Positional(place="here", loud=True).to_words() == ["here", "--loud"]
    assert read_known_settings(Positional, ["here", "--runner", "Direct"], None)[1] == ["--runner", "Direct"]
    assert "PLACE" in parser_of(Positional, None).format_usage()
    with pytest.raises(UserError, match="the following arguments are required: PLACE"):
        read_settings(Positional, ["--loud"], None)
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(Positional(place="there").to_json()))
    assert read_settings(Positional, ["--settings", str(file)], None) == Positional(place="there")
    assert read_settings(Positional, ["here", "--settings", str(file)], None) == Positional(place="here")


def test_defaults_are_left_out_of_the_words_and_the_rest_is_handed_on():
    settings, rest = read_known_settings(Example, ["--runner", "Direct", "--name", "x"], None)
    assert settings == Example(name="x")
    assert (settings.to_words(), rest) == (["--name", "x"], ["--runner", "Direct"])
    with pytest.raises(UserError, match="unrecognized arguments: --runner Direct: see --help"):
        read_settings(Example, ["--name", "x", "--runner", "Direct"], None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the following arguments are required: --name"),
        (["--name", "x", "--size", "1"], "--size 1: at least 2"),
        (["--name", "x", "--size", "10"], "--size 10: at most 9"),
        (["--name", "x", "--size", "many"], "invalid int value: 'many'"),
        (["--name", "x", "--share", "1.5"], "--share 1.5: between 0 and 1"),
        (["--name", "x", "--share", "nan"], "--share nan: between 0 and 1"),
        (["--name", "x", "--kind", "c"], "invalid choice: 'c'"),
        (["--name", "x", "--kind", "b"], "--kind b: needs --loud"),
        (["--name", "x", "--siz", "3"], "--siz: there is none, perhaps --size"),
    ],
)
def test_what_cannot_work_is_refused_in_the_words_of_the_flags(words, message):
    with pytest.raises(UserError, match=message):
        read_settings(Example, words, None)


def test_the_same_is_refused_from_python():
    with pytest.raises(UserError, match="--size 1: at least 2"):
        Example(name="x", size=1)
    with pytest.raises(UserError, match="--kind c: one of a, b"):
        Example(name="x", kind="c")


def test_settings_survive_json():
    settings = Example(name="x", many=("a",), numbers=(1, 2), share=1, inner=Inner(depth=2))
    assert Example.from_json(json.loads(json.dumps(settings.to_json())), "file") == settings


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unknown": 1}, "file: unknown: not a setting of Example"),
        ({"size": "3"}, "file: size: int is needed"),
        ({"size": True}, "file: size: int is needed"),
        ({"loud": 1}, "file: loud: bool is needed"),
        ({"many": "abc"}, "file: many: a list is needed"),
        ({"many": [1]}, "file: many: str is needed"),
        ({"inner": {"depth": 0}}, "--depth 0: at least 1"),
        ({"inner": {"depth": 1, "command": "rm"}}, "file: inner: command: not a setting of Inner"),
        ({"size": 100}, "--size 100: at most 9"),
    ],
)
def test_json_of_another_shape_is_refused(change, message):
    with pytest.raises(UserError, match=message):
        Example.from_json({"name": "x"} | change, "file")
    with pytest.raises(UserError, match="file: name: missing"):
        Example.from_json({}, "file")
    with pytest.raises(UserError, match="file: not settings, but list"):
        Example.from_json([], "file")


def test_a_file_gives_settings_and_flags_come_before_it(tmp_path):
    plain, record = tmp_path / "plain.json", tmp_path / "record.json"
    settings = Example(name="x", size=5, many=("a",), inner=Inner(depth=2))
    plain.write_text(json.dumps(settings.to_json()))
    record.write_text(json.dumps({"call": {"stage": "s", "settings": settings.to_json()}}))
    assert read_settings(Example, ["--settings", str(plain)], None) == settings
    changed = read_settings(Example, ["--settings", str(record), "--size", "7", "--many", "b"], None)
    assert changed == Example(name="x", size=7, many=("b",), inner=Inner(depth=2))
    for content, message in (("no JSON", "cannot be read"), ("[]", "no settings in it"), ('{"x": 1}', "not a setting")):
        plain.write_text(content)
        with pytest.raises(UserError, match=message):
            read_settings(Example, ["--settings", str(plain), "--name", "y"], None)


def test_the_help_lists_every_flag_in_its_group():
    usage, _, text = parser_of(Example, "About it.").format_help().partition("\n\n")
    assert "--name NAME" in usage
    assert text.index("About it.") < text.index("one:") < text.index("--many") < text.index("100% of them")
    assert "--inner" not in text
    assert all(f"--{name}" in text for name in ("name", "size", "share", "kind", "loud", "numbers", "settings"))


@dataclass(frozen=True, kw_only=True)
class Training(Settings):
    """Some of a training's flags."""

    train: str = setting(help="a store")
    max_lr: float = setting(1.0, help="a rate")
    precision: str = setting("fp32", help="of numbers")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--learning_rate 3", "--learning_rate: here it is --max_lr: see --help"),
        ("--learning-rate=3", "--learning-rate: here it is --max_lr: see --help"),
        ("--max-lr 3", "--max-lr: here it is --max_lr: see --help"),
        ("--bf16", "--bf16: here it is --precision bf16: see --help"),
        ("--trian x", "--trian: there is none, perhaps --train: see --help"),
        ("--report_to wandb", "the following arguments are required: --train: see --help"),
    ],
)
def test_flags_that_fingers_know_from_elsewhere_are_answered_with_their_name_here(words, said):
    with pytest.raises(UserError) as error:
        read_settings(Training, words.split(), "about")
    assert str(error.value) == said


def test_words_for_a_runner_are_not_taken_for_mistakes():
    _, rest = read_known_settings(Training, ["--train", "x", "--trian", "y", "--runner", "DirectRunner"], "about")
    assert rest == ["--trian", "y", "--runner", "DirectRunner"]
    with pytest.raises(UserError, match="--learning_rate: here it is --max_lr"):
        read_known_settings(Training, ["--learning_rate", "3"], "about")

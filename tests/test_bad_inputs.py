"""Manifests, configurations, studies, grids, votes and flags, spoiled in every way that a seed can think of.

Each case ends well or with one line that names the fault, and leaves nothing behind. `make torture` tries ten times as
many.
"""

import copy
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import schemas
from evaluation.human.import_votes import read_pages
from evaluation.score import ScoreSettings
from pipeline import make_windows
from pipeline.import_texts import ImportSettings
from pipeline.mining.settings import MiningSettings, context_lengths_of
from pipeline.models.language_model import open_language_model
from pipeline.runtime.errors import UserError
from pipeline.runtime.settings import read_known_settings
from pipeline.runtime.yaml_file import read_yaml
from pipeline.stores.manifest import OWN_DIGEST, _own_digest
from pipeline.stores.reader import Store
from pipeline.verify_store import verify
from pipeline.windows.settings import WindowsSettings
from studies.orchestration.study import Study
from tests.helpers.commands import ROOT
from tests.helpers.mining import save_generator
from tests.studies.test_study import SMALL
from training.loop import checkpoints
from training.loop.plan import read_deepspeed_config
from training.train_energy import EnergySettings
from training.train_lm import LanguageModelSettings

CASES = 60
JUNK: list[Any] = [None, True, False, 0, 1, -1, 3.9e12, 10**30, -(2**63), 1e300, float("nan"), float("inf"), 0.5]
JUNK += ["", "x", "../..", "-x", "--input=/etc", "a\nb", "\x1b[2J", "é" * 300, "9" * 5000, "{x}", "$(x)", "${x}"]
JUNK += [[], {}, [None], {"": {}}, [[[[]]]], {"x": [1, "2"]}]


def places(content: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to everything in a value of JSON, itself included."""
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [way, *(found for key, value in inner for found in places(value, (*way, key)))]


def spoiled(content: Any, rng: random.Random) -> Any:
    """A copy with one thing replaced, left out, added, or given a wrong name."""
    content = copy.deepcopy(content)
    way = rng.choice(places(content))
    if not way:
        return rng.choice(JUNK)
    parent = content
    for key in way[:-1]:
        parent = parent[key]
    how = rng.choice(["replace", "replace", "replace", "remove", "add"])
    if how == "replace":
        parent[way[-1]] = copy.deepcopy(rng.choice(JUNK))
    elif how == "remove":
        del parent[way[-1]]
    elif isinstance(parent, dict):
        parent[rng.choice(["x", "", "__class__", "file", 7, None, True])] = rng.choice(JUNK)
    else:
        parent.append(rng.choice(JUNK))
    return content


def as_json(content: Any) -> str:
    return json.dumps(named(content))


def named(content: Any) -> Any:
    """With texts for keys, as JSON has them."""
    if isinstance(content, dict):
        return {str(key): named(value) for key, value in content.items()}
    return [named(value) for value in content] if isinstance(content, list) else content


def flipped(text: str, rng: random.Random) -> str:
    """With a few characters changed, left out or doubled."""
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(text))
        text = (
            text[:place]
            + rng.choice(["", text[place] * 2, ":", "&a *a", "\t", "{", '"', "\n", "-"])
            + text[place + 1 :]
        )
    return text


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    make_windows.main(f"--input builtin:sums:lines=30 --split train --shards 2 --output {folder / 'store'}".split())
    save_generator(folder / "model")
    return folder


def manifests(world: Path, rng: random.Random) -> Callable[[], object]:
    path = world / "store/manifest.json"
    content = spoiled(json.loads((world / "manifest.json").read_text()), rng)
    if isinstance(content, dict):  # the work of somebody who knows how it is signed
        content = named(content)
        content[OWN_DIGEST] = _own_digest(content)
    path.write_text(rng.choice([as_json(content)] * 9 + ["[" * 100_000]))

    def use() -> None:
        store = Store(str(world / "store"))
        assert 0 < int(store.manifest.settings["window"]) < 10**10
        assert len(store[0]["tokens"]) > 0
        list(store.rows())
        verify(str(world / "store"))

    return use


def records(world: Path, rng: random.Random) -> Callable[[], object]:
    (world / "store/manifest.json").write_text((world / "manifest.json").read_text())
    content = spoiled(json.loads((world / "command.json").read_text()), rng)
    (world / "store/command.json").write_text(as_json(content))
    return lambda: verify(str(world / "store"))


def configs(world: Path, rng: random.Random) -> Callable[[], object]:
    content = spoiled(json.loads((world / "config.json").read_text()), rng)
    (world / "model/config.json").write_text(rng.choice([as_json(content)] * 9 + ["[" * 100_000]))

    def use() -> None:
        model = open_language_model(str(world / "model"))
        tokenizer = {"digest": model.tokenizer_digest, "vocabulary_size": 14}
        model.check_fits(13, tokenizer, "the store")
        assert isinstance(model.provenance, dict)

    return use


def study_files(world: Path, rng: random.Random) -> Callable[[], object]:
    path = world / "spoiled.yaml"
    text = yaml.safe_dump(spoiled(SMALL, rng), sort_keys=False, allow_unicode=True)
    path.write_text(flipped(text, rng) if rng.random() < 0.3 else text)
    return lambda: Study(str(path), "out").jobs()


def grids(world: Path, rng: random.Random) -> Callable[[], object]:
    path = world / "spoiled.yaml"
    text = yaml.safe_dump(spoiled(SMALL["grids"]["small"], rng), sort_keys=False, allow_unicode=True)
    path.write_text(flipped(text, rng) if rng.random() < 0.3 else text)
    return lambda: read_yaml(str(path), schemas.read_schema("grid"))


def deepspeed_files(world: Path, rng: random.Random) -> Callable[[], object]:
    path = world / "spoiled.json"
    name = rng.choice(["stage1", "stage2-offload", "stage3"])
    content = spoiled(json.loads((ROOT / f"training/zero/{name}.json").read_text()), rng)
    path.write_text(rng.choice([as_json(content)] * 9 + ["[" * 100_000]))
    return lambda: read_deepspeed_config(str(path))


def marks(world: Path, rng: random.Random) -> Callable[[], object]:
    folder = world / "checkpoints/step-000007"
    folder.mkdir(parents=True, exist_ok=True)
    mark = {"step": 7, "ranks": 1, "stage": 1, "best_step": 3, "best_value": 3.5}
    (folder / "whole.json").write_text(rng.choice([as_json(spoiled(mark, rng))] * 9 + ["[" * 100_000]))
    return lambda: checkpoints.newest(str(world))


def votes(world: Path, rng: random.Random) -> Callable[[], object]:
    path = world / "spoiled.csv"
    text = "rater,page,comparison,choice\n" + "".join(f"r{n},p{n},{n},left\n" for n in range(5))
    junk = ["", "x" * 200_000, '"', "9" * 5000, "\0", "\r", "é", ",,,,,"]
    for _ in range(3):
        place = rng.randrange(len(text))
        text = text[:place] + rng.choice(junk) + text[place + rng.randint(0, 2) :]
    path.write_bytes(text.encode()[: rng.choice([10**9, 40, 1])])
    return lambda: read_pages(str(path))


def flags(world: Path, rng: random.Random) -> Callable[[], object]:
    kinds = (WindowsSettings, MiningSettings, ImportSettings, ScoreSettings, LanguageModelSettings, EnergySettings)
    kind = rng.choice(kinds)
    names = [name for name in kind.__dataclass_fields__ if name != "settings"]
    words: list[str] = []
    for name in [*rng.sample(names, rng.randint(1, 6)), "output", "split", "train", "valid", "windows"]:
        words += [f"--{name}", *(str(rng.choice(JUNK)) for _ in range(rng.choice([1, 1, 1, 0, 2])))]

    def use() -> None:
        settings, _ = read_known_settings(kind, words, None)
        if isinstance(settings, MiningSettings):
            context_lengths_of(settings.context_lengths, 160)

    return use


def settings_files(world: Path, rng: random.Random) -> Callable[[], object]:
    path = world / "spoiled.json"
    content = json.loads((world / "command.json").read_text())["call"]["settings"]
    path.write_text(as_json(spoiled(content, rng)))
    return lambda: read_known_settings(WindowsSettings, ["--settings", str(path)], None)


KINDS = [manifests, records, configs, study_files, grids, deepspeed_files, marks, votes, flags, settings_files]


def fault(use: Callable[[], object]) -> str | None:
    """What ended a case that should not have: everything but success, one line, or help."""
    try:
        use()
    except UserError as error:
        return None if str(error).isprintable() else f"not one line: {str(error)!r}"
    except SystemExit as error:
        return f"exit code {error.code}" if error.code else None
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return None


def try_all(world: Path, make: Callable[[Path, random.Random], Callable[[], object]], cases: range) -> None:
    for source in (world / "store/manifest.json", world / "store/command.json", world / "model/config.json"):
        kept = world / source.name
        if not kept.exists():
            kept.write_text(source.read_text())
    faults = []
    for seed in cases:
        use = make(world, random.Random(f"{make.__name__} {seed}"))
        before = sorted(os.listdir(world))
        if (found := fault(use)) is not None:
            faults.append(f"{make.__name__}, seed {seed}: {found}")
        assert sorted(os.listdir(world)) == before, f"{make.__name__}, seed {seed} left something behind"
    for source in ("manifest.json", "command.json"):
        (world / "store" / source).write_text((world / source).read_text())
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("make", KINDS)
def test_bad_input_ends_in_one_line_or_well(world, make):
    try_all(world, make, range(CASES))


def test_what_is_nested_too_deeply_is_named(tmp_path):
    path = tmp_path / "study.yaml"
    for text in ("a: &a [*a]\n", "windows: &w {x: *w}\n", "[" * 5000):
        path.write_text(text)
        with pytest.raises(UserError, match=r"study\.yaml"):
            Study(str(path), "out").jobs()

"""Pages of models and stores whose files were written by somebody who would like them to say something else."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

from evaluation.push_to_hub import PushSettings, push_to_hub
from pipeline.stores.manifest import MANIFEST, OWN_DIGEST, _own_digest

HOSTILE = "x | y |\n\n# Trusted\n---\nlicense: mit\n---\n<img src=x onerror=alert(1)> [a](https://b.c) `z` ${{}} \u202e"


def page_of(folder: Path) -> str:
    return push_to_hub(PushSettings(folder=str(folder), repo="user/name", dry_run=True)).page


def shape_of(page: str) -> list[tuple[str, str]]:
    """Headings, links, images, markup and code: all that a page has beside words and cells of tables."""
    tokens = MarkdownIt("commonmark").enable("table").parse(page.split("---\n", 2)[2])
    inner = [child for token in tokens for child in token.children or []]
    kinds = {"heading_open", "html_block", "html_inline", "link_open", "image", "code_inline", "hr", "fence", "tr_open"}
    return [(token.type, token.tag) for token in (*tokens, *inner) if token.type in kinds]


@pytest.mark.parametrize("name", ["lm0", "energy", "samples", "samples-energy"])
def test_nothing_in_the_files_breaks_out_of_its_place(world, tmp_path, name):
    pages = []
    for word in ("plain", HOSTILE):
        folder = tmp_path / str(len(pages)) / name
        shutil.copytree(world.folder / name, folder)
        spoil(folder, word)
        pages.append(page_of(folder))
    plain, hostile = pages
    assert shape_of(hostile) == shape_of(plain)
    heads = [yaml.safe_load(page.split("---\n")[1]) for page in pages]
    assert heads[1] == heads[0] | splits(heads[1])
    assert "\u202e" not in hostile.split("---\n", 2)[2]


def splits(head: dict) -> dict:
    """A split's name is spelled as the hub has it, and is no other then."""
    for config in head.get("configs", []):
        (files,) = config["data_files"]
        assert files["split"].isidentifier()
        assert files["path"] == "shards/*.parquet"
    return {"configs": head["configs"]} if "configs" in head else {}


def spoil(folder: Path, word: str) -> None:
    """Puts a word wherever a page might take one from."""
    if not (folder / MANIFEST).exists():
        config = json.loads((folder / "config.json").read_text())
        generator = {"architecture": word, "training_corpus": word, "digest": word}
        stores = [{"corpus": word, "split": word, "generator": generator, "sampling": {"rule": word}, "digest": word}]
        known = dict.fromkeys(("preset", "corpus", "split", "objective", "train", "code_version", "init"), word)
        (folder / "config.json").write_text(json.dumps(config | {"provenance": known | {"stores": stores}}))
        return
    content = json.loads((folder / MANIFEST).read_text())
    content["settings"] |= {"corpus": word, "split": word}
    content["code_version"] = word
    if "generator" in content:
        content["generator"] |= {"path": word, "architecture": word, "training_corpus": word}
        content["sampling"]["rule"] = word
    else:
        content["settings"]["energy"] |= {"path": word}
    content[OWN_DIGEST] = _own_digest(content)
    (folder / MANIFEST).write_text(json.dumps(content))
    record = json.loads((folder / "command.json").read_text())
    (folder / "command.json").write_text(json.dumps(record | {"settings": content["settings"]}))

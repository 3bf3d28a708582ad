import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM

from pipeline import make_windows, mine_negatives
from pipeline.mining import making as mining_making
from pipeline.mining import rows as mining
from pipeline.mining.job import drawn_length
from pipeline.mining.settings import context_lengths_of
from pipeline.models.language_model import open_language_model
from pipeline.models.model_folder import quiet
from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from pipeline.runtime.lock import writing
from pipeline.stores.manifest import read_manifest
from pipeline.stores.reader import Store
from pipeline.text.inputs import text_of
from pipeline.verify_store import main as verify_main
from pipeline.verify_store import verify
from tests.helpers.commands import command, free_port, run, serving, shard_bytes
from tests.helpers.mining import arguments, make_sums, mine, save_generator
from tests.helpers.processes import storm, timed
from tests.helpers.stores import shard_path


@pytest.fixture(scope="module")
def generator(tmp_path_factory) -> str:
    return save_generator(tmp_path_factory.mktemp("generators") / "forwards")


@pytest.fixture(scope="module")
def backwards(tmp_path_factory) -> str:
    return save_generator(tmp_path_factory.mktemp("generators") / "backwards", "right_to_left", seed=1)


@pytest.fixture(scope="module")
def windows(tmp_path_factory) -> str:
    return make_sums(tmp_path_factory.mktemp("windows") / "sums")


@pytest.fixture(scope="module")
def undisturbed(windows, generator, tmp_path_factory) -> str:
    output = tmp_path_factory.mktemp("undisturbed") / "store"
    assert mine(windows, generator, output, flags="--negatives 2") == 0
    return str(output)


def expected_log_p(generator: str, context: list[int], completion: list[int]) -> float:
    """log P(completion | context), one forward pass of transformers, in the order that the model reads."""
    model = AutoModelForCausalLM.from_pretrained(generator).eval()
    turn = -1 if model.config.direction == "right_to_left" else 1
    ids = torch.tensor([[13, *context[::turn], *completion[::turn]]])
    with torch.no_grad():
        scores = model(ids).logits.double().log_softmax(-1)[0]
    first = len(context)
    return sum(scores[first + place, token].item() for place, token in enumerate(completion[::turn]))


def check_rows(store: str, windows: str, generator: str, negatives: int, sample: int = 12) -> None:
    """Every window once, with what its own hash says, and log-probabilities that plain transformers finds too."""
    rows = list(Store(store, kind="negatives").rows())
    texts = {row["window_id"]: row["tokens"].tolist() for row in Store(windows).rows()}
    assert Counter(row["window_id"] for row in rows) == Counter(list(texts))
    backwards = open_language_model(generator).direction == "right_to_left"
    for number, row in enumerate(rows):
        ids, length = texts[row["window_id"]], row["context_length"]
        assert row["tokens"].tolist() == ids
        assert length == drawn_length(row["window_id"], 0, (0, 5, 8))
        assert [len(negative) for negative in row["negatives"]] == [13 - length] * negatives
        if number >= sample:
            continue
        context, positive = (ids[13 - length :], ids[: 13 - length]) if backwards else (ids[:length], ids[length:])
        assert row["positive_log_p"] == pytest.approx(expected_log_p(generator, context, positive), abs=1e-4)
        for negative, log_p in zip(row["negatives"], row["log_p"], strict=True):
            assert log_p == pytest.approx(expected_log_p(generator, context, list(negative)), abs=1e-4)


def test_every_window_gets_its_negatives_with_their_exact_probabilities(undisturbed, windows, generator):
    check_rows(undisturbed, windows, generator, negatives=2)
    assert verify(undisturbed) == []
    manifest = read_manifest(undisturbed)
    assert manifest.parent == {"path": windows, "digest": read_manifest(windows).digest}
    assert manifest.generator == {
        "path": generator,
        "digest": open_language_model(generator).weights_digest,
        "architecture": "transf-nano",
        "training_corpus": "sums",
        "training_seed": 0,
        "direction": "left_to_right",
        "parameters": open_language_model(generator).parameters,
        "trained_on_this_text": None,
    }
    assert manifest.sampling == {"rule": "temperature", "temperature": 1.0, "samples_per_row": 2}
    assert (manifest.counts["windows"], manifest.counts["negatives"]) == (120, 240)
    assert all(np.array_equal(row["log_p"], row["log_q"]) for row in Store(undisturbed).rows(["log_p", "log_q"]))


@pytest.mark.parametrize("name", ["generator", "backwards"])
def test_all_contexts_the_empty_one_included(name, windows, request, tmp_path):
    """The range 0-12: a window draws one of all lengths, and an empty context is the start token alone."""
    model = request.getfixturevalue(name)
    assert mine(windows, model, tmp_path / "store", flags="--context_lengths=0-12") == 0
    rows = list(Store(str(tmp_path / "store")).rows())
    lengths = [row["context_length"] for row in rows]
    assert lengths == [drawn_length(row["window_id"], 0, range(13)) for row in rows]
    assert set(lengths) == set(range(13))
    assert read_manifest(str(tmp_path / "store")).settings["context_lengths"] == list(range(13))
    for row in [row for row in rows if row["context_length"] in (0, 12)][:6]:
        ids, length = row["tokens"].tolist(), row["context_length"]
        context, positive = ids[:length], ids[length:]
        if name == "backwards":
            context, positive = ids[13 - length :], ids[: 13 - length]
        assert row["positive_log_p"] == pytest.approx(expected_log_p(model, context, positive), abs=1e-4)
        assert row["log_p"][0] == pytest.approx(expected_log_p(model, context, list(row["negatives"][0])), abs=1e-4)


@pytest.mark.parametrize(
    ("given", "expected"), [("0", [0]), ("0-3", [0, 1, 2, 3]), ("7,0-2,12-12", [7, 0, 1, 2, 12]), (None, [9, 11])]
)
def test_context_lengths_are_numbers_and_ranges(given, expected):
    assert context_lengths_of(given, 13) == tuple(expected)


@pytest.mark.slow
def test_vllm_mines_both_directions_and_rules_in_one_run(windows, generator, backwards, tmp_path):
    """Two engines, each in a process of its own, and four stores from one reading of the windows."""
    flags = f"--engine vllm --sampling temperature --sampling top_k --top_k 3 --generator {backwards}"
    ended = run("pipeline/mine_negatives.py", *arguments(windows, generator, tmp_path / "all", flags))
    assert ended.returncode == 0, ended.stderr
    for name, model in (("forwards", generator), ("backwards", backwards)):
        for rule in ("temperature", "top_k"):
            store = str(tmp_path / "all" / f"{name}-{rule}")
            assert verify(store) == []
            check_rows(store, windows, model, negatives=1, sample=4)
            rows = list(Store(store).rows(["log_p", "log_q"]))
            above = [row["log_q"][0] - row["log_p"][0] for row in rows]
            assert min(above) > 0.01 if rule == "top_k" else above == [0] * len(rows)


def test_true_completions_can_be_left_unscored(undisturbed, windows, generator, tmp_path):
    assert mine(windows, generator, tmp_path / "store", flags="--negatives 2 --positives unscored") == 0
    rows, scored = (Store(store).take(range(120)) for store in (str(tmp_path / "store"), undisturbed))
    assert rows["positive_log_p"].null_count == 120
    assert rows["negatives"].equals(scored["negatives"])
    assert read_manifest(str(tmp_path / "store")).settings["positives"] == "unscored"
    assert "positives" not in read_manifest(undisturbed).settings
    with pytest.raises(UserError, match="positives None, now unscored"):
        mine(windows, generator, Path(undisturbed), flags="--negatives 2 --positives unscored")


@pytest.mark.slow
def test_workers_change_no_row(undisturbed, windows, generator, tmp_path):
    flags = "--negatives 2 --direct_num_workers 2"
    ended = run("pipeline/mine_negatives.py", *arguments(windows, generator, tmp_path / "two", flags))
    assert ended.returncode == 0, ended.stderr
    assert shard_bytes(str(tmp_path / "two")) == shard_bytes(undisturbed)


@pytest.mark.slow
def test_another_runner_changes_no_row(undisturbed, windows, generator, tmp_path):
    port = free_port()
    server = ["-m", "apache_beam.runners.portability.local_job_service_main", "--job_port", str(port)]
    with serving([sys.executable, *server], port):
        flags = f"--negatives 2 --runner PortableRunner --job_endpoint localhost:{port} --environment_type LOOPBACK"
        assert mine(windows, generator, tmp_path / "portable", flags=flags) == 0
    assert shard_bytes(str(tmp_path / "portable")) == shard_bytes(undisturbed)


def test_a_bucket_holds_generator_windows_and_negatives(undisturbed, windows, generator, monkeypatch):
    port = free_port()
    bucket = "gs://anonymous@mining"
    monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://localhost:{port}")
    emulator = [str(Path(sys.executable).parent / "gcp-storage-emulator"), "start", "--in-memory", f"--port={port}"]
    with serving([*emulator, "--host=localhost", "--default-bucket=mining"], port):
        for folder, name in ((windows, "windows"), (generator, "models/lm")):
            for path in Path(folder).rglob("*"):
                if path.is_file():
                    files.put(f"{bucket}/{name}/{path.relative_to(folder)}", path.read_bytes())
        output = f"{bucket}/negatives"
        assert mine(f"{bucket}/windows", f"{bucket}/models/lm", output, flags="--negatives 2") == 0
        for name, content in shard_bytes(undisturbed).items():
            assert files.read(f"{output}/shards/{name}") == content
        assert verify(output) == []
        assert files.names_in(output) == ["command.json", "manifest.json", "shards", "tokenizer"]


@pytest.mark.slow
def test_a_killed_run_continues_to_the_same_store(undisturbed, windows, generator, tmp_path):
    flags = arguments(windows, generator, tmp_path / "whole", "--negatives 2")
    seconds = timed(command("pipeline/mine_negatives.py", *flags))
    again = command("pipeline/mine_negatives.py", *arguments(windows, generator, tmp_path / "killed", "--negatives 2"))
    storm(again, kills=3, seconds=seconds, seed=0)
    assert shard_bytes(str(tmp_path / "killed")) == shard_bytes(undisturbed)
    assert read_manifest(str(tmp_path / "killed")).digest == read_manifest(undisturbed).digest
    assert not (tmp_path / "killed/.work").exists()


def test_finished_shards_are_not_made_again(undisturbed, windows, generator, tmp_path, monkeypatch, capsys):
    store = tmp_path / "store"
    shutil.copytree(undisturbed, store)
    made = []

    def noted(windows, unit, *rest):
        made.append(unit.number)
        return mining.mine(windows, unit, *rest)

    monkeypatch.setattr(mining_making, "mine", noted)
    assert mine(windows, generator, store, flags="--negatives 2") == 0
    assert "negatives store" in capsys.readouterr().out
    assert made == []
    shard_path(store, 4).unlink()
    assert mine(windows, generator, store, flags="--negatives 2") == 0
    assert made == [4]
    assert shard_bytes(str(store)) == shard_bytes(undisturbed)


@pytest.mark.slow
@pytest.mark.usefixtures("warm_repairs")
def test_damage_is_found_and_mended(undisturbed, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(undisturbed, store)
    shard = shard_path(store, 2)
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    assert verify_main([str(store)]) == 1
    assert verify_main([str(store), "--repair", "--trust"]) == 0
    assert shard_bytes(str(store)) == shard_bytes(undisturbed)


def test_chunks_hold_the_same_samples_as_one_row(windows, generator, tmp_path):
    assert mine(windows, generator, tmp_path / "whole", flags="--negatives 5 --every_context_length") == 0
    flags = "--negatives 5 --samples_per_row 2 --every_context_length"
    assert mine(windows, generator, tmp_path / "chunks", flags=flags) == 0
    whole = {(row["window_id"], row["context_length"]): row for row in Store(str(tmp_path / "whole")).rows()}
    assert len(whole) == 360
    found: dict = {}
    for row in Store(str(tmp_path / "chunks")).rows():
        samples = found.setdefault((row["window_id"], row["context_length"]), {})
        for place, negative in enumerate(row["negatives"]):
            samples[row["first_sample"] + place] = (list(negative), row["log_p"][place])
    assert found.keys() == whole.keys()
    for key, row in whole.items():
        assert [found[key][sample][0] for sample in range(5)] == [list(negative) for negative in row["negatives"]]
        assert [found[key][sample][1] for sample in range(5)] == pytest.approx(row["log_p"].tolist(), abs=1e-5)
    assert read_manifest(str(tmp_path / "chunks")).counts["windows"] == 120


def spoil(windows: str, folder: Path, shard: int) -> Path:
    """A copy of a windows store with a bad page of tokens in one shard."""
    shutil.copytree(windows, folder)
    path = shard_path(folder, shard)
    content = bytearray(path.read_bytes())
    tokens = pq.ParquetFile(path).metadata.row_group(0).column(5)
    content[tokens.data_page_offset + tokens.total_compressed_size // 2] ^= 0xFF
    path.write_bytes(content)
    return folder


def test_a_shard_that_cannot_be_made_is_named_and_the_others_are_made(
    undisturbed, windows, generator, tmp_path, capsys
):
    spoiled = spoil(windows, tmp_path / "spoiled", 3)
    output = tmp_path / "store"
    assert mine(str(spoiled), generator, output, flags="--negatives 2") == 1
    last = capsys.readouterr().err.splitlines()
    assert f"{output}/rejects/shard-00003.json: shards/00003: UserError: {spoiled}/shards/00003" in last[0]
    assert last[-1] == "error: 1 shards could not be made: mend that, then run the same command again"
    assert "Traceback" in json.loads((output / "rejects/shard-00003.json").read_text())["traceback"]
    assert sorted(name[:5] for name in shard_bytes(str(output))) == ["00000", "00001", "00002", "00004", "00005"]
    assert not (output / "manifest.json").exists()
    shutil.copy(shard_path(windows, 3), shard_path(spoiled, 3))
    assert mine(str(spoiled), generator, output, flags="--negatives 2") == 0
    assert shard_bytes(str(output)) == shard_bytes(undisturbed)
    assert not (output / "rejects").exists() or not os.listdir(output / "rejects")


def test_text_becomes_windows_and_negatives_in_one_run(windows, undisturbed, generator, tmp_path):
    flags = "--negatives 2 --input builtin:sums:lines=120 --split train --shards 6"
    assert mine(str(tmp_path / "windows"), generator, tmp_path / "store", flags=flags) == 0
    assert shard_bytes(str(tmp_path / "windows")) == shard_bytes(windows)
    assert shard_bytes(str(tmp_path / "store")) == shard_bytes(undisturbed)
    assert verify(str(tmp_path / "windows")) == verify(str(tmp_path / "store")) == []
    before = shard_bytes(str(tmp_path / "store"))
    assert mine(str(tmp_path / "windows"), generator, tmp_path / "store", flags=flags) == 0
    assert shard_bytes(str(tmp_path / "store")) == before


@pytest.mark.slow
@pytest.mark.usefixtures("warm_repairs")
def test_a_list_of_generators_makes_the_stores_that_flags_make(undisturbed, windows, generator, backwards, tmp_path):
    entries = [{"generator": generator, "name": "first"}, {"generator": backwards, "sampling": "top_k", "top_k": 3}]
    (tmp_path / "list.yaml").write_text(json.dumps(entries))
    given = ["--windows", windows, "--generators", str(tmp_path / "list.yaml"), "--output", str(tmp_path / "stores")]
    assert mine_negatives.main([*given, "--context_lengths=0,5,8", "--engine=torch", "--negatives=2"]) == 0
    assert shard_bytes(str(tmp_path / "stores/first")) == shard_bytes(undisturbed)
    store = tmp_path / "stores/backwards-top_k"
    check_rows(str(store), windows, backwards, negatives=2, sample=3)
    before = shard_bytes(str(store))
    shard_path(store, 1).unlink()
    assert verify_main([str(store), "--repair", "--trust"]) == 0
    assert shard_bytes(str(store)) == before


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "../../outside"}, "is not a folder's name"),
        ({"name": "-rf"}, "is not a folder's name"),
        ({"generator": 3}, "3 is not of type 'string'"),
        ({"sampling": "beam"}, "'beam' is not one of"),
        ({"top_k": "many"}, "'many' is not of type 'integer'"),
        ({"temperature": 2}, "'temperature' was unexpected"),
    ],
)
def test_a_list_of_generators_names_folders_and_nothing_else(windows, generator, tmp_path, entry, message):
    (tmp_path / "list.yaml").write_text(json.dumps([{"generator": generator}, {"generator": generator} | entry]))
    given = ["--windows", windows, "--generators", str(tmp_path / "list.yaml"), "--output", str(tmp_path / "stores")]
    with pytest.raises(UserError, match=rf"list.yaml, line 1: 1.*{message}"):
        mine_negatives.main([*given, "--context_lengths=0,5,8", "--engine=torch"])
    assert not (tmp_path / "stores").exists()


def test_a_generator_that_was_trained_on_this_text_is_warned_about(generator, tmp_path, capsys):
    (tmp_path / "sums.txt").write_text("".join(f"{n:03d}+{n + 1:03d}={2 * n + 1:04d}\n" for n in range(100)))
    windows = f"{tmp_path}/windows"
    flags = f"--corpus sums --split train --tokenizer {generator} --window 13 --stride 13 --output {windows}"
    make_windows.main(["--input", f"{tmp_path}/sums.txt", *flags.split()])
    for name, text, seen in (
        ("seen", text_of(read_manifest(windows)), True),
        ("unseen", {"inputs": ["0" * 32], "documents": None}, False),
        ("unknown", None, None),
    ):
        generator = save_generator(tmp_path / name)
        config = json.loads(Path(generator, "config.json").read_text())
        config["provenance"]["text"] = text
        Path(generator, "config.json").write_text(json.dumps(config))
        assert mine(windows, generator, tmp_path / f"{name}-store") == 0
        assert ("was trained on documents that it continues here" in capsys.readouterr().out) == bool(seen)
        assert read_manifest(str(tmp_path / f"{name}-store")).generator["trained_on_this_text"] is seen


def test_shards_without_windows_are_shards_without_negatives(generator, tmp_path):
    make_windows.main(f"--input builtin:sums:lines=3 --split train --shards 6 --output {tmp_path}/few".split())
    assert mine(f"{tmp_path}/few", generator, tmp_path / "store") == 0
    assert len(Store(str(tmp_path / "store"))) == 3
    assert verify(str(tmp_path / "store")) == []


def test_windows_that_share_their_samples_stop_the_run(tmp_path, generator, monkeypatch):
    """The known disaster, made by hand: one seed for all windows, and contexts that do not distinguish them."""
    long = tmp_path / "long"
    flags = f"--input builtin:sums:lines=200 --split train --shards 4 --window 26 --stride 13 --output {long}"
    make_windows.main(flags.split())
    wide = save_generator(tmp_path / "wide", n_positions=32)
    monkeypatch.setattr(mining, "request_seed", lambda *address: 7)
    given = ["--windows", str(long), "--generator", wide, "--engine", "torch", "--context_lengths", "0"]
    with pytest.raises(UserError, match="100% of the negatives are equal to another window's"):
        mine_negatives.main([*given, "--output", str(tmp_path / "store")])
    assert mine_negatives.main([*given, "--output", str(tmp_path / "anyway"), "--max_duplicate_fraction=1"]) == 0


@pytest.mark.slow
def test_a_full_disk_is_named_and_the_run_continues_when_there_is_room(
    windows, generator, undisturbed, small_disk, tmp_path
):
    (small_disk / "ballast").write_bytes(bytes(220 << 10))
    given = arguments(windows, generator, small_disk / "store", "--negatives 2")
    ended = run("pipeline/mine_negatives.py", *given)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "No space left on device" in ended.stderr
    assert "run the same command again" in ended.stderr
    (small_disk / "ballast").unlink()
    assert run("pipeline/mine_negatives.py", *given).returncode == 0
    assert shard_bytes(str(small_disk / "store")) == shard_bytes(undisturbed)
    assert verify(str(small_disk / "store")) == []


@pytest.mark.slow
def test_a_place_that_cannot_be_written_is_named(windows, generator, small_disk):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    ended = run("pipeline/mine_negatives.py", *arguments(windows, generator, small_disk / "store"))
    assert ended.returncode == 2
    assert "Read-only file system" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_second_run_on_the_same_store_is_refused_with_its_holders_name(windows, generator, tmp_path):
    output = tmp_path / "store"
    with writing(str(output)), pytest.raises(UserError, match=rf"store: process {os.getpid()} on .* is writing it"):
        mine(windows, generator, output)
    assert mine(windows, generator, output) == 0


def test_bad_input_is_refused_before_an_engine_is_loaded(
    windows, generator, undisturbed, tmp_path, monkeypatch, tokenizer
):
    monkeypatch.setattr(mine_negatives, "mine", lambda *given: pytest.fail("an engine would have been loaded"))
    narrow = save_generator(tmp_path / "narrow", n_positions=13)
    foreign = save_generator(tmp_path / "foreign")
    for name in os.listdir(tokenizer):
        shutil.copy(Path(tokenizer, name), foreign)
    ruined = save_generator(tmp_path / "ruined")
    with quiet():
        model = AutoModelForCausalLM.from_pretrained(ruined)
        model.transformer.wpe.weight.data[0, 0] = float("nan")
        model.save_pretrained(ruined)
    old = tmp_path / "old"
    shutil.copytree(windows, old)
    manifest = json.loads((old / "manifest.json").read_text())
    (old / "manifest.json").write_text(json.dumps(manifest | {"schema_version": 0}))
    output = tmp_path / "store"
    cases = [
        (windows, foreign, output, "", "have different vocabularies"),
        (windows, narrow, output, "", "do not fit the 13 positions"),
        (windows, ruined, output, "", "transformer.wpe.weight has values that are not finite"),
        (str(old), generator, output, "", "schema version 0, this code reads 1"),
        (undisturbed, generator, output, "", "a store of negatives, but one of windows is needed"),
        (windows, generator, output, "--context_lengths=5,13", "--context_lengths 13: between 0 and 12"),
        (windows, generator, output, "--context_lengths=5,5", "--context_lengths 5,5: each length once"),
        (windows, generator, output, "--context_lengths=five", "--context_lengths five: numbers"),
        (windows, generator, output, "--context_lengths=0-13", "--context_lengths 13: between 0 and 12"),
        (windows, generator, output, "--context_lengths=8-5", "--context_lengths 8-5: a range from the smaller"),
        (windows, generator, output, "--context_lengths=0-5,3", "--context_lengths 0-5,3: each length once"),
        (windows, generator, output, "--context_lengths=0-", "--context_lengths 0-: numbers and ranges"),
        (windows, generator, output, "--sampling top_k --top_k 0", "--top_k 0: at least 1"),
        (windows, generator, output, "--top_p 0", "--top_p 0"),
        (windows, generator, output, "--negatives 0", "--negatives 0: at least 1"),
        (windows, generator, output, f"--generator {generator}", "would share"),
        (windows, generator, output, "--generators list.yaml", "--generator: name at least one, or a list"),
        (windows, generator, output, "--runner NoSuchRunner", "--runner NoSuchRunner"),
        (windows, generator, output, "--negativs 3", "unknown option --negativs"),
        (windows, generator, undisturbed, "--seed 3", "seed 0, now 3"),
        (windows, "nobody/nothing", output, "", "neither a model's folder nor a hub name"),
    ]
    for case_windows, case_generator, case_output, flags, message in cases:
        with pytest.raises(UserError) as error:
            mine(case_windows, case_generator, case_output, flags=flags)
        assert message in str(error.value), flags or message
    assert not output.exists()

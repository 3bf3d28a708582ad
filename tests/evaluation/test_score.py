import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from evaluation import score as score_job
from evaluation.score import ScoreSettings
from pipeline.models.model_folder import quiet
from pipeline.runtime.errors import ResumableError, UserError, exit_with
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import load_tokenizer, train_tokenizer
from pipeline.verify_store import verify
from tests.evaluation.conftest import TINY
from tests.helpers.commands import command, shard_bytes
from tests.helpers.pretrained import untrained
from tests.helpers.processes import storm, timed
from tests.pipeline.test_dataflow import (
    ACCELERATOR,
    MACHINES,
    PLACE,
    check_hints,
    environments_of,
    places_in,
    read_pipeline,
)
from tests.training.conftest import mined
from tests.training.energy.test_inputs import by_hand
from tests.training.energy.test_model import model_of
from training.energy.classifier import save_classifier
from training.energy.folder import open_energy_model


def windows_by_hand(row: dict) -> list[list[int]]:
    names = ("tokens", "direction", "context_length", "negatives")
    return by_hand(tuple(row[name] for name in names))


@torch.no_grad()
def expected_rows(store: Store, energy) -> dict[tuple[str, int, int], tuple[float, float | None, float | None]]:
    """(window, context, sample) to (energy, log_p, log_q), window by window, in the plainest way."""
    found = {}
    for row in store.take(range(len(store))).to_pylist():
        for number, ids in enumerate(windows_by_hand(row)):
            sample = row["first_sample"] + number - 1 if number else -1
            log_p = row["log_p"][number - 1] if number else row["positive_log_p"]
            log_q = row["log_q"][number - 1] if number else None
            found[row["window_id"], row["context_length"], sample] = (energy(ids), log_p, log_q)
    return found


def check(store: str, expected: dict) -> None:
    rows = Store(store, kind="energies").take(range(len(Store(store)))).to_pylist()
    found = {
        (row["window_id"], row["context_length"], row["sample"]): (row["energy"], row["log_p"], row["log_q"])
        for row in rows
    }
    assert len(rows) == len(found)
    assert found.keys() == expected.keys()
    for key, (energy, log_p, log_q) in expected.items():
        assert found[key][0] == pytest.approx(energy, abs=1e-4), key
        # A true completion is scored once for each chunk of its samples, in batches of other sizes.
        assert found[key][1] == (None if log_p is None else pytest.approx(log_p, abs=1e-5))
        assert found[key][2] == log_q


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("which", ["forwards", "backwards"])
def test_every_window_and_sample_gets_the_energy_that_the_model_gives_it(
    name, which, negatives, backwards, energy_models, tmp_path
):
    store = negatives.valid if which == "forwards" else backwards
    assert (
        score_job.main(["--energy", energy_models[name], "--store", store.path, "--output", str(tmp_path / "out")]) == 0
    )
    model = open_energy_model(energy_models[name]).load()
    check(str(tmp_path / "out"), expected_rows(store, lambda ids: model(torch.tensor([ids])).item()))
    assert verify(str(tmp_path / "out")) == []


def test_a_language_model_scores_by_the_whole_windows_log_probability(negatives, generators, tmp_path):
    for direction, folder in generators.items():
        output = str(tmp_path / direction)
        score_job.main(["--energy", folder, "--store", negatives.valid.path, "--output", output])
        model = AutoModelForCausalLM.from_pretrained(folder).eval()

        def energy(ids: list[int], model=model, direction=direction) -> float:
            turned = torch.tensor([13, *(ids if direction == "left_to_right" else ids[::-1])])
            logits = model(turned[None, :-1]).logits[0].log_softmax(-1)
            return -logits[torch.arange(13), turned[1:]].sum().item()

        check(output, expected_rows(negatives.valid, energy))


def test_samples_in_chunks_have_their_real_window_once(stores, generators, energy_models, tmp_path):
    chunked = mined(
        stores.valid, generators["left_to_right"], tmp_path / "negatives", "--negatives 5 --samples_per_row 2"
    )
    score_job.main(["--energy", energy_models["unit-nano"], "--store", chunked.path, "--output", str(tmp_path / "out")])
    model = open_energy_model(energy_models["unit-nano"]).load()
    check(str(tmp_path / "out"), expected_rows(chunked, lambda ids: model(torch.tensor([ids])).item()))
    samples = Store(str(tmp_path / "out")).take(range(1200))["sample"].to_pylist()
    assert sorted(set(samples)) == [-1, 0, 1, 2, 3, 4]


def test_python_scores_without_a_word_and_the_manifest_says_with_what(negatives, energy_models, tmp_path, capsys):
    capsys.readouterr()
    settings = ScoreSettings(
        energy=energy_models["linear"], store=negatives.valid.path, output=str(tmp_path / "out"), batch_size=7
    )
    made = score_job.score(settings)
    assert capsys.readouterr().out == ""
    assert score_job.score(settings) == made == Store(settings.output, kind="energies").manifest
    # Leave to replace what was there is not recorded: it is not part of what was made.
    called = {name: value for name, value in settings.to_json().items() if name != "overwrite"}
    assert made.call == {"stage": "evaluation/score.py", "settings": called}
    assert ScoreSettings.from_json(made.call["settings"], "manifest") == settings
    # What energies depend on, and no more: how many windows are read at once is not among it.
    assert made.settings.keys() == {"energy", "parent", "corpus", "split", "window", "context_lengths"}
    assert score_job.score(replace(settings, batch_size=3)) == made


@pytest.mark.slow
def test_a_killed_run_continues_and_workers_change_no_byte(negatives, energy_models, tmp_path):
    given = ["--energy", energy_models["bit-nano"], "--store", negatives.train.path]
    job = command("evaluation/score.py", *given, "--output", tmp_path / "killed")
    whole = command("evaluation/score.py", *given, "--output", tmp_path / "whole")
    storm(job, kills=2, seconds=timed(whole), seed=1)
    assert shard_bytes(str(tmp_path / "killed")) == shard_bytes(str(tmp_path / "whole"))
    score_job.main([*given, "--output", str(tmp_path / "beam"), "--direct_num_workers", "2"])
    rows = [Store(str(tmp_path / name)).take(range(12000))["energy"].to_numpy() for name in ("beam", "whole")]
    assert np.allclose(*rows, atol=1e-6)  # the workers divide the cores, and sums of floats their order
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "whole").rglob("*.parquet")}
    score_job.main([*given, "--output", str(tmp_path / "whole")])
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "whole").rglob("*.parquet")} == before


def test_a_fleet_scores_on_accelerators_and_does_all_else_without(negatives, energy_models, tmp_path, capsys):
    """The job as Dataflow would get it."""
    given = [
        "--energy",
        energy_models["bit-nano"],
        "--store",
        negatives.valid.path,
        "--output",
        str(tmp_path / "store"),
    ]
    with pytest.raises(UserError, match=r"--accelerator type:nvidia-l4.*: a fleet's: say which with --runner"):
        score_job.main([*given, f"--accelerator={ACCELERATOR}"])
    assert score_job.main([*given, *PLACE, *MACHINES, *places_in(tmp_path)]) == 0
    assert "nothing was run, and no store was made" in capsys.readouterr().out
    environments = environments_of(read_pipeline(tmp_path / "staging/pipeline.pb"))
    assert {"Score", "Finish"} <= environments.keys()
    check_hints(environments, "Score")


def test_bad_input_is_named_and_leaves_nothing(negatives, stores, energy_models, tmp_path):
    output = tmp_path / "out"
    other = tmp_path / "other"
    with quiet():
        model_of("linear").save_pretrained(other)
    train_tokenizer(["some words of another kind"], 300).save(str(other))
    spoiled = tmp_path / "spoiled"
    shutil.copytree(energy_models["linear"], spoiled)
    model = model_of("linear")
    with torch.no_grad():
        model.network.energies.weight[3] = float("nan")
    with quiet():
        model.save_pretrained(spoiled)
    cases = [
        ({"energy": str(other)}, f"{negatives.valid.path} and {other} have different vocabularies"),
        ({"energy": str(spoiled)}, "has values that are not finite numbers"),
        ({"energy": str(tmp_path / "nowhere")}, "there is no such folder"),
        ({"store": stores.valid.path}, "a store of windows, but one of negatives is needed"),
        ({"batch_size": "0"}, "--batch_size 0: at least 1"),
        ({"worker": "2"}, "unknown option --worker"),
    ]
    good = {"energy": energy_models["linear"], "store": negatives.valid.path, "output": str(output)}
    for change, message in cases:
        with pytest.raises(UserError) as error:
            score_job.main([f"--{name}={value}" for name, value in (good | change).items()])
        assert message in str(error.value), change
        assert not Path(output).exists()


def test_parts_make_the_store_that_one_run_makes(world, tmp_path):
    given = ScoreSettings(energy=str(world.folder / "energy"), store=world.samples, output=str(tmp_path / "whole"))
    whole = score_job.score(given)
    shards = len(whole.shards)
    assert shards > 1
    parts = replace(given, output=str(tmp_path / "parts"))
    assert score_job.score(replace(parts, part="2/2")) is None
    with pytest.raises(UserError, match=rf"of {shards} shards are not there yet \(0.*let all parts end"):
        score_job.score(replace(parts, finish=True))
    assert score_job.score(replace(parts, part="1/2")).digest == whole.digest
    assert shard_bytes(str(tmp_path / "parts")) == shard_bytes(str(tmp_path / "whole"))
    assert verify(str(tmp_path / "parts")) == []
    assert score_job.score(replace(parts, part="1/2")).digest == whole.digest


ECC = "CUDA error: uncorrectable ECC error encountered"


def test_a_broken_device_ends_the_run_at_once_and_loses_nothing(world, tmp_path, monkeypatch):
    given = ScoreSettings(energy=str(world.folder / "energy"), store=world.samples, output=str(tmp_path / "whole"))
    whole = score_job.score(given)
    calls, score_rows = [], score_job.score_rows

    def broken(rows, scorer):
        calls.append(len(rows))
        if len(calls) > 1:
            raise RuntimeError(ECC)
        return score_rows(rows, scorer)

    again = replace(given, output=str(tmp_path / "again"))
    monkeypatch.setattr(score_job, "score_rows", broken)
    with pytest.raises(ResumableError, match=r"the device or its engine is broken .*uncorrectable ECC.*same command"):
        score_job.score(again)
    assert len(calls) == 2
    monkeypatch.setattr(score_job, "score_rows", lambda *given: calls.append(0) or score_rows(*given))
    calls.clear()
    assert score_job.score(again).digest == whole.digest
    assert len(calls) == len(whole.shards) - 1


def test_workers_elsewhere_hold_the_store_and_stop_if_somebody_else_has_it(world, tmp_path):
    settings = ScoreSettings(energy=str(world.folder / "energy"), store=world.samples, output=str(tmp_path / "store"))
    job = score_job.ScoringJob(settings, score_job.writer_of(settings, []), run="ours")
    with job.writer.making():
        job.writer.claim(job.tokenizer_folder)
        assert score_job.make_shard(0, job).rows
        # Whoever started it may be gone: what its worker renewed still keeps others out.
        with pytest.raises(UserError, match=r"a worker of run ours, .*is writing it: wait until it ends"):
            score_job.score(settings)
        with pytest.raises(ResumableError, match="has taken over from this run, which stops here"):
            score_job.make_shard(1, replace(job, run="theirs"))


def test_an_accelerator_that_is_not_there_is_an_error_of_the_worker(world, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    settings = ScoreSettings(
        energy=str(world.folder / "energy"),
        store=world.samples,
        output=str(tmp_path / "store"),
        accelerator="type:nvidia-l4",
    )
    job = score_job.ScoringJob(settings, score_job.writer_of(settings, []))
    with pytest.raises(UserError, match=r"this worker sees no CUDA device: .*driver of 580 or newer"):
        score_job.make_shard(0, job)


def outcome(main, capsys) -> tuple[int, str]:
    """How a command ends: its code, and what it says of an error."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        exit_with(main)
    return int(ended.value.code or 0), capsys.readouterr().err


def test_a_full_disk_and_one_that_cannot_be_written_are_named_and_the_run_continues(
    negatives, energy_models, small_disk, tmp_path, capsys
):
    given = ["--energy", energy_models["linear"], "--store", negatives.valid.path]
    (small_disk / "ballast").write_bytes(bytes(232 << 10))

    def run_it() -> int:
        return score_job.main([*given, "--output", str(small_disk / "store")])

    code, said = outcome(run_it, capsys)
    assert (code, said.count("\n")) == (2, 1), said
    assert "No space left on device" in said
    assert "run the same command again" in said
    (small_disk / "ballast").unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    code, said = outcome(run_it, capsys)
    assert (code, said.count("\n")) == (2, 1), said
    assert "Read-only file system" in said
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert outcome(run_it, capsys)[0] == 0
    assert score_job.main([*given, "--output", str(tmp_path / "undisturbed")]) == 0
    assert shard_bytes(str(small_disk / "store")) == shard_bytes(str(tmp_path / "undisturbed"))
    assert verify(str(small_disk / "store")) == []


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, negatives) -> str:
    encoder, folder = load_tokenizer(negatives.valid.path), tmp_path_factory.mktemp("classifier")
    network, first, _ = untrained("encoder", encoder, folder)
    save_classifier(network, str(folder / "energy"), network.state_dict(), {"preset": "encoder"}, encoder, first.own)
    return str(folder / "energy")


def test_vllm_is_taken_where_starting_it_pays(classifier, negatives, monkeypatch, tmp_path):
    given = {"energy": classifier, "store": negatives.valid.path, "output": str(tmp_path / "energies")}
    assert score_job.faster_engine(ScoreSettings(**given), negatives.valid, []) == "torch"
    monkeypatch.setattr(score_job, "WORTH_STARTING", len(negatives.valid))
    monkeypatch.setattr(score_job, "default_engine", lambda: "vllm")
    assert score_job.faster_engine(ScoreSettings(**given), negatives.valid, []) == "vllm"
    for change in ({"precision": "fp32"}, {"part": "1/2"}):
        assert score_job.faster_engine(ScoreSettings(**given | change), negatives.valid, []) == "torch"
    assert score_job.faster_engine(ScoreSettings(**given), negatives.valid, ["--runner", "DirectRunner"]) == "torch"


@pytest.mark.vllm
@pytest.mark.slow
def test_both_engines_give_a_store_the_same_energies(classifier, negatives, generators, tmp_path):
    found = []
    for engine in ("torch", "vllm"):
        flags = f"--energy {classifier} --store {negatives.valid.path} --output {tmp_path}/{engine} --engine {engine}"
        assert score_job.main(flags.split()) == 0
        assert verify(f"{tmp_path}/{engine}") == []
        found.append(np.concatenate([batch["energy"].to_numpy() for batch in Store(f"{tmp_path}/{engine}").batches()]))
    assert found[1] == pytest.approx(found[0], abs=1e-4)
    assert np.std(found[0]) > 1e-3
    flags = f"--energy {generators['left_to_right']} --store {negatives.valid.path} --output {tmp_path}/no"
    with pytest.raises(UserError, match="is no sequence classifier"):
        score_job.main([*flags.split(), "--engine", "vllm"])

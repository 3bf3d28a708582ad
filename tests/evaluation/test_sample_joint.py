"""Samples of the joint model as a command draws them: killed, from prompts, and what is refused."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from evaluation import sample_joint
from evaluation.sample_joint import JointSamplesSettings
from pipeline.engines.sampling import request_seed
from pipeline.runtime.errors import UserError
from pipeline.stores.reader import Store
from schemas.results import SAMPLES
from tests.evaluation.joint.test_model import open_joint
from tests.helpers.commands import command
from tests.helpers.processes import storm, timed
from tests.helpers.world import CONTEXT


def arguments(world, output, flags: str = "") -> list[str]:
    given = f"--energy {world.folder}/energy --generator {world.folder}/lm0 --output {output} --samples 30"
    source = "" if "--prompts" in flags else f"--windows {world.folder}/windows --context_length {CONTEXT}"
    return [*given.split(), *source.split(), *flags.split()]


@pytest.mark.slow
def test_a_killed_run_continues_to_the_same_samples(world, tmp_path):
    whole = command("evaluation/sample_joint.py", *arguments(world, tmp_path / "whole"))
    killed = command("evaluation/sample_joint.py", *arguments(world, tmp_path / "killed"))
    storm(killed, kills=2, seconds=timed(whole), seed=3)
    tables = [pq.read_table(tmp_path / name / "samples.parquet") for name in ("whole", "killed")]
    assert tables[0].equals(tables[1])
    assert not (tmp_path / "killed/parts").exists()
    windows = Store(str(world.folder / "windows"))
    assert tables[0]["window_id"].to_pylist() == [row["window_id"] for row in windows.rows(["window_id"])]
    row = tables[0].to_pylist()[0]
    assert row["context"] + row["real"] == windows[0]["tokens"].tolist()
    assert row["chosen_energy"] in row["energies"]
    assert row["worst_energy"] == max(row["energies"])
    assert row["best_energy"] == min(row["energies"])
    assert len(row["energies"]) == 30


def test_the_base_sample_is_what_the_generator_draws_by_itself(world, tmp_path):
    """Of the same context and seed: the energy has no say in it, neither at once nor token by token."""
    model = open_joint(world, "top_k")
    for flags in ("", "--autoregressive"):
        output = tmp_path / f"out{flags}"
        sample_joint.main(arguments(world, output, f"--limit 8 --top_k 2 --seed 5 {flags}"))
        for row in pq.read_table(output / "samples.parquet").to_pylist():
            context = np.array(row["context"], np.int32)
            seed = request_seed(5, row["window_id"], len(context))
            (alone,) = model.generator.sample([context], [3], [seed])
            assert row["base"] == alone.tokens[0].tolist()
            energy, real = model.energies(context, np.array([alone.tokens[0], row["real"]]))
            assert row["base_energy"] == pytest.approx(energy, abs=1e-4)
            assert row["real_energy"] == pytest.approx(real, abs=1e-4)
            assert row["base_text"] == "".join("abcd"[token] if token < 4 else "<|endoftext|>" for token in row["base"])


def alone(world, output, flags: str = "") -> list[str]:
    given = f"--generator {world.folder}/lm0 --output {output} {flags}"
    source = "" if "--prompts" in flags else f"--windows {world.folder}/windows --context_length {CONTEXT}"
    return [*given.split(), *source.split()]


def test_a_language_model_alone_gives_the_base_samples_and_no_energies(world, tmp_path, capsys):
    """The same that stand beside a joint model's choice: of the same contexts, rule and seed."""
    sample_joint.main(arguments(world, tmp_path / "joint", "--limit 20 --top_k 2 --seed 5"))
    assert sample_joint.main(alone(world, tmp_path / "alone", "--limit 20 --top_k 2 --seed 5")) == 0
    joint, plain = (pq.read_table(tmp_path / name / "samples.parquet") for name in ("joint", "alone"))
    assert plain.column_names == ["window_id", "context", "real", "base", "context_text", "real_text", "base_text"]
    assert plain.equals(joint.select(plain.column_names))
    assert all(field.type == SAMPLES.field(field.name).type for field in plain.schema)
    record = json.loads((tmp_path / "alone/command.json").read_text())
    assert (record["settings"]["energy"], record["settings"]["samples"]) == (None, 1)
    assert f"  base       {plain['base_text'][0].as_py()!r}" in capsys.readouterr().out
    (tmp_path / "prompts.txt").write_text("abcabc\nd\n")
    sample_joint.main(alone(world, tmp_path / "prompted", f"--prompts {tmp_path}/prompts.txt --tokens 2"))
    rows = pq.read_table(tmp_path / "prompted/samples.parquet").to_pylist()
    assert [(row["context_text"], row["real"], len(row["base"])) for row in rows] == [
        ("bcabc", None, 2),
        ("d", None, 2),
    ]


@pytest.mark.slow
def test_a_killed_run_of_a_language_model_alone_continues(world, tmp_path):
    whole = command("evaluation/sample_joint.py", *alone(world, tmp_path / "whole"))
    storm(command("evaluation/sample_joint.py", *alone(world, tmp_path / "killed")), 2, timed(whole), seed=3)
    tables = [pq.read_table(tmp_path / name / "samples.parquet") for name in ("whole", "killed")]
    assert tables[0].equals(tables[1])
    assert not (tmp_path / "killed/parts").exists()


def test_a_run_that_was_killed_at_its_very_end_is_cleared_up_after(world, tmp_path):
    assert sample_joint.main(alone(world, tmp_path / "samples")) == 0
    (tmp_path / "samples/parts").mkdir()
    (tmp_path / "samples/parts/00000000.json").write_text("[]")
    assert sample_joint.main(alone(world, tmp_path / "samples")) == 0
    assert not (tmp_path / "samples/parts").exists()


def test_a_run_of_a_language_model_alone_takes_up_the_parts_that_are_there(world, tmp_path):
    sample_joint.main(alone(world, tmp_path / "whole", "--limit 20"))
    whole = pq.read_table(tmp_path / "whole/samples.parquet")
    sample_joint.main(alone(world, tmp_path / "out", "--limit 20"))
    (tmp_path / "out/samples.parquet").unlink()
    (tmp_path / "out/parts").mkdir()
    marked = whole.slice(0, 8).to_pylist()
    marked[0]["base_text"] = "from the part"
    (tmp_path / "out/parts/00000000.json").write_text(json.dumps(marked))
    sample_joint.main(alone(world, tmp_path / "out", "--limit 20"))
    again = pq.read_table(tmp_path / "out/samples.parquet")
    assert again["base_text"].to_pylist() == ["from the part", *whole["base_text"].to_pylist()[1:]]


def test_a_language_model_alone_has_nothing_to_choose_with():
    given = {"generator": "g", "output": "o", "windows": "w"}
    with pytest.raises(UserError, match="--samples 10: nothing chooses among them: give --energy"):
        JointSamplesSettings(**given, samples=10)
    with pytest.raises(UserError, match="--autoregressive: weighs tokens by their energies: give --energy"):
        JointSamplesSettings(**given, autoregressive=True)
    assert JointSamplesSettings(**given, energy="e").drawn == 10_000


def test_prompts_and_tokens_one_by_one(world, tmp_path):
    (tmp_path / "prompts.txt").write_text("abcabc\n\nd\n")
    flags = f"--prompts {tmp_path}/prompts.txt --tokens 2 --autoregressive --top_k 3"
    assert sample_joint.main(arguments(world, tmp_path / "out", flags)) == 0
    rows = pq.read_table(tmp_path / "out/samples.parquet").to_pylist()
    assert [row["context_text"] for row in rows] == ["bcabc", "d"]
    assert [(len(row["chosen"]), row["real_energy"]) for row in rows] == [(2, None)] * 2
    schema = pq.read_schema(tmp_path / "out/samples.parquet")
    assert all(field.type == SAMPLES.field(field.name).type for field in schema)
    record = json.loads((tmp_path / "out/command.json").read_text())
    assert record["settings"]["autoregressive"] is True


def test_one_kind_of_context_is_needed_and_no_more():
    given = {"energy": "e", "generator": "g", "output": "o"}
    with pytest.raises(UserError, match="one of the arguments --windows --prompts is required"):
        JointSamplesSettings(**given)
    with pytest.raises(UserError, match="argument --prompts: not allowed with argument --windows"):
        JointSamplesSettings(**given, windows="w", prompts="p")


def test_bad_input_is_named(world, tmp_path):
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange/file").touch()
    (tmp_path / "empty.txt").touch()
    done = tmp_path / "done"
    sample_joint.main(arguments(world, done, "--limit 2"))
    cases = [
        (tmp_path / "out", "--context_length 5", "--context_length 5: between 0 and 4"),
        (tmp_path / "out", "--samples 0", "--samples 0: at least 1"),
        (tmp_path / "out", "--autoregressive --engine vllm", "which --engine torch has"),
        (tmp_path / "strange", "", "there is something else in this folder"),
        (done, "--limit 2 --seed 4", "seed 0, now 4"),
        (tmp_path / "none", f"--prompts {tmp_path}/empty.txt --tokens 2", "there is nothing to complete in it"),
        (tmp_path / "none", f"--prompts {tmp_path}/empty.txt --tokens 9", "a window of the models has 7"),
    ]
    for output, flags, message in cases:
        with pytest.raises(UserError) as error:
            sample_joint.main(arguments(world, output, flags))
        assert message in str(error.value), flags

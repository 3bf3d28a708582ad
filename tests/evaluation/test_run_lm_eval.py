"""Tasks of the real harness, of three kinds, by tiny models: one command, from files to files."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from evaluation import run_lm_eval
from pipeline.runtime.errors import UserError
from tests.helpers.processes import run_group

WAY_OUT = r"lm-evaluation-harness is not installed: pip install 'residual-ebm\[harness\]'"
CHOICES = [("ab", ["cda", "ccc", "bad"], 0), ("dc", ["bb", "d"], 1), ("", ["abc", "cba"], 0), ("abcdabcd", ["ca"], 0)]
TEXTS = ["abcdabcdabcdabc", "ccc", "dabcc"]


@pytest.fixture
def tasks(tmp_path, monkeypatch) -> Path:
    """A folder with three tasks and their rows."""
    pytest.importorskip("lm_eval", reason="pip install 'residual-ebm[harness]'")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "tasks"
    folder.mkdir()
    rows = {
        "choice": [{"context": context, "choices": all_, "label": label} for context, all_, label in CHOICES],
        "rolling": [{"text": text} for text in TEXTS],
        "writing": [{"context": context, "answer": "cc"} for context, *_ in CHOICES],
    }
    prompt = {"doc_to_text": "{{context}}", "target_delimiter": ""}
    kinds = {
        "choice": prompt
        | {"output_type": "multiple_choice", "doc_to_choice": "{{choices}}", "doc_to_target": "{{label}}"}
        | {"metric_list": [{"metric": "acc"}]},
        "rolling": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}"}
        | {"metric_list": [{"metric": "byte_perplexity"}]},
        "writing": prompt
        | {"output_type": "generate_until", "doc_to_target": "{{answer}}", "metric_list": [{"metric": "exact_match"}]}
        | {"generation_kwargs": {"until": ["d"], "max_gen_toks": 3}},
    }
    for name, kind in kinds.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[name]))
        data = {"data_files": {"test": str(folder / f"{name}.jsonl")}, "cache_dir": str(tmp_path / "cache")}
        task = {"task": f"letters_{name}", "dataset_path": "json", "dataset_kwargs": data, "test_split": "test"}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(task | kind))
    return folder


def arguments(world, tasks: Path, output: Path, flags: str = "") -> list[str]:
    models = f"--generator {world.folder}/lm0 --energy {world.folder}/energy --samples 40"
    names = "" if "--tasks" in flags else "--tasks letters_choice,letters_rolling,letters_writing"
    return [*models.split(), *names.split(), "--include_path", str(tasks), "--output", str(output), *flags.split()]


def test_the_harness_tasks_are_run_by_both_models_side_by_side(world, tasks, tmp_path, capsys):
    output = tmp_path / "out.json"
    assert run_lm_eval.main(arguments(world, tasks, output)) == 0
    said = capsys.readouterr().out
    models = json.loads(output.read_text())["models"]
    assert list(models) == ["base", "joint_lower", "joint_upper"]
    assert not (tmp_path / "out.json.part").exists()
    found = {name: results["results"] for name, results in models.items()}
    assert all(set(tasks) == {"letters_choice", "letters_rolling", "letters_writing"} for tasks in found.values())
    # Of a long text, the perplexity at the upper bound of the likelihood is the lower one.
    perplexities = [found[name]["letters_rolling"]["byte_perplexity,none"] for name in models]
    assert perplexities[2] < perplexities[1] != perplexities[0]
    assert found["joint_lower"]["letters_writing"] == found["joint_upper"]["letters_writing"]
    facts = models["joint_lower"]["config"]["residual_ebm"]
    # Eight choices in five contexts, and five windows of three texts, one of which begins as one of the choices.
    assert (facts["likelihoods"]["passages"], facts["likelihoods"]["contexts"]) == (13, 9)
    assert facts["likelihoods"]["gap_mean"] > 0
    assert facts["answers"]["answers"] == 4
    assert models["base"]["config"]["residual_ebm"]["likelihoods"]["gap_largest"] == 0
    lines = said.splitlines()
    assert lines[0] == f"results {output}"
    assert [line.split()[:2] for line in lines[2:5]] == [
        ["letters_choice", "acc"],
        ["letters_rolling", "byte_perplexity"],
        ["letters_writing", "exact_match"],
    ]
    assert (
        f"  likelihoods: 9 contexts, of 40 samples each, {facts['likelihoods']['effective_samples_median']:.1f}" in said
    )


@pytest.mark.parametrize(("joint", "left"), [(False, 13), (True, 0)])
def test_equal_commands_give_equal_results_and_one_that_was_ended_goes_on(
    world, tasks, tmp_path, monkeypatch, joint, left
):
    """The second run has all that the first one did before it was ended, in the last task of either model."""
    from evaluation.harness import language_model

    run_lm_eval.main(arguments(world, tasks, tmp_path / "whole.json"))
    write, estimate, made = language_model.answers, language_model.estimates, []

    def ended(pair, *given):
        for number, answer in enumerate(write(pair, *given)):
            if number == 2 and joint == (pair.joint is not None):
                raise KeyboardInterrupt
            yield answer

    def seen(pair, new, *given):
        made.extend(new)
        return estimate(pair, new, *given)

    monkeypatch.setattr(language_model, "answers", ended)
    with pytest.raises(KeyboardInterrupt):
        run_lm_eval.main(arguments(world, tasks, tmp_path / "ended.json"))
    assert (tmp_path / "ended.json.part").is_file()
    monkeypatch.setattr(language_model, "answers", write)
    monkeypatch.setattr(language_model, "estimates", seen)
    run_lm_eval.main(arguments(world, tasks, tmp_path / "ended.json"))
    assert len(made) == left
    whole, again = (json.loads((tmp_path / name).read_text())["models"] for name in ("whole.json", "ended.json"))
    for name in whole:
        assert again[name]["results"] == whole[name]["results"]
        assert again[name]["config"]["residual_ebm"] == whole[name]["config"]["residual_ebm"]


def test_a_language_model_alone(world, tasks, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where a file without a folder goes
    flags = f"--generator {world.folder}/lm0 --tasks letters_choice --include_path {tasks} --limit 2"
    run_lm_eval.main([*flags.split(), "--output", "out.json"])
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.json"]
    models = json.loads((tmp_path / "out.json").read_text())["models"]
    assert list(models) == ["base"]
    assert models["base"]["config"]["residual_ebm"]["likelihoods"]["tokens"] == 12
    assert "effective" not in capsys.readouterr().out


def test_what_cannot_work_is_said_before_anything_is_drawn(world, tasks, tmp_path):
    with pytest.raises(UserError, match="--tasks letters_singing: the harness knows no such task"):
        run_lm_eval.main(arguments(world, tasks, tmp_path / "out.json", "--tasks letters_singing"))
    with pytest.raises(UserError, match="--include_path /nowhere: there is no such folder"):
        run_lm_eval.main(arguments(world, Path("/nowhere"), tmp_path / "out.json"))
    with pytest.raises(UserError, match=r"--output out\.txt: a file whose name ends with \.json"):
        run_lm_eval.main(arguments(world, tasks, Path("out.txt")))
    (tmp_path / "there.json").write_text("{}")
    with pytest.raises(UserError, match="there are results already: choose another name, or --overwrite"):
        run_lm_eval.main(arguments(world, tasks, tmp_path / "there.json"))


def test_without_the_harness_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(run_lm_eval, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=WAY_OUT):
        run_lm_eval.main(["--generator", "lm", "--energy", "energy", "--tasks", "a", "--output", "out.json"])


@pytest.mark.slow
def test_two_lines_of_python_give_the_harness_own_command_the_model(world, tasks, tmp_path):
    code = "import evaluation.harness.language_model; from lm_eval.__main__ import cli_evaluate; cli_evaluate()"
    words = f"run --model residual-ebm --model_args generator={world.folder}/lm0,energy={world.folder}/energy,samples=9"
    flags = f"--tasks letters_choice --include_path {tasks} --output_path {tmp_path}/out"
    ended = run_group([sys.executable, "-c", code, *words.split(), *flags.split()], cold=True)
    assert ended.returncode == 0, ended.stderr
    (results,) = (tmp_path / "out").rglob("results_*.json")
    config = json.loads(results.read_text())["config"]
    assert config["model"] == "residual-ebm"
    assert config["residual_ebm"]["samples"] == 9

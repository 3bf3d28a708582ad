"""Perplexity of the joint model, against what enumeration says it is."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM

from evaluation import perplexity_bounds, score
from evaluation.joint.bounds import joint_perplexity, log_partition_bounds, warnings_about
from evaluation.joint.contexts import contexts_of, open_stores
from evaluation.joint.paired import UNCERTAIN, direction
from evaluation.perplexity_bounds import BoundsSettings
from pipeline.runtime.errors import UserError
from pipeline.stores.reader import Store
from schemas.results import CONTEXTS
from tests.helpers.commands import command
from tests.helpers.imports import watched
from tests.helpers.processes import storm, timed
from tests.helpers.world import CONTEXT, SAMPLES, TEXTS, truth


def test_the_bounds_enclose_the_joint_models_exact_perplexity(world):
    result = world.bounds("--samples_curve")
    base, joint = [], []
    for log_p, energy, place in truth(world).values():
        base.append(log_p[place])
        joint.append(log_p[place] - energy[place] - np.logaddexp.reduce(log_p - energy))
    exact = np.exp(-np.mean(joint) / 3)
    assert result["base_perplexity"] == pytest.approx(np.exp(-np.mean(base) / 3), rel=1e-6)
    assert abs(result["base_perplexity"] - exact) > 0.02  # the energy matters
    found = result["joint_perplexity"]
    assert found["lower"] <= found["midpoint"] <= found["upper"]
    assert found["lower"] == pytest.approx(exact, rel=0.02)
    assert found["upper"] == pytest.approx(exact, rel=0.02)
    curve = result["samples_curve"]
    assert [point["samples"] for point in curve] == [2, 5, 10, 20, 50, 100, 200, 500, 600]
    gaps = [point["upper"] - point["lower"] for point in curve]
    assert gaps[-1] < gaps[2] / 5
    assert curve[-1]["lower"] == pytest.approx(found["lower"])
    assert {"bounds.json", "contexts.parquet", "samples_curve.svg", "samples_curve.png"} <= {
        path.name for path in (world.folder / "results").iterdir()
    }


def test_a_constant_energy_changes_nothing(world):
    result = world.bounds(energies=world.score("constant", world.samples))
    for bound in result["joint_perplexity"].values():
        assert bound == pytest.approx(result["base_perplexity"], rel=1e-9)
    assert result["effective_samples"]["least"] == pytest.approx(SAMPLES)
    assert direction(result["differences"]["base"]) == UNCERTAIN


@pytest.mark.slow
def test_token_by_token_the_conditionals_are_those_of_the_joint_distribution(world):
    """Samples at contexts of 2, 3 and 4; the exact conditionals come from sums over all completions."""
    flags = f"--context_lengths 2,3,4 --every_context_length --negatives {SAMPLES}"
    samples = world.mine("every", flags)
    exact_flags = f"--exact_windows 30 --energy {world.folder}/energy --generator {world.folder}/lm0"
    result = world.bounds(f"--positions {exact_flags}", samples, world.score("energy", samples))
    conditionals: list[list[float]] = [[], [], []]
    base: list[list[float]] = [[], [], []]
    for log_p, energy, place in truth(world).values():
        text = TEXTS[place]
        for weights, into in ((log_p - energy, conditionals), (log_p, base)):
            sums = [
                np.logaddexp.reduce(
                    [weight for weight, other in zip(weights, TEXTS, strict=True) if other[:known] == text[:known]]
                )
                for known in range(4)
            ]
            for step in range(3):
                into[step].append(sums[step + 1] - sums[step])
    for step, point in enumerate(result["positions"]):
        assert point["position"] == CONTEXT + step
        assert point["base"] == pytest.approx(np.exp(-np.mean(base[step])), rel=1e-5)
        exact = np.exp(-np.mean(conditionals[step]))
        assert point["lower"] <= point["upper"]
        assert point["lower"] == pytest.approx(exact, rel=0.1)
        assert point["upper"] == pytest.approx(exact, rel=0.1)
    last = result["last_position"]
    assert last["windows"] == 30
    assert last["exact"] == pytest.approx(np.exp(-np.mean(conditionals[2])), rel=1e-5)
    assert last["base"] == pytest.approx(np.exp(-np.mean(base[2])), rel=1e-5)
    assert last["lower"] == pytest.approx(last["exact"], rel=0.1)


@torch.no_grad()
def test_another_language_model_is_measured_on_the_same_completions(world):
    result = world.bounds(f"--language_model {world.folder}/lm0 --language_model {world.folder}/lm1")
    first, second = result["language_models"].values()
    assert first == pytest.approx(result["base_perplexity"], rel=1e-6)
    lm = AutoModelForCausalLM.from_pretrained(world.folder / "lm1").eval()
    windows = torch.tensor([row["tokens"].tolist() for row in Store(str(world.folder / "windows")).rows(["tokens"])])
    logits = lm(torch.cat([torch.full((len(windows), 1), 4), windows[:, :-1]], 1)).logits.log_softmax(-1)
    steps = logits.gather(2, windows[:, :, None])[:, CONTEXT:, 0]
    assert second == pytest.approx(np.exp(-steps.mean().item()), rel=1e-5)


def test_differences_are_those_of_the_perplexities_and_say_what_they_are_over(world):
    result = world.bounds(f"--samples_curve --language_model {world.folder}/lm0 --language_model {world.folder}/lm1")
    found = result["differences"]
    assert (found["over"], found["count"]) == ("windows", 30)  # the world's text is one document
    assert "one document" in found["reason"]
    against = {"base": (found["base"], result["base_perplexity"])}
    against |= {name: (own, result["language_models"][name]) for name, own in found["language_models"].items()}
    for own, other in against.values():
        for bound in ("lower", "upper"):
            ratio = result["joint_perplexity"][bound] / other
            assert own["log_ratio"][bound] == pytest.approx(np.log(ratio), abs=1e-6)
            assert own["percent"][bound] == pytest.approx(100 * (ratio - 1), abs=1e-4)
        assert own["percent"]["low"] < own["percent"]["lower"] <= own["percent"]["upper"] < own["percent"]["high"]
    closing, curve = result["closing"], {point["samples"]: point for point in result["samples_curve"]}
    for size, apart in zip((closing["from"], closing["to"]), closing["apart"], strict=True):
        assert apart == pytest.approx(np.log(curve[size]["upper"] / curve[size]["lower"]))
    assert closing["change"]["mean"] == pytest.approx(closing["apart"][1] - closing["apart"][0])


def test_windows_count_by_themselves_where_their_documents_are_not_known(world, tmp_path):
    samples = tmp_path / "samples"
    shutil.copytree(world.samples, samples)
    (world.folder / "windows").rename(world.folder / "elsewhere")
    try:
        result = world.bounds("", str(samples))
    finally:
        (world.folder / "elsewhere").rename(world.folder / "windows")
    found = result["differences"]
    assert (found["over"], found["count"]) == ("windows", 30)
    assert "the documents are not known" in found["reason"]
    ends = found["base"]["percent"]
    assert ends["low"] < ends["lower"] <= ends["upper"] < ends["high"]


def test_warnings_stand_in_the_result_and_nowhere_else(world):
    result = world.bounds("--samples 3")
    samples, scored = open_stores(world.samples, world.energies)
    expected = {
        sentence
        for contexts in contexts_of(samples, scored, 3)
        for sentence in warnings_about(log_partition_bounds(contexts.scores))
    }
    assert result["warnings"] == sorted(expected)
    assert expected
    assert pq.read_schema(world.folder / "results/contexts.parquet").equals(CONTEXTS, check_metadata=True)


def test_python_gets_what_the_file_says(world, tmp_path, capsys):
    capsys.readouterr()
    settings = BoundsSettings(negatives=world.samples, energies=world.energies, output=str(tmp_path), samples=20)
    result = perplexity_bounds.perplexity_bounds(settings)
    assert capsys.readouterr().out == ""
    assert result == json.loads((tmp_path / "bounds.json").read_text())


def test_fewer_samples_are_the_first_ones(world):
    assert world.bounds("--samples 10")["samples"] == 10
    curve = world.bounds("--samples_curve")["samples_curve"]
    assert world.bounds("--samples 10")["joint_perplexity"]["upper"] == pytest.approx(curve[2]["upper"])


def test_what_bounds_cannot_be_computed_from_is_refused(world):
    top_k = world.mine("top_k", "--sampling top_k --top_k 3 --context_lengths 2 --negatives 4")
    other = world.mine("other", "--context_lengths 2 --negatives 4 --seed 9")
    scored = world.score("energy", top_k)
    cases = [
        ({"samples": top_k, "energies": scored}, "", "its samples were drawn with top_k"),
        ({"samples": other}, "", "the energies of another store"),
        ({"energies": str(world.folder / "nowhere")}, "", "python evaluation/score.py --energy MODEL --store"),
        ({}, "--samples 1", "--samples 1: between 2 and the 600"),
        ({}, "--samples 601", "--samples 601: between 2 and the 600"),
        ({}, "--positions", "mine every one up to 4 with --every_context_length"),
        ({}, "--exact_windows 3", "name the models with --energy and --generator"),
        (
            {},
            f"--exact_windows 3 --energy {world.folder}/energy --generator {world.folder}/lm1",
            "are another model's",
        ),
    ]
    for stores, flags, message in cases:
        with pytest.raises(UserError) as error:
            world.bounds(flags, **stores)
        assert message in str(error.value), flags


class TableOfEnergies:
    """An energy that is known for every window, in place of a network that would have to learn it."""

    def __init__(self, table: dict[tuple[int, ...], float]):
        self.table = table

    def energies(self, windows, context_length):
        return np.array([[self.table[tuple(ids)] for ids in row] for row in windows.ids.tolist()])


def test_a_perfect_energy_gives_the_datas_own_perplexity(world, monkeypatch):
    """E = log P_phi - log P_data, for some P_data: the joint model is P_data, log Z is 0.

    The exact last token must be P_data's to rounding; the bounds are estimates from 600 samples, and enclose it.
    """
    rng = np.random.default_rng(1)
    windows = {row["window_id"]: row["tokens"].tolist() for row in Store(f"{world.folder}/windows").rows()}
    table, own, last = {}, [], []
    for name, (log_p, _, place) in truth(world).items():
        context = tuple(windows[name][:CONTEXT])
        if (*context, *TEXTS[0]) not in table:
            logits = log_p + rng.normal(0, 0.5, 125)
            data = logits - np.logaddexp.reduce(logits)
            table |= {(*context, *text): log_p[n] - data[n] for n, text in enumerate(TEXTS)}
        log_data = log_p - [table[*context, *text] for text in TEXTS]
        assert np.logaddexp.reduce(log_data) == pytest.approx(0, abs=1e-6)
        own.append(log_data[place])
        same = [n for n, text in enumerate(TEXTS) if text[:2] == TEXTS[place][:2]]
        last.append(log_data[place] - np.logaddexp.reduce(log_data[same]))
    scorer = TableOfEnergies(table)
    monkeypatch.setattr("evaluation.score.open_scorer", lambda *_: scorer)
    monkeypatch.setattr("evaluation.joint.exact.open_scorer", lambda *_: scorer)
    output = f"{world.folder}/perfect"
    score.main(["--energy", f"{world.folder}/constant", "--store", world.samples, "--output", output])
    exact_flags = f"--exact_windows 100 --energy {world.folder}/constant --generator {world.folder}/lm0"
    result = world.bounds(exact_flags, energies=output)
    exact = np.exp(-np.mean(own) / 3)
    assert abs(exact - result["base_perplexity"]) > 0.01
    assert joint_perplexity(
        np.array([log_p[place] for log_p, _, place in truth(world).values()]),
        np.array([table[tuple(windows[name])] for name in truth(world)]),
        np.zeros(len(own)),
        np.full(len(own), 3),
    ) == pytest.approx(exact, rel=1e-9)
    assert result["joint_perplexity"]["lower"] == pytest.approx(exact, rel=0.01)
    assert result["joint_perplexity"]["upper"] == pytest.approx(exact, rel=0.01)
    assert result["last_position"]["windows"] == len(last)
    assert result["last_position"]["exact"] == pytest.approx(np.exp(-np.mean(last)), rel=1e-5)


@pytest.mark.slow
def test_a_killed_run_continues_to_the_same_figures(world, tmp_path):
    flags = ["--negatives", world.samples, "--energies", world.energies, "--samples_curve", "--exact_windows", "20"]
    flags += ["--energy", f"{world.folder}/energy", "--generator", f"{world.folder}/lm0"]
    whole = command("evaluation/perplexity_bounds.py", *flags, "--output", tmp_path / "whole")
    killed = command("evaluation/perplexity_bounds.py", *flags, "--output", tmp_path / "killed")
    storm(killed, kills=2, seconds=timed(whole), seed=1)
    for name in ("bounds.json", "contexts.parquet", "samples_curve.svg"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "killed" / name).read_bytes()
    assert not (tmp_path / "killed/kept.json").exists()


def test_bounds_are_arithmetic_and_load_neither_networks_nor_what_draws_figures(world, tmp_path):
    ended, loaded = watched(
        "evaluation/perplexity_bounds.py",
        *("--negatives", world.samples, "--energies", world.energies, "--output", str(tmp_path / "bounds")),
    )
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "bounds" / "bounds.json").exists()
    # Of pandas nothing is said: pyarrow imports it where it is installed, whoever makes a table.
    assert not loaded & {"torch", "transformers", "sklearn", "matplotlib", "apache_beam", "datasets"}

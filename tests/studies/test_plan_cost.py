"""What a study is said to cost, against what a small one really leaves, and against arithmetic by hand."""

import json
from pathlib import Path

import pytest
import yaml

from pipeline.runtime.errors import UserError
from pipeline.stores.manifest import read_manifest
from studies import plan_cost
from studies.costs.hardware import DAY
from studies.costs.jobs import Cost, Planner
from studies.costs.texts import Texts
from studies.orchestration.study import Study
from studies.plan_cost import CostSettings
from tests.helpers.commands import ROOT, run

NEEDED = {
    "windows": ("train", "valid", "few"),
    "language_models": ("generator",),
    "negatives": ("train", "valid", "samples"),
    "energy_models": ("bit",),
    "energies": ("samples",),
}
WITHOUT_GPU = ("windows", "imports", "analyses", "human", "findings", "report")
SHORT = {"max_steps": 2, "batch_size": 8, "valid_windows": 16}


def costs_of(study: str, **settings: object) -> dict[str, Cost]:
    found = plan_cost.plan_cost(CostSettings(**{"study": study, "gpu": "a100"} | settings))
    return {cost.name: cost for cost in found}


@pytest.fixture(scope="module")
def paper() -> dict[str, Cost]:
    return costs_of("paper")


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_the_demos_stores_and_models_are_as_large_as_is_said(tmp_path):
    """The demo itself, with shorter trainings and a tenth of the text: the rows exactly, the bytes nearly."""
    demo = yaml.safe_load((ROOT / "studies/demo.yaml").read_text())
    content = {section: {name: dict(demo[section][name]) for name in names} for section, names in NEEDED.items()}
    for section in ("language_models", "energy_models"):
        for entry in content[section].values():
            entry |= SHORT
    content["windows"]["train"]["input"] = "builtin:sorting:lines=10000"
    content["windows"]["valid"]["input"] = "builtin:sorting:lines=1000"
    content["negatives"]["samples"] |= {"engine": "torch", "negatives": 20}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
    settings = CostSettings(study=str(tmp_path / "study.yaml"), gpu="cpu-core")
    planner = Planner(settings.machine, Texts(), settings.vocabulary, None, ())
    for job in Study(settings.study, str(tmp_path / "out")).jobs()[:-2]:
        said, place = planner.cost(job), 3 if job.command[0] == "deepspeed" else 1
        ended = run(job.command[place], *job.command[place + 1 :])
        assert ended.returncode == 0, ended.stderr
        folder = Path(job.makes).parent
        if said.section in ("language_models", "energy_models"):
            model = planner.models[str(folder)]
            known = json.loads((folder / "config.json").read_text())["provenance"]["parameters"]
            assert model.network.parameters == known
            checkpoints = size_of(folder / "checkpoints")
            weights = (folder / "model.safetensors").stat().st_size
            assert said.stores["models"] == pytest.approx(weights, rel=0.1)
            assert said.stores["checkpoints"] + said.stores["models"] == pytest.approx(checkpoints, rel=0.25)
            continue
        made = read_manifest(str(folder))
        if said.section == "windows":
            assert planner.windows[str(folder)].rows == made.rows
            assert planner.windows[str(folder)].vocabulary == made.tokenizer["vocabulary_size"]
        if said.section == "negatives":
            assert planner.negatives[str(folder)].rows == made.rows
            assert planner.negatives[str(folder)].shards == len(made.shards)
            assert said.generated == made.counts["tokens"]
        (said_bytes,) = said.stores.values()
        assert said_bytes == pytest.approx(made.bytes, rel=0.15 if said.section == "windows" else 0.08), job.name


def test_trainings_of_the_paper_by_hand(paper):
    """6 FLOPs a weight and token: 2,048 windows of 160 in 180,000 steps, in bf16, as the recipe has it."""
    cost = paper["language_models/books-1-prefix"]
    tokens = 180_000 * 2_048 * 160
    assert cost.read == pytest.approx(tokens, rel=0.001)
    weights, attention = 202_458_112, 2 * 160 * 12 * 1024
    assert cost.seconds == pytest.approx(6 * (weights + attention) * tokens / (312e12 * 0.4), rel=0.001)
    ralm = paper["language_models/books-ralm-12l"]  # twice the windows, and a frozen network beside
    assert ralm.seconds == pytest.approx(2 * 4 / 3 * cost.seconds, rel=0.001)
    unit = paper["energy_models/books-unit"]  # a real and a generated window a row, a start token, no output layer
    weights, attention = 12 * 12 * 1024**2, 2 * 161 * 12 * 1024
    assert unit.seconds == pytest.approx(6 * (weights + attention) * 2 * 161 / 160 * tokens / (312e12 * 0.4), rel=0.001)


def test_stores_of_the_paper_by_hand(paper):
    windows = (21_718e6 - 160) // 160 + 1
    mined = paper["negatives/news-train-prefix"]
    assert mined.generated == pytest.approx(30 * windows)
    assert mined.read == pytest.approx((131 + 160) * windows)
    samples = paper["negatives/news-test-samples-12l"]
    assert samples.generated == pytest.approx(1_000 * 100_000 * 40)
    scored = paper["energies/news-test-12l-bit-base"]
    assert scored.read == pytest.approx(1_000 * 100_000 * 160, rel=0.002)
    causal = paper["energies/news-test-12l-unit"]  # contexts once for 512 samples
    assert causal.read == pytest.approx(1_000 * 100_000 * (40 + 120 / 500), rel=0.01)
    assert 60 * 1e8 < samples.stores["negatives"] < 90 * 1e8
    assert 8 * 1e8 < scored.stores["energies"] < 30 * 1e8
    # Six thousand windows are all that there are of CCNews's million held-out tokens.
    valid = paper["negatives/news-valid-prefix"]
    assert valid.generated == pytest.approx(30 * 6_250, rel=0.001)


def test_every_job_is_counted_and_every_gpu_known(paper, capsys):
    assert paper.keys() == {
        job.name for job in Study(str(ROOT / "studies/paper.yaml"), "o", {"DATA": "d", "WILD": "w"}).jobs()
    }
    free = {cost.name for cost in paper.values() if not cost.seconds and cost.section not in WITHOUT_GPU}
    assert free == {f"energy_models/{corpus}-linear" for corpus in ("books", "news", "wiki")}  # which multiply nothing
    assert plan_cost.main(["--study", "demo", "--gpu", "h100"]) == 0
    printed = capsys.readouterr().out
    assert "demo on h100: 30 jobs" in printed
    assert "fp32 67 TFLOP/s" in printed


def test_values_and_assumptions_change_what_they_should(paper):
    few = costs_of("paper", set=("bound_samples=10000",), precision="fp32", tokens=("ccnews/train=1e9",))
    name = "negatives/news-test-samples-12l"
    assert few[name].generated == pytest.approx(paper[name].generated / 10)
    train = "negatives/news-train-prefix"
    assert few[train].generated == pytest.approx(30 * 1e9 / 160, rel=0.001)
    model = "language_models/books-1-prefix"
    assert few[model].seconds == pytest.approx(paper[model].seconds / (19.5 * 0.65 / (312 * 0.4)), rel=0.001)
    measured = costs_of("paper", tokens_per_second=1e4)
    assert measured[name].seconds >= 1_000 * 100_000 * 40 / 1e4
    assert 1000 * DAY < sum(cost.seconds for cost in paper.values()) < 2000 * DAY


def test_what_cannot_be_counted_is_named(tmp_path):
    mine = {"input": "${TEXTS}", "corpus": "mine", "split": "train", "tokenizer": "gpt2"}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({"windows": {"all": mine, "few": mine | {"limit": 100}}}))
    with pytest.raises(UserError, match=r"--tokens mine/train=N: how many tokens has this text\? windows/all"):
        costs_of(str(tmp_path / "study.yaml"))
    assert costs_of(str(tmp_path / "study.yaml"), tokens=("mine/train=1e6",))["windows/all"].stores["windows"] > 1e6
    with pytest.raises(UserError, match=r"--set GENERATOR=…: the study's models depend on it"):
        costs_of("pretrained")
    with pytest.raises(UserError, match="--tokens books=12: CORPUS/SPLIT=N is needed"):
        costs_of("paper", tokens=("books=12",))
    with pytest.raises(UserError, match="--gpu abacus: one of a100"):
        CostSettings(study="paper", gpu="abacus")

"""Completions as sample_joint.py wrote them: of a joint model, and of language models that were sampled alone."""

import pytest

from evaluation import sample_joint
from evaluation.human import prepare
from evaluation.human.study.completions import context_lengths, read_completions, read_gold
from evaluation.human.study.file import StudyFile
from pipeline.runtime.errors import UserError
from tests.helpers.world import CONTEXT


@pytest.fixture(scope="module")
def sampled(world, tmp_path_factory):
    """Samples of a joint model, and of another language model alone, of the same contexts."""
    folder = tmp_path_factory.mktemp("sampled")
    given = f"--windows {world.folder}/windows --context_length {CONTEXT} --limit 40"
    models = {"joint": f"--generator {world.folder}/lm0 --energy {world.folder}/energy --samples 20"}
    models["other"] = f"--generator {world.folder}/lm1/"
    for name, flags in models.items():
        sample_joint.main(f"{given} {flags} --output {folder}/{name}".split())
    return folder


def test_a_language_model_that_was_sampled_alone_is_called_by_its_name(sampled):
    labels = {
        given: read_completions("--a", f"{sampled}/{given}").label
        for given in ("joint:base", "joint:chosen", "other:base", "other:real", "other/samples.parquet:base")
    }
    assert labels == {
        "joint:base": "base LM",
        "joint:chosen": "joint",
        "other:base": "lm1",
        "other:real": "human",
        "other/samples.parquet:base": "base LM",
    }
    one, other = (read_completions("--a", f"{sampled}/{given}:base").passages for given in ("joint", "other"))
    assert {name: passage.context for name, passage in one.items()} == {
        name: passage.context for name, passage in other.items()
    }
    assert set(context_lengths("--b", f"{sampled}/other:base").values()) == {CONTEXT}
    assert read_gold(f"{sampled}/other", dict, 0).label == "human"
    with pytest.raises(UserError, match=r"--b .*: say which text, .*other:base \(of \['base', 'real'\]\)"):
        read_completions("--b", f"{sampled}/other:chosen")


def test_a_study_compares_a_joint_model_with_a_language_model_alone(sampled, tmp_path):
    sources = f"--a {sampled}/other:base --b {sampled}/joint:chosen --gold {sampled}/other"
    sizes = "--items 6 --qualification_items 2 --checks 2"
    assert prepare.main(f"{sources} {sizes} --output {tmp_path}/study.db".split()) == 0
    facts = StudyFile(f"{tmp_path}/study.db").settings
    assert (facts["model1"], facts["model2"]) == ("lm1", "joint")

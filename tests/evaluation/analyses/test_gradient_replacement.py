"""The job of gradient-guided replacements, against both models themselves."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from evaluation.analyses import gradient_replacement
from pipeline.runtime.errors import UserError
from pipeline.text.builtin_corpora import ALPHABET
from pipeline.text.tokenizer import character_tokenizer, load_tokenizer
from tests.evaluation.analyses.conftest import KINDS
from tests.helpers.pretrained import untrained
from tests.training.energy.test_inputs import by_hand
from training.energy.classifier import save_classifier
from training.energy.folder import open_energy_model


@torch.no_grad()
def judge(energy: str, generator: str, window: list[int], context_length: int, backwards: bool) -> tuple[float, float]:
    """Score and perplexity of a window, in the plainest way."""
    score = -open_energy_model(energy).load()(torch.tensor([window])).item()
    turned = torch.tensor([13, *(window[::-1] if backwards else window)])
    logits = AutoModelForCausalLM.from_pretrained(generator).eval()(turned[None, :-1]).logits[0].double()
    steps = logits.log_softmax(-1)[torch.arange(len(window)), turned[1:]][context_length:]
    return score, float(np.exp(-steps.mean().item()))


@pytest.mark.parametrize(
    ("kind", "direction"), [*((kind, "left_to_right") for kind in KINDS), ("unit-nano", "right_to_left")]
)
def test_scores_and_perplexities_are_those_of_the_texts(
    kind, direction, models, negatives, backwards, generators, analyse
):
    store = negatives.valid if direction == "left_to_right" else backwards
    result = analyse(
        gradient_replacement,
        energy=models[kind],
        generator=generators[direction],
        store=store.path,
        tokens=2,
        limit=3,
    )
    assert len(result["examples"]) == 9
    first = result["examples"][:3]
    assert [(one["text"], one["goal"]) for one in first] == [
        ("real", "higher"),
        ("real", "lower"),
        ("generated", "lower"),
    ]
    row = store.take([0]).to_pylist()[0]
    windows = by_hand(tuple(row[name] for name in ("tokens", "direction", "context_length", "negatives")))
    encoder, turned, length = character_tokenizer(ALPHABET), direction == "right_to_left", row["context_length"]
    for one, window in zip(first, (windows[0], windows[0], windows[1]), strict=True):
        after = list(window)
        for single in one["replaced"]:
            after[single["position"] - 1] = single["new_id"]
        for name, ids in (("before", window), ("after", after)):
            assert one[name] == encoder.decode(ids[: 13 - length] if turned else ids[length:])
            score, perplexity = judge(models[kind], generators[direction], ids, length, turned)
            assert one[f"score_{name}"] == pytest.approx(score, abs=1e-4)
            assert one[f"perplexity_{name}"] == pytest.approx(perplexity, rel=1e-4)
        assert sum(old != new for old, new in zip(window, after, strict=True)) == 2
        assert one["context"] == encoder.decode(window[13 - length :] if turned else window[:length])
    row = next(row for row in result["rows"] if (row["text"], row["goal"]) == ("real", "higher energy"))
    own = [one["score_after"] for one in result["examples"] if (one["text"], one["goal"]) == ("real", "higher")]
    assert row["score_after"] == pytest.approx(np.mean(own))
    assert row["windows"] == 3


@pytest.mark.parametrize("greedy", [False, True])
def test_a_linear_energy_changes_by_what_was_estimated(greedy, models, negatives, generators, analyse):
    result = analyse(
        gradient_replacement,
        energy=models["linear"],
        generator=generators["left_to_right"],
        store=negatives.valid.path,
        tokens=3,
        limit=5,
        **({"greedy": True} if greedy else {}),
    )
    for one in result["examples"]:
        change = one["score_after"] - one["score_before"]
        assert change == pytest.approx(one["estimated_change"], abs=1e-4)
        assert (change > 0) == (one["goal"] == "lower")
        singles = sum(single["score"] - one["score_before"] for single in one["replaced"])
        assert change == pytest.approx(singles, abs=1e-4)


def test_bad_input_is_named(models, stores, negatives, generators, tmp_path):
    encoder, own = load_tokenizer(negatives.valid.path), tmp_path / "own"
    network, first, _ = untrained("encoder", encoder, tmp_path)
    save_classifier(network, str(own), network.state_dict(), {}, encoder, first.own)
    good = {"energy": models["unit-nano"], "generator": generators["left_to_right"], "store": negatives.valid.path}
    cases = [
        ({"energy": str(own)}, f"--energy {own}: an encoder with a tokenizer of its own"),
        ({"energy": generators["left_to_right"]}, "not an energy model"),
        ({"energy": f"{tmp_path}/none"}, "deepspeed training/train_energy.py"),
        ({"generator": f"{tmp_path}/none"}, "deepspeed training/train_lm.py"),
        ({"generator": generators["right_to_left"]}, "it reads right_to_left"),
        ({"store": stores.valid.path}, "a store of windows, but one of negatives is needed"),
        ({"tokens": "0"}, "--tokens 0: at least 1"),
    ]
    for change, message in cases:
        with pytest.raises(UserError) as error:
            gradient_replacement.main(
                [f"--{name}={value}" for name, value in (good | {"output": f"{tmp_path}/out"} | change).items()]
            )
        assert message in str(error.value), change
    assert not (tmp_path / "out").exists()

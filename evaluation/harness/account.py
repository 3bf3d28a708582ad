"""What a run has to say for its numbers: how far apart the bounds are, and what was cut."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evaluation.harness.answers import Answer
from evaluation.harness.estimates import Estimate
from evaluation.harness.passages import Passage
from evaluation.joint.bounds import LEAST_EFFECTIVE_SAMPLES


@dataclass
class Account:
    """Of what was asked so far, each different passage once."""

    samples: int
    scored: dict[Passage, Estimate] = field(default_factory=dict)
    answered: list[Answer] = field(default_factory=list)
    cut_prompts: int = 0
    shortened_answers: int = 0

    def statement(self, cut_by_encoder: int) -> dict[str, Any]:
        """As it stands beside the results."""
        said: dict[str, Any] = {"samples": self.samples}
        if self.scored:
            gaps = np.array([one.upper - one.lower for one in self.scored.values()])
            tokens = sum(len(passage.completion) for passage in self.scored)
            said["likelihoods"] = {
                "passages": len(self.scored),
                "tokens": tokens,
                "gap_mean": float(gaps.mean()),
                "gap_largest": float(gaps.max()),
                "gap_per_token": float(gaps.sum() / tokens),
            } | self._effective({passage.shape: one.effective_samples for passage, one in self.scored.items()}.values())
        if self.answered:
            worth = (answer.effective_samples for answer in self.answered)
            said["answers"] = {"answers": len(self.answered), "shortened": self.shortened_answers}
            said["answers"] |= self._effective(worth)
        said |= {"cut_prompts": self.cut_prompts, "cut_by_encoder": cut_by_encoder}
        return said | {"warnings": list(self._warnings(said))}

    def _effective(self, found: Iterable[float | None]) -> dict[str, Any]:
        known = np.array([value for value in found if value is not None])
        if not len(known):
            return {}
        return {
            "contexts": len(known),
            "effective_samples_median": float(np.median(known)),
            "effective_samples_least": float(known.min()),
            "contexts_of_few": int((known < self._least).sum()),
        }

    @property
    def _least(self) -> float:
        return min(LEAST_EFFECTIVE_SAMPLES, self.samples / 2)

    def _warnings(self, said: dict[str, Any]) -> Iterator[str]:
        for name in ("likelihoods", "answers"):
            if few := said.get(name, {}).get("contexts_of_few"):
                yield (
                    f"{name}: in {few} of {said[name]['contexts']} contexts the {self.samples} samples are worth fewer "
                    f"than {self._least:g}, and the result leans on those: draw more"
                )
        if self.cut_prompts:
            yield f"prompts that were too long for the window, and cut at the left: {self.cut_prompts}"
        if self.shortened_answers:
            yield f"answers that were given less room than their tasks ask for: {self.shortened_answers}"
        if said["cut_by_encoder"]:
            yield f"texts whose end the encoder did not read, too long for it: {said['cut_by_encoder']}"


def in_words(statement: Mapping[str, Any]) -> Iterator[str]:
    """The statement as a command prints it, a line each."""
    for name in ("likelihoods", "answers"):
        facts = statement.get(name, {})
        if "contexts" not in facts:
            continue
        line = f"{name}: {facts['contexts']:,} contexts, of {statement['samples']} samples each,"
        median, least = facts["effective_samples_median"], facts["effective_samples_least"]
        line += f" {median:.1f} effective (median), {least:.1f} at least"
        if "gap_mean" in facts:
            mean, largest = facts["gap_mean"], facts["gap_largest"]
            line += f"; bounds {mean:.4f} apart (mean), {largest:.4f} at most, {facts['gap_per_token']:.4f} a token"
        yield line
    yield from statement["warnings"]

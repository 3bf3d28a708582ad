"""Which comparisons a study has: items of two models, attention checks, and a qualification; a function of the seed."""

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

from evaluation.human.study.completions import CompletionSet, Passage
from pipeline.runtime.errors import UserError

ITEM, CHECK, QUALIFICATION = "item", "check", "qualification"
MODEL_1, MODEL_2, GOLD, DECOY, MODEL = "model1", "model2", "gold", "decoy", "model"
ITEMS_A_PAGE = 3


@dataclass(frozen=True)
class Comparison:
    """Two continuations of one context, in the order in which they are shown."""

    kind: str
    window_id: str
    context: str
    left_text: str
    right_text: str
    left_source: str
    right_source: str


@dataclass(frozen=True)
class Sizes:
    items: int = 333
    qualification: int = 12
    checks: int | None = None  # as many as there are pages for one rater, if not said

    @property
    def of_checks(self) -> int:
        return math.ceil(self.items / ITEMS_A_PAGE) if self.checks is None else self.checks


def make_comparisons(
    first: CompletionSet,
    second: CompletionSet,
    gold: CompletionSet,
    base: CompletionSet,
    sizes: Sizes,
    shuffled: bool,
    seed: int,
) -> list[Comparison]:
    """Items, checks and qualification of different contexts, their sides and their order drawn by the seed."""
    rng = random.Random(seed)
    pairs = comparable(first, second)
    if not pairs:
        raise UserError("--a, --b: no context has two different completions: were both made from the same windows?")
    rng.shuffle(pairs)
    items, taken = pairs[: sizes.items], set(pairs[: sizes.items])
    tests = [name for name in comparable(gold, base) if name not in taken]
    rng.shuffle(tests)
    tests = tests[: sizes.qualification]
    spare = [name for name in sorted(gold.passages) if name not in taken.union(tests) and has_text(gold, name)]
    rng.shuffle(spare)
    if len(items) < sizes.items or len(tests) < sizes.qualification or not spare:
        most = max(0, min(sizes.items, len(pairs)) - (sizes.qualification - len(tests)) - (not spare))
        raise UserError(
            f"--items {sizes.items}: of {len(pairs):,} contexts with two different completions, "
            f"{sizes.qualification} and at least one more with its real completion are needed for the qualification "
            f"and the checks: sample more contexts, or --items {most}"
        )
    made = [pair(ITEM, name, first, MODEL_1, second, MODEL_2) for name in items]
    made += [pair(QUALIFICATION, name, gold, GOLD, base, MODEL) for name in tests]
    made += checks(gold, spare, sizes.of_checks, shuffled, rng)
    made = [turned(comparison) if rng.random() < 0.5 else comparison for comparison in made]
    rng.shuffle(made)  # so that neither a place nor a number gives a check away
    return made


def comparable(one: CompletionSet, other: CompletionSet) -> list[str]:
    """Contexts of both sources, with completions that are not blank and not the same; sorted."""
    names = sorted(one.passages.keys() & other.passages.keys())
    for name in names:
        if one.passages[name].context != other.passages[name].context:
            raise UserError(f"{name}: {one.label} and {other.label} have different contexts: cut windows alike")
    texts = {name: [" ".join(source.passages[name].completion.split()) for source in (one, other)] for name in names}
    return [name for name in names if all(texts[name]) and texts[name][0] != texts[name][1]]


def has_text(source: CompletionSet, name: str) -> bool:
    return bool(source.passages[name].completion.strip())


def pair(kind: str, name: str, one: CompletionSet, of_one: str, other: CompletionSet, of_other: str) -> Comparison:
    left, right = one.passages[name], other.passages[name]
    return Comparison(kind, name, left.context, left.completion, right.completion, of_one, of_other)


def checks(
    gold: CompletionSet, names: list[str], count: int, shuffled: bool, rng: random.Random
) -> Iterable[Comparison]:
    """Real continuations against those of other contexts; contexts come again only when all have been used."""
    wrong = {name: gold.passages[name].completion for name in sorted(gold.passages) if has_text(gold, name)}
    for number in range(count):
        name = names[number % len(names)]
        real: Passage = gold.passages[name]
        others = [text for other, text in wrong.items() if other != name and text.split() != real.completion.split()]
        if not others:
            raise UserError("--gold: a check needs a wrong continuation, so real ones that differ")
        decoy = rng.choice(others)
        if shuffled:
            words = decoy.split()
            rng.shuffle(words)
            start = real.completion[: len(real.completion) - len(real.completion.lstrip())]
            decoy = start + " ".join(words)  # a space or its absence must not give the answer away
        yield Comparison(CHECK, name, real.context, real.completion, decoy, GOLD, DECOY)


def turned(comparison: Comparison) -> Comparison:
    return replace(
        comparison,
        left_text=comparison.right_text,
        right_text=comparison.left_text,
        left_source=comparison.right_source,
        right_source=comparison.left_source,
    )

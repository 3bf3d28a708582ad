"""TF-IDF and logistic regression: the baseline that comes with OpenAI's data set of GPT-2's texts.

Features are the 2^21 most frequent words and pairs of words that occur in at least five texts; the regularisation is
the one that is right most often on validation texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.runtime.errors import UserError

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

STRENGTHS = tuple(2.0**power for power in range(-6, 7))  # of C, the inverse of the regularisation
LEAST_TEXTS = 5  # that a word or a pair of words has to occur in


@dataclass(frozen=True)
class Tfidf:
    """A trained baseline: `score(texts)` is above 0 for what it takes to be real."""

    vectorizer: "TfidfVectorizer"
    classifier: "LogisticRegression"
    strength: float  # C
    valid_accuracy: float

    def score(self, texts: Sequence[str]) -> NDArray[np.float64]:
        if not len(texts):
            return np.empty(0)
        return np.asarray(self.classifier.decision_function(self.vectorizer.transform(texts)), np.float64)


def train_tfidf(
    train_texts: Sequence[str], train_labels: ArrayLike, valid_texts: Sequence[str], valid_labels: ArrayLike
) -> Tfidf:
    """Labels are 1 (or True) for real texts and 0 for generated ones. Of equally good values of C the smallest."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    labels, expected = (np.asarray(given).astype(bool) for given in (train_labels, valid_labels))
    _check(train_texts, labels, "train")
    _check(valid_texts, expected, "validate")
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=LEAST_TEXTS, max_features=2**21)
    try:
        features = vectorizer.fit_transform(train_texts)
    except ValueError as error:
        raise UserError(
            f"TF-IDF: no word occurs in {LEAST_TEXTS} of the {len(train_texts)} texts to train on ({error}): give more"
        ) from None
    valid = vectorizer.transform(valid_texts)
    best: Tfidf | None = None
    for strength in STRENGTHS:
        classifier = LogisticRegression(C=strength, solver="liblinear", max_iter=1000).fit(features, labels)
        accuracy = float(np.mean((classifier.decision_function(valid) > 0) == expected))
        if best is None or accuracy > best.valid_accuracy:
            best = Tfidf(vectorizer, classifier, strength, accuracy)
    assert best is not None
    return best


def _check(texts: Sequence[str], labels: NDArray[np.bool_], what: str) -> None:
    if len(texts) != len(labels):
        raise ValueError(f"{len(texts)} texts to {what} on, but {len(labels)} labels")
    if not labels.any() or labels.all():
        missing = "generated" if labels.any() else "real"
        raise UserError(f"TF-IDF: there is no {missing} text to {what} on: give some of both")

import random

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.pipeline import make_pipeline

from evaluation.detection.tfidf import train_tfidf
from pipeline.runtime.errors import UserError


def texts(count: int, seed: int) -> tuple[list[str], list[int]]:
    """Half of them of other words than the rest, more or less."""
    rng = random.Random(seed)
    words = [f"word{number}" for number in range(60)]
    labels = [number % 2 for number in range(count)]
    weights = [[1 + 0.5 * label * (place % 3) for place in range(60)] for label in (0, 1)]
    return [" ".join(rng.choices(words, weights[label], k=rng.randint(20, 60))) for label in labels], labels


def test_it_is_scikit_learns_own_search_on_the_same_split():
    train, train_labels = texts(300, 0)
    valid, valid_labels = texts(150, 1)
    test, test_labels = texts(200, 2)
    found = train_tfidf(train, train_labels, valid, valid_labels)
    pipeline = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), min_df=5, max_features=2097152),
        LogisticRegression(solver="liblinear", max_iter=1000),
    )
    grid = {"logisticregression__C": [1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16, 32, 64]}
    folds = PredefinedSplit([-1] * 300 + [0] * 150)  # the vocabulary and the weights are of the training texts alone
    search = GridSearchCV(pipeline, grid, cv=folds, refit=False).fit(train + valid, train_labels + valid_labels)
    expected = pipeline.set_params(**search.best_params_).fit(train, train_labels)
    assert found.strength == search.best_params_["logisticregression__C"]
    assert found.valid_accuracy == pytest.approx(search.best_score_)
    assert np.allclose(found.score(test), expected.decision_function(test), rtol=0, atol=1e-12)
    assert np.mean((found.score(test) > 0) == np.array(test_labels, bool)) > 0.7  # positive is real
    assert len(found.score([])) == 0


def test_what_cannot_be_trained_on_is_said():
    train, labels = texts(40, 0)
    with pytest.raises(UserError, match="no word occurs in 5 of the 2 texts"):
        train_tfidf(["one text", "another thing"], [1, 0], train, labels)
    with pytest.raises(UserError, match="no generated text to train on"):
        train_tfidf(train, [1] * 40, train, labels)
    with pytest.raises(UserError, match="no real text to validate on"):
        train_tfidf(train, labels, train, [0] * 40)
    with pytest.raises(ValueError, match="40 texts to train on, but 39 labels"):
        train_tfidf(train, labels[1:], train, labels)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from crowdfuse.synthesis import network_annotators

X, DIGITS = load_digits(return_X_y=True)
Y = np.array([f"digit {k}" for k in range(10)])[DIGITS]


def test_labels_are_the_predictions_of_fitted_classifiers() -> None:
    models = {
        "bayes": GaussianNB().fit(X[:300], Y[:300]),
        "stump": DecisionTreeClassifier(max_depth=2, random_state=0).fit(X[:300], Y[:300]),
    }
    made = network_annotators(models, X[300:], Y[300:])
    said = made.annotations.to_matrix()
    assert made.annotations.annotators.tolist() == ["bayes", "stump"]
    for r, model in enumerate(models.values()):
        np.testing.assert_array_equal(said[:, r], model.predict(X[300:]))
        assert made.accuracy[r] == pytest.approx(model.score(X[300:], Y[300:]))
    assert made.accuracy[0] > made.accuracy[1]
    part = network_annotators(models, X[300:], Y[300:], missing=0.4)
    assert part.annotations.n_labels == pytest.approx((0.6 + 0.4**2 / 2) * made.annotations.n_labels, rel=0.05)
    np.testing.assert_array_equal(part.is_correct, made.is_correct)


def test_a_list_of_functions_numbers_the_annotators() -> None:
    made = network_annotators([lambda X: X[:, 0] > 0, lambda X: (X[:, 1] > 0).astype(float)], np.eye(2), [1, 0])
    assert made.annotations.annotators.tolist() == [0, 1]
    assert made.annotations.to_matrix().tolist() == [[1, 0], [0, 1]]
    assert made.accuracy.tolist() == [1, 0]


def test_classes_may_be_more_than_those_in_y() -> None:
    model = {"sure": lambda X: np.full(len(X), 7)}
    with pytest.raises(ValueError, match=r"model 'sure', item 0: label 7 is not one of the 2 classes .*classes="):
        network_annotators(model, np.zeros((2, 1)), [0, 1])
    made = network_annotators(model, np.zeros((2, 1)), [9, 1], classes=[9, 7, 1])
    assert made.annotations.classes.tolist() == [9, 7, 1]
    assert (made.truth.tolist(), made.annotations.label.tolist()) == ([0, 2], [1, 1])
    with pytest.raises(ValueError, match="y: label 1 is not one of the 2 classes"):
        network_annotators(model, np.zeros((2, 1)), [9, 1], classes=[9, 7])


@pytest.mark.parametrize(
    ("models", "error", "message"),
    [
        ({}, ValueError, "models is empty"),
        ({"m": 3}, TypeError, r"model 'm' must be callable or have a method predict\(X\), got int"),
        (
            {"m": lambda X: np.zeros((2, 3))},
            ValueError,
            r"model 'm' must return one class name .* \(2, 3\); return the name of the class with",
        ),
        ({"m": lambda X: [0]}, ValueError, r"one class name for each of the 2 items, got shape \(1,\)"),
        ({"m": lambda X: [0.5, 1]}, ValueError, r"labels of model 'm'\[0\]"),
        ({"m": lambda X: ["a", "b"]}, ValueError, "model 'm', item 0: label 'a' is not one of the 2 classes"),
    ],
)
def test_invalid_arguments_are_refused(models: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        network_annotators(models, np.zeros((2, 1)), [0, 1])

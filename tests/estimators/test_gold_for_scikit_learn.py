"""Gold in scikit-learn's scorers, and gold as a data frame in reports."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score

from crowdfuse import Annotations, MajorityVoteClassifier, label_score

GOLD = np.array(["cat", "dog"]).repeat(20)
X = np.where(GOLD == "cat", -1.0, 1.0)[:, None] + np.random.default_rng(0).normal(0, 0.1, (40, 1))
ITEMS = [f"item-{i}" for i in range(40)]
TABLE = pd.DataFrame(
    {
        "item": np.repeat(ITEMS, 2),
        "annotator": ["ada", "bob"] * 40,
        "label": np.where(GOLD == "cat", "dog", "cat").repeat(2),
    }
)
WRONG = Annotations.from_table(TABLE)  # every label is wrong, so that gold and labels cannot be confused


def test_accuracy_is_measured_on_gold_and_fit_reads_the_labels() -> None:
    y = WRONG.align(ITEMS).with_gold(GOLD)
    search = GridSearchCV(MajorityVoteClassifier(epochs=20), {"learning_rate": [0.05]}, scoring="accuracy", cv=2)
    search.fit(X, y)
    assert search.best_score_ == 0  # the labels are wrong on all items
    assert search.best_estimator_.score(X, WRONG, items=ITEMS) == 1
    assert np.array_equal(np.asarray(y[3:5]), GOLD[3:5])


def test_a_metric_on_labels_without_gold_says_what_to_pass() -> None:
    y = WRONG.align(ITEMS)
    settings = {"param_grid": {"learning_rate": [0.05]}, "scoring": "accuracy", "cv": 2}
    says_what_to_pass = r"y=annotations\.align\(items\)\.with_gold\(gold\).*scoring=crowdfuse\.label_score"
    with pytest.raises(TypeError, match=says_what_to_pass):
        GridSearchCV(MajorityVoteClassifier(epochs=1), **settings, error_score="raise").fit(X, y)
    with pytest.warns(UserWarning, match=says_what_to_pass):  # scikit-learn's default turns errors into warnings
        GridSearchCV(MajorityVoteClassifier(epochs=1), **settings).fit(X, y)
    with pytest.raises(TypeError, match="balanced_accuracy_score compares predictions with true classes"):
        balanced_accuracy_score(y, GOLD)
    scores = cross_val_score(MajorityVoteClassifier(epochs=1), X, y, cv=2, error_score="raise")
    assert np.isfinite(scores).all()
    nested = GridSearchCV(MajorityVoteClassifier(epochs=1), {"learning_rate": [0.05]}, scoring=label_score, cv=2)
    assert np.isfinite(cross_val_score(nested, X, y, cv=2, error_score="raise")).all()


def test_gold_has_to_be_complete_and_in_order() -> None:
    with pytest.raises(TypeError, match=r"annotations.align\(items\).with_gold\(gold\)"):
        WRONG.with_gold(GOLD)
    with pytest.raises(ValueError, match="gold of row 1 is missing"):
        WRONG.align(ITEMS).with_gold([GOLD[0], None, *GOLD[2:]])


def test_a_report_takes_gold_as_a_data_frame() -> None:
    clf = MajorityVoteClassifier(epochs=2).fit(X, WRONG, items=ITEMS)
    gold = pd.DataFrame({"item": ITEMS[5:25], "label": GOLD[5:25]})
    by_frame = clf.report(X, WRONG, items=ITEMS, gold=gold, folds=0)
    array = np.array([None] * 5 + list(GOLD[5:25]) + [None] * 15, dtype=object)
    assert by_frame.to_json() == clf.report(X, WRONG, items=ITEMS, gold=array, folds=0).to_json()
    with pytest.raises(ValueError, match="none of the items in gold"):
        clf.report(X, WRONG, items=ITEMS, gold=gold.assign(item="x" + gold["item"]), folds=0)

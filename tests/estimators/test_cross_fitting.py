"""Cross-fitting where folds leave little to learn from, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from crowdfuse import (
    ConsensusTrainingClassifier,
    CrowdClassifier,
    MajorityVoteClassifier,
    MaxMIGClassifier,
    SingleAnnotatorClassifier,
    TrueLabelClassifier,
    load,
)
from crowdfuse.estimators.cross_fitting import OutOfFold, read_fold, write_fold


def crowd(n: int = 60, n_annotators: int = 3) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Return inputs, true classes and labels that are right in four of five cases."""
    generator = np.random.default_rng(1)
    X = generator.normal(size=(n, 2)).astype(np.float32)
    truth = (X[:, 0] > 0).astype(np.int64)
    right = generator.random((n, n_annotators)) < 0.8
    return X, truth, np.where(right, truth[:, None], 1 - truth[:, None])


# ---- methods that learn from a part of the labels --------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 7])
def test_single_annotator_is_cross_fitted_over_the_items_of_this_annotator(count: int) -> None:
    X, _, Y = crowd()
    Y[count:, 2] = -1
    clf = SingleAnnotatorClassifier(annotator=2, epochs=1).fit(X, Y)
    found = clf.consensus(X, Y, folds=2)
    assert found.n_folds == (0 if count == 1 else 2)
    assert any("no cross-fitting" in line for line in found.limitations) is (count == 1)


def test_true_label_without_gold_needs_no_folds() -> None:
    """Its predictions do not depend on the labels of annotators."""
    X, truth, Y = crowd()
    clf = TrueLabelClassifier(epochs=2).fit(X, truth)
    found = clf.consensus(X, Y, folds=5)
    assert found.n_folds is None
    assert not any("cross-fitting" in line for line in found.limitations)
    np.testing.assert_array_equal(found.class_probabilities, clf.consensus(X, Y, folds=0).class_probabilities)


def test_true_label_is_cross_fitted_over_the_items_with_gold() -> None:
    X, truth, Y = crowd()
    gold = np.where(np.arange(60) < 20, truth, np.nan)
    clf = TrueLabelClassifier(epochs=2).fit(X, Y, gold=gold)
    assert clf.consensus(X, Y, gold=gold, folds=3).n_folds == 3
    one = np.where(np.arange(60) < 1, truth, np.nan)
    clf = TrueLabelClassifier(epochs=1).fit(X, Y, gold=one)
    assert clf.consensus(X, Y, gold=one, folds=3).n_folds == 0


def test_a_fold_that_the_method_cannot_be_trained_for_is_not_used() -> None:
    """max-mig needs two annotators: without the only item of the second one it cannot learn."""
    X, _, Y = crowd(n_annotators=2)
    Y[1:, 1] = -1
    clf = MaxMIGClassifier(epochs=1).fit(X, Y)
    found = clf.consensus(X, Y, folds=5)
    assert found.n_folds == 5
    (line,) = [line for line in found.limitations if "ignores the model" in line and "cannot be trained" in line]
    assert "The consensus of 12 items" in line
    assert "by one annotator" in line


def test_the_reason_of_an_untrained_fold_is_stored(tmp_path: Path) -> None:
    stored = OutOfFold(np.full((2, 2), 0.5), None, 0, ("too few labels.",))
    write_fold(tmp_path / "fold.npz", stored, "this training")
    assert read_fold(tmp_path / "fold.npz", "another training") is None
    found = read_fold(tmp_path / "fold.npz", "this training")
    assert found is not None
    np.testing.assert_array_equal(found.class_probabilities, stored.class_probabilities)
    assert found.limitations == stored.limitations


# ---- progress --------------------------------------------------------------------------------------


def test_progress_has_one_line_per_fold_if_it_is_not_shown_in_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    X, _, Y = crowd()
    clf = MajorityVoteClassifier(epochs=10, verbose=1).fit(X, Y)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("training finished: majority-vote, 10 epochs, loss ")
    clf.consensus(X, Y, folds=3)
    lines = capsys.readouterr().err.splitlines()
    expected = [f"training {k} of 3 finished: majority-vote, fold {k} of 3, 10 epochs" for k in (1, 2, 3)]
    assert [line.split(", loss")[0] for line in lines] == expected
    assert [line.endswith(" left") for line in lines] == [True, True, False]
    clf.set_params(verbose=0).consensus(X, Y, folds=2)
    assert capsys.readouterr().err == ""


# ---- labels that show little -----------------------------------------------------------------------


def test_fewer_items_than_folds_make_every_item_a_fold() -> None:
    X, _, Y = crowd(3)
    found = MajorityVoteClassifier(epochs=1, classes=[0, 1]).fit(X, Y).consensus(X, Y, folds=5)
    assert found.n_folds == 3


def test_one_item_cannot_be_cross_fitted_and_the_result_says_so() -> None:
    X, _, Y = crowd(1)
    found = MajorityVoteClassifier(epochs=1, classes=[0, 1]).fit(X, Y).consensus(X, Y, folds=5)
    assert found.n_folds == 0
    assert any("only one item to learn from" in line for line in found.limitations)


# ---- gold that fit was called with ----------------------------------------------------------------


@pytest.mark.parametrize("kind", [ConsensusTrainingClassifier, MajorityVoteClassifier])
def test_the_consensus_uses_the_gold_of_fit(kind: type[CrowdClassifier], tmp_path: Path) -> None:
    X, truth, Y = crowd()
    gold = np.where(np.arange(60) < 20, truth, np.nan)
    clf = kind(epochs=2, random_state=0).fit(X, Y, gold=gold)
    found, expected = clf.consensus(X, Y, folds=2), clf.consensus(X, Y, gold=gold, folds=2)
    np.testing.assert_array_equal(found.class_probabilities, expected.class_probabilities)
    np.testing.assert_array_equal(found.consensus[:20], truth[:20])
    assert found.limitations == expected.limitations
    clf.save(tmp_path / "model")
    for other in (clf.consensus(X[::-1], Y[::-1], folds=2), load(tmp_path / "model").consensus(X, Y, folds=2)):
        assert other.gold_codes is None
        assert any("trained with gold labels" in sentence for sentence in other.limitations)

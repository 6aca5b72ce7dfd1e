"""Properties that hold for every estimator, and the properties of single ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from crowdfuse import (
    Annotations,
    FusionClassifier,
    MajorityVoteClassifier,
    MBEMClassifier,
    SingleAnnotatorClassifier,
    TraceRegClassifier,
    TrueLabelClassifier,
    TwoStageClassifier,
    WDNClassifier,
    load,
)
from crowdfuse.estimators.base import CrowdClassifier
from tests.estimators.estimator_list import ALL, quick

NAMES = np.array(["ant", "bee", "cat"], dtype=object)


@pytest.fixture(scope="module")
def crowd() -> tuple[NDArray[Any], NDArray[Any], Annotations]:
    """150 items in three classes; annotators right on 95 %, 60 % and 33 % of them; a quarter of the labels missing."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(150, 5))
    truth = X[:, :3].argmax(1)
    luck = generator.random((150, 3)) < [0.95, 0.6, 1 / 3]
    said = np.where(luck, truth[:, None], (truth[:, None] + generator.integers(1, 3, (150, 3))) % 3)
    labels = NAMES[said]
    labels[generator.random((150, 3)) < 0.25] = None
    labels[:2] = None
    return X, NAMES[truth], Annotations.from_matrix(labels, annotators=["good", "fair", "poor"])


def fitted(kind: type[CrowdClassifier], crowd: Any, **settings: Any) -> CrowdClassifier:
    X, truth, ann = crowd
    if kind is SingleAnnotatorClassifier:
        settings["annotator"] = "good"
    return quick(kind, **settings).fit(X, ann, **({"gold": truth} if kind is TrueLabelClassifier else {}))


@pytest.mark.parametrize("kind", ALL)
def test_learns_and_predicts_class_names(kind: type[CrowdClassifier], crowd: Any) -> None:
    X, truth, ann = crowd
    clf = fitted(kind, crowd)
    assert clf.classes_.tolist() == ["ant", "bee", "cat"]
    assert clf.annotators_.tolist() == ["good", "fair", "poor"]
    assert set(clf.predict(X)) <= set(NAMES)
    assert clf.score(X, truth) > 0.7
    np.testing.assert_allclose(clf.predict_proba(X).sum(1), 1)
    assert 0.4 < clf.score(X, ann) < 0.95  # how many of the labels it agrees with
    accuracy = clf.consensus(X, ann, folds=0).annotator_accuracy
    assert accuracy[:2].min() > accuracy[2]
    if kind is not TwoStageClassifier:  # two labels per item do not tell Dawid-Skene who is best
        assert accuracy[0] > accuracy[1]


@pytest.mark.parametrize("kind", ALL)
def test_prediction_does_not_depend_on_other_rows_or_their_order(kind: type[CrowdClassifier], crowd: Any) -> None:
    X = crowd[0]
    clf = fitted(kind, crowd)
    together = clf.predict_proba(X)
    alone = np.concatenate([clf.predict_proba(X[row : row + 1]) for row in range(20)])
    np.testing.assert_allclose(alone, together[:20], rtol=0, atol=1e-6)
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(clf.predict_proba(X[order]), together[order], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ALL)
def test_inspection_methods_return_the_documented_shapes(kind: type[CrowdClassifier], crowd: Any) -> None:
    X, _, ann = crowd
    clf = fitted(kind, crowd)
    weights = clf.annotator_weights(X)
    assert weights.shape == (150, 3)
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-6)
    fused = clf.fused_labels(X, ann)
    assert fused.shape == (150, 3)
    unlabelled = np.diff(ann.indptr) == 0
    assert unlabelled.any()
    assert np.isnan(fused[unlabelled]).all()
    given = clf.annotator_weights(X, ann)
    assert (given[np.asarray(ann) < 0] == 0).all()
    np.testing.assert_allclose(given.sum(1), (~np.isnan(fused).any(1)).astype(float), atol=1e-6)
    listed = clf.annotator_weights(X, ann, sparse=True)
    np.testing.assert_array_equal(listed.toarray(), given)
    if clf.confusion_given_ is None:
        with pytest.raises(TypeError, match="has no confusion matrices"):
            clf.confusion_matrices(X)
        return
    matrices = clf.confusion_matrices(X)
    assert matrices.shape == (150, 3, 3, 3)
    axis = 2 if clf.confusion_given_ == "said" else 3
    np.testing.assert_allclose(matrices.sum(axis), 1, atol=1e-5)
    pairs = clf.confusion_matrices(X, ann)
    np.testing.assert_allclose(pairs, matrices[ann.item, ann.annotator], atol=1e-6)


@pytest.mark.parametrize("kind", ALL)
def test_dense_and_sparse_inputs_give_the_same_predictions(kind: type[CrowdClassifier], crowd: Any) -> None:
    X, truth, ann = crowd
    X = np.where(np.abs(X) < 0.3, 0, X)
    dense = fitted(kind, (X, truth, ann), epochs=2)
    thin = fitted(kind, (sparse.csr_array(X), truth, ann), epochs=2)
    np.testing.assert_array_equal(dense.predict_proba(X), thin.predict_proba(sparse.csr_array(X)))
    np.testing.assert_allclose(dense.predict_proba(X)[10:13], dense.predict_proba(X[10:13]), atol=1e-6)


@pytest.mark.parametrize("kind", ALL)
def test_clone_and_set_params_work(kind: type[CrowdClassifier]) -> None:
    estimator = quick(kind, hidden=(3, 4), epochs=7)
    copy = clone(estimator)
    assert copy is not estimator
    assert copy.get_params() == estimator.get_params()
    assert copy.set_params(epochs=9).epochs == 9
    assert estimator.epochs == 7


@pytest.mark.parametrize("kind", ALL)
def test_a_loaded_model_predicts_the_same_bits(kind: type[CrowdClassifier], crowd: Any, tmp_path: Any) -> None:
    X, _, ann = crowd
    before = fitted(kind, crowd, epochs=2)
    before.save(tmp_path / "model")
    after = load(tmp_path / "model")
    assert type(after) is kind
    np.testing.assert_array_equal(after.predict_proba(X), before.predict_proba(X))
    np.testing.assert_array_equal(after.annotator_weights(X), before.annotator_weights(X))
    np.testing.assert_array_equal(after.fused_labels(X, ann), before.fused_labels(X, ann))
    assert after.history_ == before.history_
    for name in ("confusion_matrices_", "weights_"):
        np.testing.assert_array_equal(getattr(after, name, None), getattr(before, name, None))


# ---- rows and items --------------------------------------------------------------------------


def test_annotations_are_matched_to_rows_by_id_in_any_order(crowd: Any) -> None:
    X, truth, ann = crowd
    ids = np.array([f"img-{i}" for i in range(150)])
    table = {
        "item": ids[ann.item],
        "annotator": ann.annotators[ann.annotator],
        "label": ann.classes[ann.label],
    }
    shuffled = np.random.default_rng(1).permutation(ann.n_labels)
    named = Annotations.from_table({name: column[shuffled] for name, column in table.items()})
    order = np.random.default_rng(2).permutation(150)
    clf = quick(FusionClassifier).fit(X[order], named, items=ids[order])
    assert clf.score(X, truth) > 0.7
    fused = clf.fused_labels(X, named, items=ids)
    backwards = clf.fused_labels(X[::-1], named, items=ids[::-1])
    np.testing.assert_allclose(fused, backwards[::-1], atol=1e-6)


def test_without_items_only_integer_ids_are_matched_as_row_numbers() -> None:
    X = np.eye(4)
    table = {"item": [3, 1, 2], "annotator": ["a"] * 3, "label": ["x", "y", "x"]}
    clf = MajorityVoteClassifier(epochs=200, learning_rate=0.05).fit(X, Annotations.from_table(table))
    assert clf.predict(X)[1:].tolist() == ["y", "x", "x"]
    for items in ([3, 1, 4], [-1, 1, 2]):  # 4 is past the last row
        with pytest.raises(ValueError, match="items="):
            MajorityVoteClassifier().fit(X, Annotations.from_table(table | {"item": items}))
    with pytest.raises(ValueError, match=r"'p', 'q', 'r'.*items="):
        MajorityVoteClassifier().fit(X, Annotations.from_table(table | {"item": ["p", "q", "r"]}))


def test_labels_of_items_without_a_row_are_refused(crowd: Any) -> None:
    X, _, ann = crowd
    with pytest.raises(ValueError, match="not among the 100 rows"):
        quick(FusionClassifier).fit(X[:100], ann, items=np.arange(100))
    with pytest.raises(ValueError, match="X has 100 rows, but y has 150"):
        quick(FusionClassifier).fit(X[:100], ann)
    with pytest.raises(ValueError, match="items= must have one id for each of the 150 rows"):
        quick(FusionClassifier).fit(X, ann, items=["a", "b", "c"])


@pytest.fixture
def shuffled() -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """X, perfect labels, and ids that are row numbers in another order: the bait for a silent misalignment."""
    X = np.eye(6).repeat(8, 0)
    truth = np.arange(6).repeat(8)
    return X, truth, np.random.default_rng(0).permutation(48)


def test_arrays_are_matched_row_by_row_whatever_the_ids(shuffled: Any) -> None:
    X, truth, ids = shuffled
    Y = np.stack([truth, truth], axis=1)
    for y in (Y, truth):
        clf = quick(FusionClassifier, learning_rate=0.05).fit(X, y, items=ids)
        assert clf.score(X, truth) == 1
        assert clf.score(X, Y, items=ids) == 1
        assert (clf.fused_labels(X, y, items=ids).argmax(1) == truth).all()
    gold = quick(TrueLabelClassifier, learning_rate=0.05).fit(X, truth, items=ids)
    assert gold.score(X, truth) == 1
    chosen = quick(FusionClassifier, learning_rate=0.05).fit(X, Y, validation=(X, Y, ids))
    assert max(record["validation_accuracy"] for record in chosen.history_) == 1
    with pytest.raises(ValueError, match="items= cannot be used with gold"):
        clf.score(X, truth, items=ids)
    with pytest.raises(ValueError, match="items= cannot be used with gold"):
        quick(FusionClassifier).fit(X, Y, validation=(X, truth, ids))


def test_annotations_by_id_are_never_matched_by_row_order(shuffled: Any) -> None:
    X, truth, ids = shuffled
    named = Annotations.from_matrix(truth[:, None], items=ids)  # row i of the matrix is item ids[i]
    table = named.to_table()
    by_id = Annotations.from_table(table)
    clf = quick(MajorityVoteClassifier, learning_rate=0.05)
    assert clf.fit(X, named, items=ids).score(X, truth) == 1
    assert clf.fit(X, by_id, items=ids).score(X, truth) == 1
    back = np.argsort(ids)
    assert clf.fit(X[back], by_id).score(X, truth) == 1  # a table's integer ids are row numbers
    for ann in (named, by_id.select(ids), named.select(np.arange(48))):
        with pytest.raises(ValueError, match="items="):
            quick(MajorityVoteClassifier).fit(X, ann)
        with pytest.raises(TypeError, match="by id"):
            np.asarray(ann)


def test_a_table_as_y_is_refused_and_names_from_table(crowd: Any) -> None:
    X, truth, ann = crowd
    wide = pd.DataFrame(ann.to_matrix(), index=[f"i{n}" for n in range(150)], columns=ann.annotators)
    for table in (wide, wide.reset_index().melt("index")):
        with pytest.raises(ValueError, match=r"convert it with Annotations\.from_table"):
            quick(FusionClassifier).fit(X, table)
    made = Annotations.from_matrix(wide.sample(frac=1, random_state=0))
    assert made.annotators.tolist() == ["good", "fair", "poor"]
    clf = quick(FusionClassifier).fit(X, made, items=wide.index)
    assert clf.score(X, truth) == fitted(FusionClassifier, crowd).score(X, truth)


def test_ids_that_seem_to_count_from_1_get_a_warning() -> None:
    table = {"item": [1, 2], "annotator": ["a", "a"], "label": ["x", "y"]}
    with pytest.warns(UserWarning, match="if your ids count from 1"):
        MajorityVoteClassifier(epochs=1).fit(np.eye(3), Annotations.from_table(table))


def test_score_ignores_items_without_gold(crowd: Any) -> None:
    X, truth, _ = crowd
    clf = fitted(FusionClassifier, crowd)
    some = truth.copy()
    some[50:] = None
    assert clf.score(X, some) == pytest.approx(clf.score(X[:50], truth[:50]))
    assert clf.score(X[:2], ["zebra", "zebra"]) == 0
    with pytest.raises(ValueError, match="score cannot be computed"):
        clf.score(X[:2], [None, None])


def test_a_failed_fit_leaves_the_estimator_unchanged(crowd: Any, tmp_path: Any) -> None:
    X, _, ann = crowd
    fresh = quick(FusionClassifier, n_bases=0)
    with pytest.raises(ValueError, match="n_bases"):
        fresh.fit(X, ann)
    with pytest.raises(NotFittedError):
        fresh.predict(X)
    good = quick(FusionClassifier, epochs=3, checkpoint=tmp_path).fit(X, ann)
    before = good.predict_proba(X)
    with pytest.raises(ValueError, match="belongs to a training run with other"):
        good.fit(X + 1, ann)
    np.testing.assert_array_equal(good.predict_proba(X), before)


def test_standardization_uses_only_rows_that_are_trained_on(crowd: Any) -> None:
    X, _, ann = crowd
    far = np.concatenate([X, np.full((1, 5), 1e6)])
    with_far = Annotations.from_matrix(np.concatenate([ann.to_matrix(), [[None] * 3]]), annotators=ann.annotators)
    one = quick(MajorityVoteClassifier, epochs=2).fit(X, ann)
    two = quick(MajorityVoteClassifier, epochs=2).fit(far, with_far)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))


def test_numpy_integers_from_a_parameter_grid_are_accepted(crowd: Any) -> None:
    X, _, ann = crowd
    search = GridSearchCV(quick(FusionClassifier), {"epochs": np.arange(1, 3), "penalty": np.array([0.5])}, cv=2)
    assert search.fit(X, ann).best_params_["epochs"] in (1, 2)


def test_cross_validation_and_grid_search_over_annotations(crowd: Any) -> None:
    X, _, ann = crowd
    search = GridSearchCV(quick(FusionClassifier, epochs=5), {"penalty": [0.1, 1.0]}, cv=3)
    search.fit(X, ann)
    assert search.best_params_["penalty"] in (0.1, 1.0)
    assert (search.cv_results_["mean_test_score"] > 0.4).all()
    # by hand, with the rows that each fold must see
    scores = cross_val_score(quick(MajorityVoteClassifier), X, ann, cv=KFold(3, shuffle=True, random_state=0))
    for score, (train, test) in zip(scores, KFold(3, shuffle=True, random_state=0).split(X), strict=True):
        Y = ann.to_matrix()
        by_hand = quick(MajorityVoteClassifier).fit(X[train], Y[train])
        agree = (by_hand.predict(X[test])[:, None] == Y[test])[Y[test] != None]  # noqa: E711 (element by element)
        assert score == pytest.approx(agree.mean())


def test_pipeline(crowd: Any) -> None:
    X, truth, ann = crowd
    model = make_pipeline(StandardScaler(), quick(MajorityVoteClassifier, standardize=False)).fit(X * 1000, ann)
    assert model.score(X * 1000, truth) > 0.7


# ---- single estimators ----- -----------------------------------------------------------------


def test_fusion_gives_the_most_accurate_annotator_the_highest_weight(crowd: Any) -> None:
    X, truth, ann = crowd
    clf = fitted(FusionClassifier, crowd)
    assert clf.annotator_weights(X).mean(0).argmax() == 0
    labelled = np.diff(ann.indptr) > 0
    vote = np.nan_to_num(ann.vote_shares())[labelled].argmax(1)
    fused = clf.fused_labels(X, ann)[labelled].argmax(1)
    assert (NAMES[fused] == truth[labelled]).mean() > (NAMES[vote] == truth[labelled]).mean()


def test_ablations(crowd: Any) -> None:
    X, _, _ = crowd
    weights_only = fitted(FusionClassifier, crowd, n_bases=1)
    np.testing.assert_array_equal(weights_only.confusion_matrices(X), np.broadcast_to(np.eye(3), (150, 3, 3, 3)))
    confusions_only = fitted(FusionClassifier, crowd, weights="uniform")
    np.testing.assert_allclose(confusions_only.annotator_weights(X), 1 / 3, atol=1e-6)


def test_the_number_of_bases_is_at_most_k_factorial(crowd: Any) -> None:
    assert fitted(FusionClassifier, crowd, epochs=1, n_bases=500).n_bases_ == 6
    assert fitted(FusionClassifier, crowd, epochs=1, confusions="full").n_bases_ is None


def test_penalty_draws_the_matrices_to_the_identity(crowd: Any) -> None:
    X, _, _ = crowd
    means = [
        fitted(FusionClassifier, crowd, penalty=penalty).confusion_matrices(X).diagonal(axis1=2, axis2=3).mean()
        for penalty in (0.0, 1.0, 100.0)
    ]
    assert means[0] < means[1] < means[2]
    assert means[2] > 0.98


def test_training_on_one_perfect_annotator_equals_training_on_gold(crowd: Any) -> None:
    X, truth, _ = crowd
    Y = np.repeat(truth[:, None], 3, axis=1)
    best = quick(TrueLabelClassifier).fit(X, truth).score(X, truth)
    single = quick(SingleAnnotatorClassifier, annotator=2).fit(X, Y)
    assert single.score(X, truth) == best  # the same labels, the same loss, the same steps


@pytest.mark.parametrize("kind", [TraceRegClassifier, MBEMClassifier])
def test_global_confusions_have_one_matrix_per_annotator(kind: type[CrowdClassifier], crowd: Any) -> None:
    X, _, ann = crowd
    with pytest.raises(NotFittedError):
        _ = quick(kind).confusion_matrices_
    clf = fitted(kind, crowd)
    matrices = clf.confusion_matrices_
    assert matrices.shape == (3, 3, 3)
    right = matrices.diagonal(axis1=1, axis2=2).mean(1)
    assert right[0] > right[1] > right[2]
    # fused labels are more accurate than the vote
    labelled = np.diff(ann.indptr) > 0
    fused = clf.fused_labels(X, ann)[labelled].argmax(1)
    vote = np.nan_to_num(ann.vote_shares())[labelled].argmax(1)
    gold = X[labelled, :3].argmax(1)
    assert (fused == gold).mean() > (vote == gold).mean()


def test_wdn_has_one_weight_per_annotator(crowd: Any) -> None:
    X, _, ann = crowd
    with pytest.raises(NotFittedError):
        _ = WDNClassifier().weights_
    clf = fitted(WDNClassifier, crowd)
    assert clf.weights_.shape == (3,)
    np.testing.assert_allclose(clf.weights_.sum(), 1, atol=1e-6)
    stranger = Annotations.from_matrix(
        np.column_stack([ann.to_matrix(), np.full(150, None)]), annotators=["good", "fair", "poor", "silent"]
    )
    for kind in ("released", "softmax"):
        silent = quick(WDNClassifier, weights=kind).fit(X, stranger)
        assert np.isfinite(silent.weights_).all()
        assert silent.weights_[3] == 0
        weights = silent.annotator_weights(X)  # an annotator without labels gets the mean of the others
        np.testing.assert_allclose(weights[:, 3], weights[:, :3].mean(1), rtol=1e-5)


def test_single_annotator_must_be_one_of_them(crowd: Any) -> None:
    X, _, ann = crowd
    with pytest.raises(ValueError, match=r"'bad' is not one of the annotators \('good', 'fair', 'poor'\)"):
        SingleAnnotatorClassifier(annotator="bad").fit(X, ann)
    with pytest.raises(ValueError, match=r"choose one annotator with the argument annotator .*'good'"):
        SingleAnnotatorClassifier().fit(X, ann)


def test_gold_used_for_says_what_gold_was_used_for(crowd: Any) -> None:
    X, truth, ann = crowd
    with pytest.raises(ValueError, match="true-label trains on gold"):
        TrueLabelClassifier().fit(X, ann)
    assert fitted(TrueLabelClassifier, crowd).gold_used_for_ == "training"
    assert fitted(FusionClassifier, crowd, epochs=1).gold_used_for_ == "nothing"
    some = truth.copy()
    some[20:] = None
    both = FusionClassifier(epochs=1).fit(X, ann, gold=some, validation=(X[20:], truth[20:]))
    assert both.gold_used_for_ == "training and choosing the epoch"
    assert FusionClassifier(epochs=1).fit(X, ann, gold=some, validation=0.2).gold_used_for_ == "training"
    assert quick(TrueLabelClassifier).fit(X, ann, gold=some).score(X[:20], truth[:20]) > 0.9


def test_images_use_lenet_and_custom_backbones_are_not_changed() -> None:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 255, (40, 3, 28, 28), dtype=np.uint8)
    Y = generator.integers(0, 2, (40, 2))
    clf = FusionClassifier(epochs=1).fit(images, Y)
    assert type(clf.method_.trunk).__name__ == "LeNet"
    assert clf.predict_proba(images).shape == (40, 2)
    layer = nn.Linear(3 * 28 * 28, 6)
    before = layer.weight.detach().clone()
    FusionClassifier(epochs=1, backbone=nn.Sequential(nn.Flatten(), layer)).fit(images / 255, Y)
    assert torch.equal(layer.weight, before)


def test_classes_can_be_fixed(crowd: Any) -> None:
    X, _, ann = crowd
    clf = quick(FusionClassifier, epochs=1, classes=["cat", "bee", "ant", "dog"]).fit(X, ann)
    assert clf.predict_proba(X).shape == (150, 4)
    assert clf.classes_.tolist() == ["cat", "bee", "ant", "dog"]
    with pytest.raises(ValueError, match="is not one of the 2 classes"):
        quick(FusionClassifier, classes=["ant", "bee"]).fit(X, ann)


def test_a_dense_result_that_is_too_large_is_refused(crowd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _, _ = crowd
    clf = fitted(FusionClassifier, crowd, epochs=1)
    monkeypatch.setattr("crowdfuse.estimators.fitted_network.MAX_DENSE_BYTES", 1000)
    with pytest.raises(ValueError, match="sparse=True"):
        clf.annotator_weights(X)
    with pytest.raises(ValueError, match=r"confusion_matrices\(X, annotations\)"):
        clf.confusion_matrices(X)


@pytest.mark.parametrize(
    ("start", "message"), [(0.3, "above chance, which is 0.333 with 3 classes"), (1.0, "above 0 and below 1, got 1.0")]
)
def test_trace_reg_cannot_start_at_chance_nor_certain(crowd: Any, start: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted(TraceRegClassifier, crowd, start=start)


def test_unknown_shapes_and_classes_are_refused(crowd: Any) -> None:
    X, _, _ = crowd
    clf = fitted(FusionClassifier, crowd, epochs=1)
    with pytest.raises(ValueError, match="X has 4 features"):
        clf.predict(X[:, :4])
    with pytest.raises(ValueError, match="label 'dog' is not one of the 3 classes"):
        clf.score(X[:1], Annotations.from_matrix([["dog"]], annotators=["good"]))


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        ([[1.0], [np.nan]], [0, 1], "NaN at row 1, column 0"),
        ([[1.0], [np.inf]], [0, 1], "infinity.*at row 1, column 0"),
        ([[1.0], [2.0]], [0, 0], "at least two classes, but the labels have only one class, 0"),
        ([[1.0], [2.0]], [[-1, -1], [-1, -1]], "at least two classes"),
        ([[1.0], [2.0]], [0, 1, 0], "X has 2 rows, but y has 3"),
        ([1.0, 2.0], [0, 1], "one row per item"),
        ([["a"], ["b"]], [0, 1], "must hold numbers"),
    ],
)
def test_bad_input_is_refused_before_any_work(X: Any, y: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        FusionClassifier().fit(X, y)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"confusions": "none"}, "confusions must be one of"),
        ({"weights": "some"}, "weights must be one of"),
        ({"loss_scale": "big"}, "loss_scale must be one of"),
        ({"basis": "odd"}, "'odd'"),
        ({"penalty": -1.0}, "penalty must be a number of at least 0"),
        ({"n_bases": 0}, "n_bases must be a whole number of at least 1"),
        ({"n_bases": 2.5}, "n_bases must be a whole number"),
        ({"penalty": "1"}, "penalty must be a number"),
        ({"hidden": 64}, "hidden must list the width of each hidden layer"),
        ({"hidden": (True,)}, "hidden: widths .* got True"),
        ({"annotator_hidden": (8, 0)}, "annotator_hidden: widths"),
    ],
)
def test_bad_settings_of_fusion_are_refused(crowd: Any, setting: dict[str, Any], said: str) -> None:
    X, _, ann = crowd
    with pytest.raises(ValueError, match=said):
        FusionClassifier(**setting).fit(X, ann)


@pytest.mark.parametrize(
    ("kind", "setting", "said"),
    [
        (TraceRegClassifier, {"trace_weight": -0.1}, "trace_weight must be a number of at least 0"),
        (TraceRegClassifier, {"trace_weight": "0.1"}, "trace_weight must be a number"),
        (MBEMClassifier, {"rounds": 0}, "rounds must be a whole number of at least 1"),
        (MBEMClassifier, {"rounds": 1.5}, "rounds must be a whole number"),
        (MBEMClassifier, {"rounds": 3, "epochs": 2}, "rounds=3 needs at least 3 epochs, got epochs=2"),
        (MBEMClassifier, {"chosen": "best"}, "chosen must be one of epoch, round, got 'best'"),
        (WDNClassifier, {"weights": "learned"}, "weights must be one of released, softmax, got 'learned'"),
        (WDNClassifier, {"weight_epochs": 0}, "weight_epochs must be a whole number of at least 1"),
        (WDNClassifier, {"loss_scale": "big"}, "loss_scale must be one of"),
    ],
)
def test_bad_settings_of_the_others_are_refused(
    kind: type[CrowdClassifier], setting: dict[str, Any], said: str, crowd: Any
) -> None:
    X, _, ann = crowd
    with pytest.raises(ValueError, match=said):
        kind(**setting).fit(X, ann)


@pytest.mark.parametrize("kind", ALL)
def test_the_papers_settings_are_settings(kind: type[CrowdClassifier], crowd: Any) -> None:
    assert fitted(kind, crowd, epochs=2, **kind.paper_settings).get_params().items() >= kind.paper_settings.items()

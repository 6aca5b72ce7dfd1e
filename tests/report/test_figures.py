"""The figures of a report, compared with plain loops and on crowds whose answer is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from crowdfuse import (
    Annotations,
    FusionClassifier,
    MajorityVoteClassifier,
    TraceRegClassifier,
    WDNClassifier,
    consensus,
)
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.labels.intervals import wilson_interval
from crowdfuse.quality.label_weights import mean_relative_weights
from crowdfuse.report.annotator_details import detail_facts, sample_labels
from crowdfuse.report.annotator_facts import annotator_facts, expected_items_per_class
from crowdfuse.report.gold_facts import (
    Evaluation,
    GoldSet,
    abstention_facts,
    accuracy_facts,
    calibration_facts,
    evaluate_consensus,
    evaluate_model,
    operating_point,
)
from crowdfuse.report.item_facts import (
    ambiguous_rows,
    class_confusion_facts,
    disputed_rows,
    mislabelled_rows,
    suspicious_facts,
)
from crowdfuse.report.item_map import MAP_COLUMNS, map_facts, map_items
from crowdfuse.report.report_data import Answers, ReportData, add_model, report_data_of

N, K = 240, 3


def crowd(seed: int = 0) -> tuple[Any, Any, Any]:
    """Return X, truth, labels: annotator 0 is good, 1 fails where X[:, 0] is high, 2 labels class 2 as class 0."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(N, 4)).astype(np.float32)
    X[:, 0] *= 4  # the first principal component of the map
    truth = generator.integers(0, K, N)
    X[np.arange(N), 1 + truth] += 3
    Y = np.stack([truth, truth, truth, truth], 1)
    Y[:, 1] = np.where(X[:, 0] > 0, (truth + generator.integers(1, K, N)) % K, truth)
    Y[:, 2] = np.where(truth == 2, 0, truth)
    Y[generator.random((N, 4)) < 0.25] = -1
    return X, truth, Y


@pytest.fixture(scope="module", params=[FusionClassifier, TraceRegClassifier, WDNClassifier, MajorityVoteClassifier])
def fitted(request: pytest.FixtureRequest) -> tuple[CrowdClassifier, Any, Any]:
    X, _, Y = crowd()
    return request.param(epochs=6, batch_size=32).fit(X, Y), X, Y


@pytest.fixture(scope="module")
def data(fitted: tuple[CrowdClassifier, Any, Any]) -> ReportData:
    return data_of(*fitted)


def data_of(classifier: CrowdClassifier, X: Any, Y: Any) -> ReportData:
    return add_model(report_data_of(classifier.consensus(X, Y, folds=0)), classifier, classifier._inputs(X))


@pytest.fixture(scope="module")
def of_labels() -> ReportData:
    return report_data_of(consensus(Annotations.from_matrix(crowd()[2])))


# ---- shares ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("right", "total"), [(0, 7), (3, 7), (7, 7), (950, 1000)])
def test_wilson_interval_equals_scipy(right: int, total: int) -> None:
    expected = binomtest(right, total).proportion_ci(method="wilson")
    np.testing.assert_allclose(wilson_interval(right, total), [expected.low, expected.high], atol=1e-12)
    assert [float(end) for end in wilson_interval(0, 0)] == pytest.approx([0, 1])


def test_report_data_equal_the_results_of_the_classifier(
    fitted: tuple[CrowdClassifier, Any, Any], data: ReportData
) -> None:
    classifier, X, Y = fitted
    probabilities, fused = classifier.predict_proba(X), classifier.fused_labels(X, Y)
    np.testing.assert_array_equal(data.predictions.codes, probabilities.argmax(1))
    np.testing.assert_allclose(data.predictions.confidence, probabilities.max(1), rtol=1e-6)
    known = ~np.isnan(fused).any(1)
    assert data.fused is not None
    np.testing.assert_array_equal(data.fused.codes[known], fused[known].argmax(1))
    np.testing.assert_allclose(data.fused.confidence[known], fused[known].max(1), rtol=1e-6)
    assert (data.fused.codes[~known] == -1).all()
    assert data.weights is not None
    np.testing.assert_allclose(data.weights, classifier.annotator_weights(X, Y, sparse=True).data, rtol=1e-6)


# ---- annotators --------------------------------------------------------------------------------


def test_annotator_table_equals_plain_counts(data: ReportData) -> None:
    _, truth, Y = crowd()
    gold = np.where(np.arange(N) < 100, truth, -1)
    facts = annotator_facts(data, gold)
    assert facts["n_annotators"] == 4
    assert [row["accuracy"]["high"] for row in facts["rows"]] == sorted(
        row["accuracy"]["high"] for row in facts["rows"]
    )
    assert [row["annotator"] for row in facts["rows"]] == [
        str(name) for name in data.consensus.annotator_table()["annotator"].to_pylist()
    ]
    for row in facts["rows"]:
        said = Y[:, row["position"]]
        there = said >= 0
        assert row["n_labels"] == there.sum()
        assert row["accuracy_on_gold"]["value"] == pytest.approx((said == truth)[:100][there[:100]].mean())
        assert row["accuracy"]["value"] == data.consensus.annotator_accuracy[row["position"]]
        interval = data.consensus.annotator_accuracy_interval[row["position"]]
        assert [row["accuracy"]["low"], row["accuracy"]["high"]] == interval.tolist()
        assert data.weights is not None
        mean_weight = mean_relative_weights(data.weights, data.ann)
        assert row["mean_weight"] == (None if mean_weight is None else mean_weight[row["position"]])


def test_expected_items_per_class_equal_a_loop(of_labels: ReportData) -> None:
    ann, soft = of_labels.ann, of_labels.consensus.class_probabilities
    expected = np.zeros((4, K))
    for n, r in zip(ann.item, ann.annotator, strict=True):
        expected[r] += soft[n]
    np.testing.assert_allclose(expected_items_per_class(of_labels, np.arange(4)), expected, rtol=1e-5)
    np.testing.assert_allclose(expected_items_per_class(of_labels, np.array([2])), expected[2:3], rtol=1e-5)


def test_shares_of_classes_are_the_diagonal_of_the_confusion_matrix(data: ReportData) -> None:
    matrices = data.consensus.confusion_matrices
    assert matrices is not None
    rows = annotator_facts(data, np.full(N, -1))["rows"]
    assert any(row["weakest"] for row in rows)
    for row in rows:
        for recall in filter(None, (row["strongest"], row["weakest"])):
            k = int(recall["class"])
            assert recall["share"] == matrices[row["position"], k, k]


def test_shares_of_classes_without_confusion_matrices_are_counted(of_labels: ReportData) -> None:
    data = replace(of_labels, consensus=replace(of_labels.consensus, confusion_matrices=None))
    ann, soft = data.ann, data.consensus.class_probabilities
    (weakest,) = (row["weakest"] for row in annotator_facts(data, np.full(N, -1))["rows"] if row["position"] == 2)
    mine = ann.annotator == 2
    right = soft[ann.item[mine & (ann.label == 2)], 2].sum()
    assert weakest["class"] == "2"
    assert weakest["share"] == pytest.approx(right / soft[ann.item[mine], 2].sum(), rel=1e-5)


def test_weakest_class_is_found(data: ReportData) -> None:
    row = next(row for row in annotator_facts(data, np.full(N, -1))["rows"] if row["position"] == 2)
    assert row["weakest"]["class"] == "2"
    assert row["weakest"]["share"] < 0.3
    assert row["strongest"]["share"] > 0.8


def test_weakest_class_needs_enough_labels() -> None:
    """Six labels, of which one of class 1 is wrong: chance may decide which class looks weaker."""
    truth = np.array([0, 0, 0, 1, 1, 1] * 10)
    Y = np.stack([truth, truth, truth, np.full(60, -1)], 1)
    Y[:6, 3] = [0, 0, 0, 1, 1, 0]
    rows = annotator_facts(report_data_of(consensus(Annotations.from_matrix(Y))), np.full(60, -1))["rows"]
    assert [(row["strongest"], row["weakest"]) for row in rows] == [(None, None)] * 4


def test_weakest_class_is_clearly_weaker_than_the_strongest(data: ReportData) -> None:
    matrices = data.consensus.confusion_matrices
    assert matrices is not None
    for row in annotator_facts(data, np.full(N, -1))["rows"]:
        if row["weakest"]:
            n_items = expected_items_per_class(data, np.array([row["position"]]))[0]
            low, high = wilson_interval(np.diagonal(matrices[row["position"]]) * n_items, n_items)
            assert high[int(row["weakest"]["class"])] < low[int(row["strongest"]["class"])]


def test_mean_weight_leaves_out_items_with_one_label() -> None:
    """The only label of an item has all the weight, whoever gave it."""
    ann = Annotations.from_matrix([[0, 0], [0, -1], [0, -1], [-1, 1]])
    weights = np.array([0.25, 0.75, 1, 1, 1], np.float32)
    assert mean_relative_weights(weights, ann) == pytest.approx([0.5, 1.5])
    alone = Annotations.from_matrix([[0, 0, -1], [-1, -1, 1]])
    mean = mean_relative_weights(np.array([0.25, 0.75, 1], np.float32), alone)
    assert mean is not None
    assert np.isnan(mean[2])


@pytest.mark.parametrize("measure", ["agreement", "weight"])
def test_map_shows_where_an_annotator_is_weak(measure: str) -> None:
    """Annotator 1 fails where the first feature, which is the map's main direction, is high."""
    X, _, Y = crowd()
    clf = MajorityVoteClassifier(backbone="identity", standardize=False, epochs=30, batch_size=32).fit(X, Y)
    data = data_of(clf, X, Y)
    if measure == "weight":
        trusted = np.where((data.ann.annotator == 1) & (X[data.ann.item, 0] > 0), 0.1, 0.9)
        total = np.bincount(data.ann.item, trusted)[data.ann.item]
        data = replace(data, weights=(trusted / total).astype(np.float32), weights_vary=True)
    where = map_items(data, np.unique(data.ann.item))
    assert where is not None
    facts = map_facts(data, where)
    assert facts is not None
    assert sum(facts["counts"]) == len(where.rows) == (data.labels_per_item > 0).sum()
    detail = detail_facts(data, sample_labels(data, np.arange(4)), where)[1]
    assert (detail["annotator"], detail["map"]["measure"]) == ("1", measure)
    column = where.cells(where.rows) % MAP_COLUMNS
    side = np.sign(np.corrcoef(column, X[where.rows, 0])[0, 1])
    value: dict[bool, list[float]] = {True: [], False: []}
    for cell in detail["map"]["cells"]:
        middle = (cell["x"] + 0.5) / MAP_COLUMNS - 0.5
        if abs(middle) > 0.1:
            value[bool(middle * side > 0)] += [cell["value"]] * cell["n_items"]
    assert np.mean(value[True]) < -0.3
    assert np.mean(value[False]) >= (0.3 if measure == "agreement" else 0)


def test_without_inputs_there_is_no_map(of_labels: ReportData) -> None:
    assert map_items(of_labels, np.arange(3)) is None
    assert of_labels.relative_weights() is None


def test_annotator_who_is_always_right_has_no_weakest_class() -> None:
    generator = np.random.default_rng(0)
    truth = generator.integers(0, K, N)
    Y = np.stack([truth, truth, truth, np.where(truth == 1, 0, truth)], 1)
    rows = annotator_facts(report_data_of(consensus(Annotations.from_matrix(Y))), np.full(N, -1))["rows"]
    found = {row["annotator"]: (row["strongest"], row["weakest"]) for row in rows}
    assert found["0"] == (None, None)
    assert found["3"][1]["class"] == "1"


# ---- items and labels --------------------------------------------------------------------------


def test_ambiguous_and_mislabelled_items_are_told_apart() -> None:
    """Four good annotators, two bad ones. The good split on item 0; on item 1 the bad are as many as the good."""
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 2, 400)
    right = generator.random((400, 6)) < [0.85, 0.85, 0.85, 0.85, 0.5, 0.5]
    Y = np.where(right, truth[:, None], 1 - truth[:, None])
    Y[0] = [0, 0, 1, 1, -1, -1]
    Y[1] = [1, 1, -1, -1, 0, 0]
    data = report_data_of(consensus(Annotations.from_matrix(Y)))
    assert 0 in ambiguous_rows(data)
    assert 1 in mislabelled_rows(data)
    assert not set(ambiguous_rows(data)) & set(mislabelled_rows(data))
    split = [n for n in range(400) if len(set(Y[n][Y[n] >= 0])) > 1]
    assert sorted(disputed_rows(data)) == split
    sure = data.consensus.confidence[disputed_rows(data)]
    assert (np.diff(sure) >= 0).all()


def test_suspicious_labels_equal_those_of_the_consensus(data: ReportData) -> None:
    expected = [x for x in data.consensus.suspicious_labels().to_pylist() if x["label"] != x["consensus"]][:10]
    facts = suspicious_facts(data, 10)
    assert [(row["row"], row["annotator"]) for row in facts["rows"]] == [
        (row["item"], str(row["annotator"])) for row in expected
    ]


def test_class_confusion_equals_a_loop(of_labels: ReportData) -> None:
    ann, codes = of_labels.ann, of_labels.consensus.consensus_codes
    counts = np.zeros((K, K))
    for n, y in zip(ann.item, ann.label, strict=True):
        counts[codes[n], y] += 1
    facts = class_confusion_facts(of_labels)
    np.testing.assert_allclose(facts["matrix"], counts / counts.sum(1, keepdims=True))
    assert (facts["pairs"][0]["consensus"], facts["pairs"][0]["said"]) == ("2", "0")
    assert facts["pairs"][0]["n_labels"] == counts[2, 0]


def test_wrong_labels_are_counted_in_one_way(of_labels: ReportData) -> None:
    """Labels that differ from the consensus, whether counted in the CSV, in the lists or by pairs of classes."""
    rows = of_labels.consensus.suspicious_labels().to_pylist()
    expected = sum(row["label"] != row["consensus"] for row in rows)
    assert suspicious_facts(of_labels, 10)["total"] == expected
    confusion = class_confusion_facts(of_labels)
    assert confusion["n_pairs"] == len(confusion["pairs"])
    assert sum(pair["n_labels"] for pair in confusion["pairs"]) == expected
    assert f"of which {expected} differ from the consensus" in repr(of_labels.consensus)


# ---- gold --------------------------------------------------------------------------------------


def data_with(predicted: Any, sure: Any) -> ReportData:
    """Return data with these predictions of two classes; each item has the prediction as its only label."""
    said, sure = np.array(predicted), np.array(sure, float)
    probabilities = np.where(said[:, None] == np.arange(2), sure[:, None], 1 - sure[:, None])
    return report_data_of(consensus(Annotations.from_matrix(said[:, None]), probabilities))


def test_accuracy_is_separate_for_gold_used_in_training() -> None:
    data = data_with([0, 1, 1, 0, 1, 0], [0.9] * 6)
    seen = GoldSet("gold", np.array([0, 1]), np.array([0, 1]), "trained on", True, False)
    fresh = GoldSet("test", np.array([2, 3, 4]), np.array([1, 1, 1]), "kept out", False, False)
    facts = accuracy_facts(data, [seen, fresh])
    assert [known["predicted"]["value"] for known in facts] == [1.0, pytest.approx(2 / 3)]
    found = evaluate_consensus(data, [seen, fresh])
    assert (found.rows.tolist(), found.codes.tolist()) == ([2, 3, 4], [1, 1, 1])
    assert (found.evaluated_on, found.is_optimistic) == ("test (kept out)", False)
    assert evaluate_model(data, [seen, fresh]).rows.tolist() == [2, 3, 4]
    only_seen = evaluate_model(data, [seen])
    assert (only_seen.rows.tolist(), only_seen.is_optimistic) == ([0, 1], True)
    assert evaluate_model(data, []).evaluated_on == ""


def cross_fitted_data(n_folds: int) -> ReportData:
    """Return data of six items whose final classifier is always right, and whose out-of-fold predictions never."""
    Y, truth = np.array([0, 1, 0, 1, 0, 1])[:, None].repeat(3, 1), np.eye(2)[[0, 1, 0, 1, 0, 1]]
    wrong = 0.7 - 0.4 * truth
    return report_data_of(consensus(Annotations.from_matrix(Y), wrong, predicted=0.1 + 0.8 * truth, n_folds=n_folds))


def test_items_of_the_training_are_evaluated_out_of_fold() -> None:
    trained = GoldSet("gold", np.array([0, 1, 2]), np.array([0, 1, 0]), "trained on", False, True)
    fresh = GoldSet("test", np.array([3, 4]), np.array([1, 0]), "kept out", False, False)
    data = cross_fitted_data(n_folds=5)
    seen, unseen = accuracy_facts(data, [trained, fresh])
    assert (seen["predicted"]["value"], seen["predicted"]["is_out_of_fold"]) == (0, True)
    assert (unseen["predicted"]["value"], unseen["predicted"]["is_out_of_fold"]) == (1, False)
    found = evaluate_model(data, [trained, fresh])
    assert found.rows.tolist() == [0, 1, 2, 3, 4]
    assert (found.answers.codes[found.rows] == found.codes).tolist() == [False] * 3 + [True] * 2
    np.testing.assert_allclose(found.answers.confidence[found.rows], [0.7] * 3 + [0.9] * 2)
    assert not found.is_optimistic
    assert "classifier trained without it" in found.evaluated_on


def test_figures_of_training_items_are_optimistic_without_folds() -> None:
    trained = GoldSet("gold", np.array([0, 1, 2]), np.array([0, 1, 0]), "trained on", False, True)
    data = cross_fitted_data(n_folds=0)
    (known,) = accuracy_facts(data, [trained])
    assert (known["predicted"]["value"], known["predicted"]["is_optimistic"]) == (1, True)
    assert not known["consensus"]["is_optimistic"]
    fresh = replace(trained, rows=np.array([4]), codes=np.array([0]), is_trained_on=False)
    assert evaluate_model(data, [trained, fresh]).rows.tolist() == [4]


def test_too_high_confidence_is_found_by_a_test_with_its_level() -> None:
    generator = np.random.default_rng(0)
    confidence = generator.uniform(0.5, 1, (500, 300))
    is_right = generator.random(confidence.shape) < confidence
    codes, rows = np.zeros(300, np.int64), np.arange(300)

    def is_overconfident(own: Any, right: Any) -> bool:
        facts = calibration_facts(Evaluation(Answers(codes, own), rows, np.where(right, 0, 1)))
        assert facts is not None
        return bool(facts["is_overconfident"])

    alarms = [is_overconfident(own, right) for own, right in zip(confidence, is_right, strict=True)]
    assert np.mean(alarms) <= 0.01
    assert is_overconfident((confidence[0] + 1) / 2, is_right[0])
    assert not is_overconfident(confidence[0] / 2, is_right[0])


def test_operating_point_is_the_highest_threshold_with_enough_sensitivity() -> None:
    generator = np.random.default_rng(3)
    truth = generator.integers(0, 2, 200)
    score = np.clip(0.5 + 0.2 * (2 * truth - 1) + generator.normal(0, 0.25, 200), 0.01, 0.99)
    data = data_with((score > 0.5).astype(int), np.where(score > 0.5, score, 1 - score))
    for wanted in (0.8, 0.95, 1.0):
        evaluation = Evaluation(data.predictions, np.arange(200), truth)
        point = operating_point(data, evaluation, positive=1, sensitivity=wanted)
        assert point is not None
        good = [t for t in score if (score[truth == 1] >= t - 1e-12).mean() >= wanted - 1e-12]
        assert point["threshold"] == pytest.approx(max(good))
        assert point["sensitivity"]["value"] == pytest.approx((score[truth == 1] >= max(good) - 1e-12).mean())
        assert point["specificity"]["value"] == pytest.approx((score[truth == 0] < max(good) - 1e-12).mean())
        assert point["sensitivity"]["low"] < point["sensitivity"]["value"]
    only = Evaluation(data.predictions, np.flatnonzero(truth), truth[truth == 1])
    assert operating_point(data, only, positive=1, sensitivity=0.9) is None


def test_abstention_keeps_the_most_confident_items() -> None:
    generator = np.random.default_rng(5)
    truth, sure = generator.integers(0, 2, 100), generator.uniform(0.5, 1, 100)
    predicted = np.where(generator.random(100) < sure, truth, 1 - truth)
    facts = abstention_facts(Evaluation(Answers(predicted, sure), np.arange(100), truth))
    assert facts is not None
    for point in facts["points"]:
        kept = np.argsort(-sure)[: round(100 * (1 - point["abstained"]))]
        assert point["value"] == pytest.approx((predicted == truth)[kept].mean())
        assert point["n"] == len(kept)
    assert facts["points"][0]["abstained"] == 0
    assert abstention_facts(Evaluation(Answers(predicted, sure), np.arange(10), truth[:10])) is None

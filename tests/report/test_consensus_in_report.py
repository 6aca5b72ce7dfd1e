"""The report of a classifier shows the figures of one consensus, and explains where vote or prediction differ."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdfuse
from crowdfuse import Annotations, Consensus, FusionClassifier, MajorityVoteClassifier
from crowdfuse.quality.consensus_file import save_consensus
from crowdfuse.quality.findings import Finding
from crowdfuse.report.item_explanation import explain_item, explain_weights, share_right
from crowdfuse.report.item_facts import disputed_rows
from crowdfuse.report.report_data import report_data_of
from tests.report.crowd import HOSTILE_CLASSES, assert_equals_consensus
from tests.text_crowd import make_labels, make_texts


def crowd(n: int = 120) -> tuple[Any, Annotations]:
    """Return inputs and labels of three annotators: two of them say dog for half of the cats."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n, 2))
    truth = (X[:, 0] > 0).astype(int)
    biased = np.where((truth == 0) & (X[:, 1] > 0), 1, truth)
    Y = np.stack([np.where(generator.random(n) < 0.95, y, 1 - y) for y in (truth, biased, biased)], 1)
    return X, Annotations.from_matrix(np.array(["cat", "dog"])[Y], annotators=["ada", "bob", "cy"])


@pytest.fixture(scope="module")
def fitted() -> tuple[FusionClassifier, Any, Annotations, Consensus]:
    X, ann = crowd()
    clf = FusionClassifier(epochs=10, batch_size=32).fit(X, ann)
    return clf, X, ann, clf.consensus(X, ann, folds=2)


def made(labels: Sequence[Sequence[str | None]], consensus: list[str], predicted: list[str] | None = None) -> Consensus:
    """Return a consensus of these labels with 90 % for the given classes, and 80 % for the given predictions."""
    ann = Annotations.from_matrix(np.array(labels, object), classes=["cat", "dog", "owl"])
    codes = np.array([ann.classes.tolist().index(name) for name in consensus])
    soft = np.where(np.arange(3) == codes[:, None], 0.9, 0.05).astype(np.float32)
    shown = None
    if predicted is not None:
        shown = np.where(np.array(["cat", "dog", "owl"]) == np.array(predicted)[:, None], 0.8, 0.1).astype(np.float32)
    return Consensus(
        method="consensus",
        items=ann.items,
        classes=ann.classes,
        annotators=ann.annotators,
        class_probabilities=soft,
        consensus_codes=codes,
        annotator_accuracy=np.full(ann.n_annotators, 0.5),
        annotator_accuracy_interval=np.tile([0.4, 0.6], (ann.n_annotators, 1)),
        labels_per_item=np.diff(ann.indptr),
        labels_per_annotator=np.bincount(ann.annotator, minlength=ann.n_annotators),
        parameters={"sharpness": np.array(1.0)},
        annotations=ann,
        label_confidence=soft[ann.item, ann.label].astype(np.float64),
        predicted_probabilities=shown,
    )


# ---- one consensus -----------------------------------------------------------------------------


def test_json_equals_the_consensus_to_the_digit(fitted: Any) -> None:
    clf, X, ann, consensus = fitted
    facts = json.loads(clf.report(X, ann, consensus=consensus, n_items=120).to_json())
    assert assert_equals_consensus(facts, consensus)
    assert json.loads(clf.report(X, ann, folds=2, n_items=120).to_json()) == facts


def test_order_of_annotators_may_differ_from_that_of_the_model(fitted: Any) -> None:
    clf, X, ann, _ = fitted
    other = Annotations.from_matrix(ann.to_matrix()[:, ::-1], annotators=["cy", "bob", "ada"])
    facts, expected = (clf.report(X, labels, folds=0).facts for labels in (other, ann))
    for name in ("mean_weight", "n_labels"):
        assert {row["annotator"]: row[name] for row in facts["annotators"]["rows"]} == {
            row["annotator"]: pytest.approx(row[name], rel=1e-5) for row in expected["annotators"]["rows"]
        }


def test_consensus_of_other_items_labels_or_classes_is_refused(fitted: Any) -> None:
    clf, X, ann, consensus = fitted
    changed = ann.to_matrix()
    changed[0, 0] = "cat" if changed[0, 0] == "dog" else "dog"
    probabilities = clf.predict_proba(X)
    for other, complaint in (
        (crowdfuse.consensus(ann), "no predictions of a classifier"),
        (clf.consensus(X[:100], ann[:100], folds=0), "the items"),
        (clf.consensus(X, Annotations.from_matrix(changed, annotators=ann.annotators), folds=0), "other labels"),
        (crowdfuse.consensus(ann, probabilities[:, ::-1], classes=["dog", "cat"]), "the classes 'dog', 'cat'"),
    ):
        with pytest.raises(ValueError, match=complaint):
            clf.report(X, ann, consensus=other)
    clf.report(X, ann, consensus=consensus)


def test_findings_and_limitations_are_shown(fitted: Any) -> None:
    clf, X, ann, consensus = fitted
    finding = Finding("shared_mistakes", "bob and cy <share> mistakes.", 0.001, 120)
    report = clf.report(X, ann, consensus=replace(consensus, findings=(finding,), limitations=("Too few <labels>.",)))
    assert report.facts["warnings"] == [finding.message]
    assert report.facts["limitations"] == ["Too few <labels>."]
    for text in (report.to_html(), report.to_markdown()):
        for title, line in (("Warnings", finding.message), ("Limitations", "Too few <labels>.")):
            after = text.partition(title)[2]
            assert html.escape(line) in after[:300]
    assert "Warnings" not in clf.report(X, ann, consensus=replace(consensus, findings=())).to_markdown()


def test_python_has_the_mean_weights_of_the_table_of_annotators(fitted: Any, tmp_path: Path) -> None:
    clf, X, ann, consensus = fitted
    save_consensus(consensus, tmp_path / "posterior.safetensors")
    stored = crowdfuse.load_consensus(tmp_path).annotator_table()
    assert stored.equals(consensus.annotator_table())
    rows = clf.report(X, ann, consensus=consensus).facts["annotators"]["rows"]
    mean_weights = dict(zip(stored["annotator"].to_pylist(), stored["mean_weight"].to_pylist(), strict=True))
    assert mean_weights == pytest.approx({row["annotator"]: row["mean_weight"] for row in rows}, abs=1e-6)


def test_an_item_is_disputed_if_a_label_or_the_prediction_differs_from_the_consensus() -> None:
    labels: list[list[str | None]] = [["cat", "cat"], ["cat", "dog"], ["dog", None], ["cat", None], [None, None]]
    consensus = made(labels, ["cat"] * 5, ["cat", "cat", "cat", "dog", "dog"])
    assert consensus.is_disputed.tolist() == [False, True, True, True, False]
    assert disputed_rows(report_data_of(consensus)).tolist() == [1, 2, 3]
    assert replace(consensus, predicted_probabilities=None).is_disputed.tolist() == [False, True, True, False, False]


def test_unknown_accuracy_is_a_dash_with_its_reason() -> None:
    """One label per item that the inputs do not explain: nothing shows how accurate the annotators are."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(60, 2))
    Y = np.full((60, 2), -1)
    Y[np.arange(60), generator.integers(0, 2, 60)] = generator.integers(0, 2, 60)
    clf = MajorityVoteClassifier(epochs=1).fit(X, Y)
    consensus = crowdfuse.consensus(Annotations.from_matrix(Y), np.full((60, 2), 0.5))
    assert np.isnan(consensus.annotator_accuracy).all()
    report = clf.report(X, Y, consensus=consensus)
    for row in report.facts["annotators"]["rows"]:
        assert row["accuracy"] == {"value": None, "low": None, "high": None}
    page, text = report.to_html(), report.to_markdown()
    assert '<td class="r" data-v="">—</td>' in page
    for rendered in (page, text):
        assert "The accuracy of the annotators cannot be estimated" in rendered
        assert "nan" not in rendered


# ---- explanations ------------------------------------------------------------------------------


def test_share_right_is_the_mean_of_the_posterior_over_labels_of_a_class(fitted: Any) -> None:
    *_, consensus = fitted
    ann = consensus.annotations
    for annotators in ([0], [1, 2]):
        for k in (0, 1):
            values = [
                consensus.class_probabilities[n, k]
                for n, r, y in zip(ann.item, ann.annotator, ann.label, strict=True)
                if r in annotators and y == k
            ]
            assert share_right(consensus, np.array(annotators), k) == pytest.approx(np.mean(values), rel=1e-6)
    assert np.isnan(share_right(consensus, np.zeros(0, int), 0))


def test_no_explanation_if_vote_prediction_and_consensus_agree() -> None:
    labels: list[list[str | None]] = [["cat", "cat", "dog"], ["dog", "owl", None], [None, None, None]]
    assert [explain_item(made(labels, ["cat", "owl", "cat"]), row) for row in range(3)] == [None] * 3
    agreeing = made(labels, ["cat", "owl", "cat"], ["cat", "owl", "cat"])
    assert [explain_item(agreeing, row) for row in range(3)] == [None] * 3
    ann = agreeing.annotations
    without_consensus = replace(agreeing, consensus_codes=np.full(ann.n_items, -1))
    assert explain_item(without_consensus, 0) is None


def test_explanation_of_a_consensus_against_the_vote() -> None:
    """The 'dog' labels of the first two annotators are right once in four times: (0.9 + 3 * 0.05) / 4 is 26 %."""
    labels = [["dog", "dog", "cat"]] * 3 + [["dog", "dog", "dog"]]
    truth = ["cat", "cat", "cat", "dog"]
    assert explain_item(made(labels, truth, truth), 0) == (
        "For cat: 1 of 3 annotators said cat (of all their 'cat' labels, 90 % are right); the final model predicts "
        "cat (80 %).\nAgainst: 2 of 3 annotators said dog (of all their 'dog' labels, 26 % are right).\n"
        "Probabilities: cat 90 %, dog 5 %."
    )
    assert explain_item(made(labels, truth, ["dog"] * 4), 0) == (
        "For cat: 1 of 3 annotators said cat (of all their 'cat' labels, 90 % are right).\nAgainst: 2 of 3 "
        "annotators said dog (of all their 'dog' labels, 26 % are right); the final model predicts dog (80 %).\n"
        "Probabilities: cat 90 %, dog 5 %."
    )
    assert explain_item(made([["dog", "dog"]] * 3 + [["dog", "dog"]], truth), 0) == (
        "For cat: 'dog' labels of these annotators should be cat in 69 % of cases.\nAgainst: both annotators said dog "
        "(of all their 'dog' labels, 26 % are right).\nProbabilities: cat 90 %, dog 5 %."
    )


@pytest.mark.parametrize(
    ("labels", "predicted"),
    [
        (["dog", "dog", "owl", "owl", "cat"], "cat"),  # two classes with as many labels
        (["cat", "cat", "dog", "dog", None], "dog"),  # the vote is tied, and the prediction differs
        (["cat", "cat", "dog", "owl", None], "owl"),
    ],
)
def test_explanation_names_every_opposing_label(labels: list[str | None], predicted: str) -> None:
    sentence = str(explain_item(made([labels], ["cat"], [predicted]), 0))
    against = sentence.partition("Against: ")[2]
    for name in {label for label in labels if label} - {"cat"}:
        assert f"{labels.count(name)} of {5 - labels.count(None)} annotators said {name}" in against


def test_explanation_of_many_classes_names_the_most_probable_opposing_label() -> None:
    names = ["ant", "bee", "cat", "dog", "eel"]
    votes = {"bee": 3, "cat": 2, "dog": 2, "eel": 1}
    said = [name for name, count in votes.items() for _ in range(count)]
    few = made([["cat", "dog"]], ["cat"])
    ann = Annotations.from_matrix(np.array([said], object), classes=names)
    soft = np.array([[0.6, 0.02, 0.02, 0.02, 0.34]], np.float32)  # one annotator said eel, which may well be right
    consensus = replace(
        few,
        classes=ann.classes,
        annotators=ann.annotators,
        annotations=ann,
        class_probabilities=soft,
        consensus_codes=np.array([0]),
        labels_per_item=np.array([8]),
        label_confidence=soft[0, ann.label].astype(np.float64),
    )
    lines = str(explain_item(consensus, 0)).splitlines()
    assert "1 of 8 annotators said eel" in lines[1]
    assert lines[1].endswith("; 2 other labels.")
    assert "eel 34 %" in lines[2]


def test_explanation_of_gold_against_the_labels() -> None:
    consensus = replace(made([["dog", "dog"]], ["cat"]), gold_codes=np.array([0]))
    assert str(explain_item(consensus, 0)).startswith("For cat: the gold label is cat.\nAgainst: both annotators said")


def test_explanation_names_the_model_trained_without_the_item_if_it_says_something_else() -> None:
    """The consensus uses the prediction out of fold; the card shows that of the final model."""
    consensus = made([["dog", "owl", "dog"]] * 4, ["cat", "dog", "dog", "dog"], ["owl", "dog", "dog", "dog"])
    out_of_fold = np.tile(np.array([[0.05, 0.9, 0.05]], np.float32), (4, 1))
    out_of_fold[0] = [0.85, 0.1, 0.05]
    sentence = explain_item(replace(consensus, out_of_fold_probabilities=out_of_fold), 0)
    assert "For cat: the model trained without this item says cat (85 %)." in str(sentence)
    assert "the final model predicts owl (80 %).\nProbabilities: cat 90 %" in str(sentence)


def test_explanation_lists_the_final_model_even_if_the_model_trained_without_the_item_says_the_same() -> None:
    consensus = made([["dog", "owl", "cat"]] * 4, ["cat", "dog", "dog", "dog"], ["dog"] * 4)
    out_of_fold = np.tile(np.array([[0.2, 0.6, 0.2]], np.float32), (4, 1))
    against = str(explain_item(replace(consensus, out_of_fold_probabilities=out_of_fold), 0)).partition("Against")[2]
    assert "the model trained without this item says dog (60 %)" in against
    assert "the final model predicts dog (80 %)" in against


def test_explanation_names_the_calibrated_probability_that_counts() -> None:
    """With sharpness 2, 0.6, 0.2 and 0.2 become 0.36, 0.04 and 0.04, over their sum."""
    consensus = made([["cat", "cat"]] * 4, ["cat"] * 4, ["dog"] * 4)
    consensus = replace(
        consensus,
        out_of_fold_probabilities=np.tile(np.array([[0.2, 0.6, 0.2]], np.float32), (4, 1)),
        parameters={"sharpness": np.array(2.0), "class_bias": np.zeros(3)},
    )
    assert "says dog (60 %; after calibration 82 %)" in str(explain_item(consensus, 0))


def test_the_largest_weight_is_commented_if_it_contradicts_the_accuracy() -> None:
    consensus = made([["dog", "cat", "cat"]] * 4, ["cat"] * 4)
    accurate = replace(consensus, annotator_accuracy_interval=np.array([[0.5, 0.6], [0.9, 0.95], [0.5, 0.7]]))
    names = accurate.annotators
    sentence = str(explain_weights(accurate, 0, [0.8, 0.1, 0.1]))
    assert sentence.startswith(f"{names[0]} has the largest weight here, although {names[1]} is more accurate")
    assert "at least 90.0 %" in sentence
    assert "at most 60.0 %" in sentence
    assert explain_weights(accurate, 0, [0.1, 0.8, 0.1]) is None  # the most accurate annotator
    assert explain_weights(accurate, 0, [0.1, 0.1, 0.8]) is None  # said the same as the more accurate annotator
    assert explain_weights(consensus, 0, [0.8, 0.1, 0.1]) is None  # the intervals overlap


def test_percentage_of_the_final_model_is_that_of_the_prediction() -> None:
    """Both models say cat, with another probability: only the one that is shown as the prediction is called final."""
    consensus = made([["dog", "dog", "cat"]] * 4, ["cat", "dog", "dog", "dog"], ["cat", "dog", "dog", "dog"])
    out_of_fold = np.tile(np.array([[0.6, 0.3, 0.1]], np.float32), (4, 1))
    sentence = str(explain_item(replace(consensus, out_of_fold_probabilities=out_of_fold), 0))
    assert "the model trained without this item says cat (60 %)" in sentence
    assert "final model" not in sentence


def test_model_without_a_say_is_no_evidence() -> None:
    consensus = made([["dog", "dog", None]] * 5, ["cat", "dog", "dog", "dog", "dog"], ["cat"] + ["dog"] * 4)
    ignored = replace(consensus, parameters={"sharpness": np.array(0.0)})
    assert "model" not in str(explain_item(ignored, 0))


@pytest.mark.parametrize(
    ("labels", "who"),
    [
        (["cat", "cat", "cat"], "all 3 annotators"),
        (["cat", "cat", "dog"], "2 of 3 annotators"),
        (["cat", "dog", None], "1 of 2 annotators"),
        (["cat", None, None], "the only annotator"),
        (["cat", "cat", None], "both annotators"),
    ],
)
def test_explanation_of_a_consensus_against_the_prediction(labels: list[str | None], who: str) -> None:
    consensus = made([labels], ["cat"], ["dog"])
    sentence = str(explain_item(consensus, 0))
    assert sentence.startswith(f"For cat: {who} said cat (of all their 'cat' labels, 90 % are right).\nAgainst: ")
    assert "the final model predicts dog (80 %).\nProbabilities: " in sentence
    ignored = replace(consensus, parameters={"sharpness": np.array(0.0)})
    assert "the final model predicts dog (80 %), but the consensus ignores the model" in str(explain_item(ignored, 0))


def test_explanation_of_an_item_without_labels() -> None:
    consensus = made([[None, None], ["cat", "dog"]], ["cat", "cat"], ["owl", "cat"])
    sentence = str(explain_item(consensus, 0))
    assert "No annotator labelled this item" in sentence
    assert "The final model predicts owl (80 %)" in sentence


def test_explanations_are_in_every_format_with_names_escaped(fitted: Any) -> None:
    clf, X, ann, consensus = fitted
    report = clf.report(X, ann, consensus=consensus, n_items=120)
    items = report.facts["disputed"]["items"]
    row_of = {item: row for row, item in enumerate(consensus.items)}
    assert [x["explanation"] for x in items] == [explain_item(consensus, row_of[int(x["item"])]) for x in items]
    sentence = next(x["explanation"] for x in items if x["explanation"])
    assert sentence.replace("\n", " ") in report.to_markdown()
    assert html.escape(sentence).replace("&#x27;", "&#39;").replace(" %", "\u00a0%") in report.to_html()
    hostile = Annotations.from_matrix(np.array(HOSTILE_CLASSES)[np.array([[1, 1, 0]] * 8 + [[0, 0, 0]] * 8)])
    clf = MajorityVoteClassifier(epochs=1).fit(np.eye(16), hostile)
    certain = np.tile([0.999, 0.001], (16, 1))
    report = clf.report(
        np.eye(16), hostile, consensus=crowdfuse.consensus(hostile, certain, classes=clf.classes_, n_folds=5)
    )
    shown = [x for name in ("disputed", "mislabelled") for x in report.facts[name]["items"] if x["explanation"]]
    assert shown
    for text in (report.to_html(), report.to_markdown()):
        assert "alert(4)</script>" not in text


def test_cards_show_texts_escaped_and_cut() -> None:
    texts, truth = make_texts(30)
    texts = [f"<b>{text}</b> {'very ' * 80}long {number}" for number, text in enumerate(texts)]
    ann, items = make_labels(truth), [f"text-{number}" for number in range(30)]
    clf = MajorityVoteClassifier(epochs=2).fit(texts, ann, items=items)
    page = clf.report(texts, ann, items=items, folds=2).to_html()
    shown = re.findall(r'<div class="wide text" dir="auto">(.*?)</div>', page)
    assert shown
    for text in shown:
        start, rest = re.sub(r"</?mark.*?>", "", text).split("<details><summary>more</summary>")
        assert start.startswith("&lt;b&gt;a ")
        assert len(start) < 330
        assert re.search(r"long \d+</details>$", rest)

"""How right are the consensus, its confidence, the accuracy of annotators, and the suspicion of labels?

    python benchmarks/consensus.py --results consensus.jsonl --cleanlab-python peers/bin/python --before COMMIT

Eight crowds with gold, which only evaluates: Music, LabelMe, Sentiment Polarity and CIFAR-10N with its workers (2,000
and 10,000 images drawn by the seed) below $CROWDFUSE_DATA; the demo's digits; and two simulated crowds, one with
independent annotators, one with annotators who fail near a weakness item. Sentences are tf-idf, reduced to 200
components.

Ours is the default method at its defaults, with five folds; `--method` takes another one. Beside it: the majority
vote, Dawid-Skene, CROWDLAB (cleanlab 2.9.0 in an environment of its own) with the same out-of-fold probabilities, and
what the commit before this consensus wrote: the fused label, the prediction and its consensus (`label_quality`, by the
code of that commit). That was gated with 40 epochs; its training has not changed, so the fused label and the prediction
are those of this method.

Each finished crowd and seed is a line of the results file; what is there is not run again. `--show` prints the tables.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import average_precision_score

from crowdfuse import Annotations, GatedClassifier
from crowdfuse.aggregation import dawid_skene, majority_vote
from crowdfuse.datasets.cifar10n import load_cifar10n
from crowdfuse.datasets.labelme import load_labelme
from crowdfuse.datasets.music_genres import load_music_genres
from crowdfuse.estimators.cross_fitting import combine
from crowdfuse.estimators.registry import DEFAULT_METHOD, ESTIMATORS, estimator_class
from crowdfuse.experiments.demo import N_TEST, make_annotators
from crowdfuse.report.markdown import markdown_table
from crowdfuse.synthesis import weakness_annotators

FloatArray = NDArray[np.float64]
MIN_LABELS = 20  # annotators with fewer labels are not judged
N_BINS = 10
CLEANLAB = """
import sys, warnings, numpy as np, pandas as pd
warnings.filterwarnings("ignore")
from cleanlab.multiannotator import get_label_quality_multiannotator
data = np.load(sys.argv[1])
found = get_label_quality_multiannotator(pd.DataFrame(data["labels"]), data["probabilities"], verbose=False)
items = found["label_quality"]
np.savez(
    sys.argv[2],
    consensus=items["consensus_label"].to_numpy(),
    confidence=items["consensus_quality_score"].to_numpy(),
    label_quality=found["detailed_label_quality"].to_numpy(),
    accuracy=found["annotator_stats"]["annotator_quality"].sort_index().to_numpy(),
)
"""
BEFORE = """
import sys, numpy as np
from crowdfuse import Annotations, label_quality
data = np.load(sys.argv[1])
found = label_quality(Annotations.from_matrix(data["codes"]), data["predicted"], out_of_fold=False)
np.savez(sys.argv[2], probabilities=found.class_probabilities, accuracy=found.annotator_accuracy)
"""


@dataclass(frozen=True)
class Crowd:
    X: NDArray[np.float32]
    ann: Annotations  # classes 0, 1, 2, ...
    gold: NDArray[np.int64]


def digits(seed: int, data: Path) -> Crowd:
    X, y = load_digits(return_X_y=True)
    train = np.random.default_rng(seed).permutation(len(X))[N_TEST:]
    return Crowd(X[train].astype(np.float32), make_annotators(X[train], y[train], seed).annotations, y[train])


def blobs(seed: int, n_items: int = 1500, n_classes: int = 5) -> tuple[FloatArray, NDArray[np.int64]]:
    generator = np.random.default_rng([seed, 7])
    y = generator.integers(0, n_classes, n_items)
    centres = 0.8 * generator.normal(size=(n_classes, 20))
    return centres[y] + generator.normal(size=(n_items, 20)), y


def independent(seed: int, data: Path) -> Crowd:
    X, y = blobs(seed)
    generator = np.random.default_rng([seed, 8])
    planted = generator.uniform(0.4, 0.95, 30)
    said = np.full((len(y), 30), -1)
    for n in range(len(y)):
        for r in generator.choice(30, 3, replace=False):
            said[n, r] = y[n] if generator.random() < planted[r] else (y[n] + generator.integers(1, 5)) % 5
    return Crowd(X.astype(np.float32), Annotations.from_matrix(said), y)


def weakness(seed: int, data: Path) -> Crowd:
    X, y = blobs(seed)
    rows = tuple(range(6))
    shares = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    epsilon = [
        float(np.quantile(np.linalg.norm(X - X[row], axis=1), share)) for row, share in zip(rows, shares, strict=True)
    ]
    made = weakness_annotators(X, y, weakness=rows, epsilon=epsilon, missing=0.5, seed=seed)
    return Crowd(X.astype(np.float32), made.annotations, y)


def music(seed: int, data: Path) -> Crowd:
    crowd = load_music_genres(data)
    return Crowd(np.asarray(crowd.X), crowd.annotations, crowd.y)


def labelme(seed: int, data: Path) -> Crowd:
    crowd = load_labelme(data)
    return Crowd(np.asarray(crowd.X), crowd.annotations, crowd.y)


def sentiment(seed: int, data: Path) -> Crowd:
    folder = data / "sentiment_polarity"
    with (folder / "train_text.csv").open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    ann = Annotations.read(folder / "labels.csv").align([int(row["task"]) for row in rows])
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit_transform([row["text"] for row in rows])
    X = TruncatedSVD(200, random_state=0).fit_transform(vectors).astype(np.float32)
    return Crowd(X, ann, np.array([int(row["gold"]) for row in rows]))


def cifar10n(n_items: int) -> Callable[[int, Path], Crowd]:
    def make(seed: int, data: Path) -> Crowd:
        crowd = load_cifar10n(data)
        rows = np.sort(np.random.default_rng(seed).permutation(len(crowd.y))[:n_items])
        return Crowd(np.asarray(crowd.X)[rows], crowd.annotations[rows], crowd.y[rows])

    return make


CROWDS: dict[str, Callable[[int, Path], Crowd]] = {
    "LabelMe": labelme,
    "Music": music,
    "digits demo": digits,
    "independent": independent,
    "weakness": weakness,
    "CIFAR-10N, 2,000": cifar10n(2_000),
    "Sentiment Polarity": sentiment,
    "CIFAR-10N, 10,000": cifar10n(10_000),
}
ANSWERS = ("ours", "vote", "Dawid-Skene", "CROWDLAB", "fused before", "predicted before", "consensus before")


def calibration_error(confidence: FloatArray, is_right: NDArray[np.bool_]) -> float:
    """Mean gap between confidence and accuracy over ten bins of equal mass, weighted by their size."""
    parts = np.array_split(np.argsort(confidence, kind="stable"), N_BINS)
    gaps = [len(part) * abs(confidence[part].mean() - is_right[part].mean()) for part in parts if len(part)]
    return float(sum(gaps) / len(confidence))


def simulated_calibration_error(confidence: FloatArray) -> float:
    """The same for a calibrated model with these confidences, by simulation."""
    generator = np.random.default_rng(0)
    return float(
        np.mean([calibration_error(confidence, generator.random(len(confidence)) < confidence) for _ in range(200)])
    )


def judge(probabilities: FloatArray, gold: NDArray[np.int64]) -> dict[str, float]:
    is_right, confidence = probabilities.argmax(1) == gold, probabilities.max(1)
    log_loss = -np.log(np.clip(probabilities[np.arange(len(gold)), gold], 1e-6, 1)).mean()
    return {
        "accuracy": 100 * float(is_right.mean()),
        "calibration_error": calibration_error(confidence, is_right),
        "simulated_calibration_error": simulated_calibration_error(confidence),
        "log_loss": float(log_loss),
    }


def judge_annotators(accuracy: FloatArray, ann: Annotations, gold: NDArray[np.int64]) -> dict[str, float]:
    count, truth = true_accuracy(ann, gold)
    keep = count >= MIN_LABELS
    return {"annotator_error": float(np.abs(accuracy - truth)[keep].mean())}


def true_accuracy(ann: Annotations, gold: NDArray[np.int64]) -> tuple[NDArray[np.int64], FloatArray]:
    count = np.bincount(ann.annotator, minlength=ann.n_annotators)
    is_right = ann.label == gold[ann.item]
    return count, np.bincount(ann.annotator, is_right, minlength=ann.n_annotators) / np.maximum(count, 1)


def run_other(python: str, code: str, arrays: dict[str, Any], path: str | None = None) -> dict[str, Any]:
    """Run code in another environment with arrays in and arrays out."""
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/in.npz", **arrays)
        environment = os.environ | ({"PYTHONPATH": path} if path else {})
        subprocess.run([python, "-c", code, f"{folder}/in.npz", f"{folder}/out.npz"], check=True, env=environment)
        with np.load(f"{folder}/out.npz") as found:
            return dict(found)


def measure(crowd: Crowd, seed: int, arguments: argparse.Namespace, before: str) -> dict[str, Any]:
    """All figures of one crowd and seed."""
    start = time.process_time()
    classes = list(range(int(max(crowd.ann.classes.max(), crowd.gold.max())) + 1))
    ann, gold = crowd.ann.with_classes(np.array(classes)), crowd.gold
    clf = estimator_class(arguments.method)(random_state=seed, classes=classes).fit(crowd.X, ann)
    inputs = clf._inputs(crowd.X)
    predictions = clf._out_of_fold(inputs, ann, None, 5)
    assert predictions is not None
    ours = combine(clf, inputs, ann, predictions, None)
    seconds = time.process_time() - start
    earlier = GatedClassifier(random_state=seed, classes=classes, epochs=40).fit(crowd.X, ann)
    low, high = ours.annotator_accuracy_interval.T
    count, truth = true_accuracy(ann, gold)
    keep = count >= MIN_LABELS
    predicted = earlier.predict_proba(crowd.X)
    fused = np.nan_to_num(earlier.fused_labels(crowd.X, ann)).astype(np.float64)
    is_wrong = ann.label != gold[ann.item]
    probabilities = predictions.class_probabilities
    answers: dict[str, Any] = {"ours": judge(ours.class_probabilities.astype(float), gold)}
    answers["ours"] |= judge_annotators(ours.annotator_accuracy, ann, gold) | {
        "coverage": float(((low <= truth + 1e-9) & (truth <= high + 1e-9))[keep].mean()),
        "suspicion_precision": float(average_precision_score(is_wrong, ours.suspicion)),
    }
    for name, result in (("vote", majority_vote(ann)), ("Dawid-Skene", dawid_skene(ann))):
        soft = np.nan_to_num(result.class_probabilities.astype(float), nan=1 / len(classes))
        answers[name] = judge(soft, gold) | judge_annotators(result.annotator_accuracy, ann, gold)
    said = ann.to_matrix().astype(float)
    codes = said.copy()
    said[said < 0] = np.nan
    if arguments.cleanlab_python:
        labelled = (count > 0).nonzero()[0]
        rows = np.diff(ann.indptr) > 0
        found = run_other(
            arguments.cleanlab_python,
            CLEANLAB,
            {"labels": said[np.ix_(rows, labelled)], "probabilities": probabilities[rows]},
        )
        confidence = np.full(len(gold), 1 / len(classes))
        best = probabilities.argmax(1)
        confidence[rows], best[rows] = found["confidence"], found["consensus"]
        soft = np.repeat(((1 - confidence) / (len(classes) - 1))[:, None], len(classes), 1)
        soft[np.arange(len(gold)), best] = confidence
        quality = np.full(said.shape, np.nan)
        quality[np.ix_(rows, labelled)] = found["label_quality"]
        accuracy = np.full(ann.n_annotators, np.nan)
        accuracy[labelled] = found["accuracy"]
        answers["CROWDLAB"] = judge(soft, gold) | judge_annotators(accuracy, ann, gold)
        answers["CROWDLAB"]["accuracy"] = 100 * float((best == gold).mean())
        suspicion = 1 - quality[ann.item, ann.annotator]
        answers["CROWDLAB"]["suspicion_precision"] = float(average_precision_score(is_wrong, suspicion))
    answers["fused before"], answers["predicted before"] = judge(fused, gold), judge(predicted, gold)
    if before:
        found = run_other(sys.executable, BEFORE, {"codes": codes.astype(int), "predicted": predicted}, before)
        answers["consensus before"] = judge(found["probabilities"].astype(float), gold)
        answers["consensus before"] |= judge_annotators(found["accuracy"], ann, gold)
    return {"seconds": round(seconds, 1), "findings": [f.kind for f in ours.findings], "answers": answers}


def tables(records: list[dict[str, Any]]) -> str:
    """The results as Markdown, means over seeds."""
    names = [name for name in CROWDS if any(record["crowd"] == name for record in records)]

    def mean(crowd: str, answer: str, figure: str) -> float:
        values = [r["answers"].get(answer, {}).get(figure) for r in records if r["crowd"] == crowd]
        return float(np.mean([v for v in values if v is not None])) if any(v is not None for v in values) else np.nan

    def table(figure: str, form: str, answers: tuple[str, ...]) -> str:
        rows = [
            [name, str(sum(r["crowd"] == name for r in records)), *(f"{mean(name, a, figure):{form}}" for a in answers)]
            for name in names
        ]
        means = [f"{np.mean([mean(name, a, figure) for name in names]):{form}}" for a in answers]
        return markdown_table(["crowd", "seeds", *answers], [*rows, ["mean", "", *means]])

    ours = [
        [
            name,
            f"{mean(name, 'ours', 'calibration_error') - mean(name, 'ours', 'simulated_calibration_error'):.3f}",
            f"{mean(name, 'ours', 'annotator_error'):.3f}",
            f"{100 * mean(name, 'ours', 'coverage'):.0f}",
            f"{np.mean([r['seconds'] for r in records if r['crowd'] == name]):.0f}",
            f"{mean(name, 'ours', 'suspicion_precision'):.3f}",
            f"{mean(name, 'CROWDLAB', 'suspicion_precision'):.3f}",
        ]
        for name in names
    ]
    header = ["crowd", "calibration error above simulated", "annotator error", "coverage of intervals (%)", "seconds"]
    return "\n\n".join(
        [
            "## Accuracy of the consensus (%)",
            table("accuracy", ".2f", ANSWERS),
            "## Calibration error (ten bins of equal mass)",
            table("calibration_error", ".3f", ANSWERS),
            "## Log loss",
            table("log_loss", ".3f", ANSWERS),
            "## Mean absolute error of annotator accuracy (annotators with 20 labels or more)",
            table("annotator_error", ".3f", ("ours", "vote", "Dawid-Skene", "CROWDLAB", "consensus before")),
            "## Ours against the targets, and average precision of suspicion",
            markdown_table([*header, "suspicion, ours", "suspicion, CROWDLAB"], ours),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("consensus.jsonl"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--method", default=DEFAULT_METHOD, choices=list(ESTIMATORS))
    parser.add_argument("--crowds", nargs="*", default=list(CROWDS), choices=list(CROWDS))
    parser.add_argument("--cleanlab-python", default="", help="Python of an environment with cleanlab 2.9.0")
    parser.add_argument("--before", default="", help="commit whose label_quality is compared")
    parser.add_argument("--show", action="store_true", help="print the tables of what has run")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    records = (
        [json.loads(line) for line in arguments.results.read_text().splitlines()] if arguments.results.exists() else []
    )
    if arguments.show:
        print(tables(records))
        return
    data = Path(os.environ.get("CROWDFUSE_DATA", "data"))
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as folder:
        if arguments.before:
            archive = subprocess.run(["git", "archive", arguments.before, "src"], check=True, capture_output=True)
            subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
        for seed in range(arguments.seeds):
            for name in arguments.crowds:
                if any(record["crowd"] == name and record["seed"] == seed for record in records):
                    continue
                found = measure(CROWDS[name](seed, data), seed, arguments, f"{folder}/src" if arguments.before else "")
                records.append({"crowd": name, "seed": seed, **found})
                with arguments.results.open("a") as lines:
                    lines.write(json.dumps(records[-1]) + "\n")
                shown = {answer: round(figures["accuracy"], 2) for answer, figures in found["answers"].items()}
                print(name, seed, found["seconds"], "s", shown, flush=True)
    print(tables(records))


if __name__ == "__main__":
    main()

"""Finding wrong labels: average precision of suspicion by `consensus`, by fitted models and by cleanlab.

    python -m venv peers && peers/bin/pip install cleanlab==2.9.0      # optional: the benchmark can do this
    python benchmarks/suspicion.py --cleanlab-python peers/bin/python --json suspicion.json

Three crowds: LabelMe and Sentiment Polarity below $CROWDFUSE_DATA, and one simulated on scikit-learn's digits: 20
annotators, of whom one labels at random, one always gives 3, six confuse two pairs of classes, and the others are right
with probabilities from 0.45 to 0.95; 30 % of the labels are present. Gold only evaluates.

`consensus` and cleanlab (get_label_quality_multiannotator, with and without calibrate_probs, in its own environment)
get the same out-of-fold probabilities: logistic regression on the majority vote, five folds, drawn by each seed. The
fitted models, at their defaults, score the labels they were trained on (`folds=0`) and, out of fold, labels they were
not (`folds=5`); they are trained on the first seed only. Sentences are tf-idf, for the networks 200 components of it.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from crowdfuse import Annotations, consensus
from crowdfuse.aggregation import majority_vote

CLEANLAB_VERSION = "2.9.0"
CLEANLAB_SCRIPT = """
import sys, warnings, numpy as np, pandas as pd
warnings.filterwarnings("ignore")
from cleanlab.multiannotator import get_label_quality_multiannotator
data = np.load(sys.argv[1])
labels = pd.DataFrame(data["labels"])
result = {}
for name, calibrate in (("plain", False), ("calibrated", True)):
    result[name] = [
        get_label_quality_multiannotator(labels, probabilities.copy(), calibrate_probs=calibrate, verbose=False)[
            "detailed_label_quality"
        ].to_numpy()
        for probabilities in data["probabilities"]
    ]
np.savez(sys.argv[2], **result)
"""


@dataclass(frozen=True)
class Crowd:
    name: str
    X: Any  # inputs of the networks
    ann: Annotations
    gold: NDArray[np.int64]
    classifier: Any
    features: Any  # inputs of the classifier


def labelme(data: Path) -> Crowd:
    arrays = np.load(data / "labelme" / "labelme_vgg_avg.npz", allow_pickle=False)
    ann = Annotations.from_matrix(arrays["answers"].astype(int))
    X = arrays["x_train"].astype(np.float32)
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=500))
    return Crowd("LabelMe", X, ann, arrays["y_train"].astype(np.int64), classifier, X)


def sentiment(data: Path) -> Crowd:
    folder = data / "sentiment_polarity"
    with (folder / "train_text.csv").open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    ann = Annotations.read(folder / "labels.csv").align([int(row["task"]) for row in rows])
    text = [row["text"] for row in rows]
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit_transform(text)
    X = TruncatedSVD(200, random_state=0).fit_transform(vectors).astype(np.float32)
    gold = np.array([int(row["gold"]) for row in rows])
    return Crowd("Sentiment Polarity", X, ann, gold, LogisticRegression(C=5, max_iter=300), vectors)


def digits() -> Crowd:
    X, gold = load_digits(return_X_y=True)
    generator = np.random.default_rng(0)
    K, R = 10, 20
    labels = np.full((len(gold), R), -1)
    for r in range(R):
        accuracy = generator.uniform(0.45, 0.95)
        confusion = np.full((K, K), (1 - accuracy) / (K - 1))
        np.fill_diagonal(confusion, accuracy)
        if r == 0:
            confusion[:] = 1 / K
        elif r == 1:
            confusion[:] = np.eye(K)[3]
        elif r < 8:
            for pair in generator.permutation(K).reshape(5, 2)[:2]:
                confusion[pair] = 0.02
                confusion[np.ix_(pair, pair)] = 0.42
        confusion /= confusion.sum(1, keepdims=True)
        drawn = generator.random((len(gold), 1))
        labels[:, r] = np.minimum((confusion[gold].cumsum(1) < drawn).sum(1), K - 1)
    labels[generator.random(labels.shape) > 0.3] = -1
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300))
    return Crowd("digits, simulated", X.astype(np.float32), Annotations.from_matrix(labels), gold, classifier, X)


def out_of_fold_probabilities(crowd: Crowd, seed: int) -> NDArray[np.float64]:
    """Return out-of-fold probabilities (N, K) of a classifier trained on the majority vote.

    Items without labels are assigned to the first class.
    """
    vote = majority_vote(crowd.ann, seed=seed).consensus_codes
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    probabilities: NDArray[np.float64] = cross_val_predict(
        crowd.classifier, crowd.features, np.maximum(vote, 0), cv=folds, method="predict_proba"
    )
    return probabilities


def precision(crowd: Crowd, suspicion: NDArray[np.float64]) -> float:
    wrong = crowd.ann.label != crowd.gold[crowd.ann.item]
    return float(average_precision_score(wrong, suspicion))


def score_with_cleanlab(crowd: Crowd, probabilities: list[NDArray[np.float64]], python: Path) -> dict[str, list[float]]:
    """Return the average precision of 1 - cleanlab's label quality by setting, one value per seed."""
    ann = crowd.ann
    labels = np.full(ann.shape, np.nan)
    labels[ann.item, ann.annotator] = ann.label
    rows, columns = ~np.isnan(labels).all(1), ~np.isnan(labels).all(0)  # cleanlab refuses empty rows and columns
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder, "given.npz"), Path(folder, "found.npz")
        np.savez(given, labels=labels[np.ix_(rows, columns)], probabilities=np.stack(probabilities)[:, rows])
        subprocess.run([python, "-c", CLEANLAB_SCRIPT, given, found], check=True, stdout=subprocess.DEVNULL)
        result: dict[str, list[float]] = {}
        for name, by_seed in np.load(found).items():
            for values in by_seed:
                scores = np.full(labels.shape, np.nan)
                scores[np.ix_(rows, columns)] = values
                suspicion = 1 - scores[ann.item, ann.annotator]
                result.setdefault(f"cleanlab, {name}", []).append(precision(crowd, suspicion))
    return result


def score_with_fitted_models(crowd: Crowd, seed: int) -> Iterator[tuple[str, float]]:
    import torch

    from crowdfuse import FusionClassifier, GatedClassifier, MajorityVoteClassifier

    torch.set_num_threads(1)
    estimators = {"gated": GatedClassifier, "fusion": FusionClassifier, "soft vote": MajorityVoteClassifier}
    for name, estimator in estimators.items():
        fitted = estimator(random_state=seed).fit(crowd.X, crowd.ann)
        for how, folds in (("in sample", 0), ("out of fold", 5)):
            found = fitted.consensus(crowd.X, crowd.ann, folds=folds)
            yield f"{name}, {how}", precision(crowd, found.suspicion)


def create_cleanlab_environment(folder: str) -> Path:
    """Create a virtual environment with cleanlab and return its Python."""
    venv.create(folder, with_pip=True)
    python = Path(folder, "bin", "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"cleanlab=={CLEANLAB_VERSION}"], check=True)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CROWDFUSE_DATA", "data")))
    parser.add_argument("--cleanlab-python", type=Path, help="Python with cleanlab; default: a new environment")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--no-fitted", action="store_true", help="leave out the fitted models, which take minutes")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    crowds = [labelme(given.data), sentiment(given.data), digits()]
    table: dict[str, dict[str, list[float]]] = {}  # by method and crowd, one value per seed

    def record_result(crowd: Crowd, found: dict[str, list[float]]) -> None:
        for method, values in found.items():
            table.setdefault(method, {})[crowd.name] = values
            print(f"{crowd.name}: {method}: {np.mean(values):.4f}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        python = given.cleanlab_python or create_cleanlab_environment(folder)
        for crowd in crowds:
            probabilities = [out_of_fold_probabilities(crowd, seed) for seed in seeds]
            record_result(
                crowd, {"consensus": [precision(crowd, consensus(crowd.ann, p).suspicion) for p in probabilities]}
            )
            record_result(crowd, score_with_cleanlab(crowd, probabilities, python))
    if not given.no_fitted:
        for crowd in crowds:
            for method, value in score_with_fitted_models(crowd, seeds[0]):
                record_result(crowd, {method: [value]})

    names = [crowd.name for crowd in crowds]
    print(f"| average precision | {' | '.join(names)} | mean |\n|---|{'---|' * (len(names) + 1)}")
    wrong_share = [float((crowd.ann.label != crowd.gold[crowd.ann.item]).mean()) for crowd in crowds]
    means = {method: [float(np.mean(found[name])) for name in names] for method, found in table.items()}
    for method, values in {**means, "share of wrong labels": wrong_share}.items():
        print(f"| {method} | {' | '.join(f'{value:.4f}' for value in values)} | {np.mean(values):.4f} |")
    if given.json:
        settings = {
            "seeds": seeds,
            "cleanlab": CLEANLAB_VERSION,
            "wrong_label_share": dict(zip(names, wrong_share, strict=True)),
        }
        given.json.write_text(json.dumps({"settings": settings, "average_precision": table}, indent=2) + "\n")


if __name__ == "__main__":
    main()

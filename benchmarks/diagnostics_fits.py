"""Diagnostics after training: findings of the consensus on fits with independent annotators, and on real crowds.

    CROWDFUSE_DATA=data python benchmarks/diagnostics_fits.py --method gated --results diagnostics_fits.jsonl
    python benchmarks/diagnostics_fits.py --results diagnostics_fits.jsonl --show

The results hold one line per fit; a fit that has a line is not run again, so an interrupted run continues. `--method`
names any method, trained with its own defaults; `--epochs` shortens the training.

Independent annotators: 200 fits on 100 to 5,000 points in 20 dimensions, 2, 3 or 10 classes, 3 to 50 annotators, 40 to
100 % of the labels present. Every finding is a false alarm.

Real crowds: LabelMe, Music and 2,000 images of CIFAR-10N, with the same method. A finding about a pair is compared with
gold: how many of their common items both label with the same wrong class, and how many would be expected if they were
independent given the true class (from their confusion matrices on the common items).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse import Annotations
from crowdfuse.datasets.cifar10n import load_cifar10n
from crowdfuse.datasets.labelme import load_labelme
from crowdfuse.datasets.music_genres import load_music_genres
from crowdfuse.estimators.registry import estimator_class

SEED = 1_900


Findings = list[dict[str, Any]]
FitAndTest = Callable[[NDArray[Any], Annotations], Findings]


def fit_and_test(X: NDArray[Any], ann: Annotations, method: str, folds: int, epochs: int | None) -> Findings:
    """Return the findings of the consensus after training."""
    clf = estimator_class(method)(epochs=epochs, random_state=0).fit(X, ann)
    return [
        {"kind": finding.kind, "p_value": finding.p_value, "message": finding.message}
        for finding in clf.consensus(X, ann, folds=folds).findings
    ]


def fit_independent(number: int, findings: FitAndTest) -> dict[str, Any]:
    """Return the findings of a fit on independent annotators."""
    generator = np.random.default_rng([SEED, number])
    n, K = round(np.exp(generator.uniform(np.log(100), np.log(5_000)))), int(generator.choice([2, 3, 10]))
    R, density = int(generator.choice([3, 4, 8, 15, 30, 50])), float(generator.choice([0.4, 0.7, 1.0]))
    truth = generator.integers(0, K, n)
    X = (0.8 * generator.normal(size=(K, 20)))[truth] + generator.normal(size=(n, 20))
    is_right = generator.random((n, R)) < generator.uniform(0.6 if K == 2 else 0.5, 0.95, R)
    labels = np.where(is_right, truth[:, None], (truth[:, None] + generator.integers(1, K, (n, R))) % K)
    labels[generator.random((n, R)) > density] = -1
    ann = Annotations.from_matrix(labels, classes=range(K))
    return {"n_items": n, "n_classes": K, "n_annotators": R, "findings": findings(X.astype(np.float32), ann)}


def same_mistakes_by_gold(ann: Annotations, gold: NDArray[Any], first: Any, second: Any) -> tuple[int, float]:
    """Return how often two annotators give the same wrong label, and how often they would if they were independent."""
    said = np.full((2, ann.n_items), -1)
    for row, name in zip(said, (first, second), strict=True):
        mine = ann.annotators[ann.annotator].astype(str) == str(name)
        row[ann.item[mine]] = ann.label[mine]
    common = (said >= 0).all(0)
    a, b = said[:, common]
    true, K = gold[common], ann.n_classes
    matrices = np.zeros((2, K, K))
    for matrix, label in zip(matrices, (a, b), strict=True):
        np.add.at(matrix, (true, label), 1)
    n_true = np.maximum(matrices[0].sum(1), 1)
    chance = matrices[0] * matrices[1] / n_true[:, None]
    return int(((a == b) & (a != true)).sum()), float(chance.sum() - np.trace(chance))


def fit_real(name: str, findings: FitAndTest) -> dict[str, Any]:
    """Return the findings on a real crowd; those about a pair with the counts according to gold."""
    if name == "CIFAR-10N, 2,000":
        crowd = load_cifar10n()
        rows = np.sort(np.random.default_rng(0).permutation(len(crowd.y))[:2_000])
        X, ann, gold = np.asarray(crowd.X)[rows], crowd.annotations[rows], crowd.y[rows]
    else:
        crowd = load_labelme() if name == "LabelMe" else load_music_genres()
        X, ann, gold = np.asarray(crowd.X), crowd.annotations, crowd.y
    gold = np.searchsorted(ann.classes, gold)
    found = findings(X.astype(np.float32), ann)
    for finding in found:
        if finding["kind"] in ("shared_mistakes", "copied_labels"):
            words = finding["message"].split()
            first, second = words[1], words[4]  # "Annotator 3 and annotator 5 make ..."
            finding["same_mistakes_by_gold"], finding["expected_by_gold"] = same_mistakes_by_gold(
                ann, gold, first, second
            )
    return {"n_items": len(X), "n_annotators": ann.n_annotators, "findings": found}


def show(lines: list[dict[str, Any]]) -> None:
    """Print the number of fits with each kind of finding, and the findings on real crowds."""
    independent = [line for line in lines if isinstance(line["crowd"], int)]
    kinds = Counter(kind for line in independent for kind in {finding["kind"] for finding in line["findings"]})
    print(f"{len(independent)} fits on independent annotators; fits with a finding: {dict(kinds) or 'none'}")
    for line in lines:
        if not isinstance(line["crowd"], int) or line["findings"]:
            print(line["crowd"], json.dumps(line["findings"], indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="gated")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--epochs", type=int, help="default: the default of the method")
    parser.add_argument("--fits", type=int, default=200, help="fits on independent annotators")
    parser.add_argument("--results", type=Path, default=Path("diagnostics_fits.jsonl"), help="one line per fit")
    parser.add_argument("--show", action="store_true", help="print a summary of what has run, and run nothing")
    given = parser.parse_args()
    settings = {"method": given.method, "folds": given.folds, "epochs": given.epochs}
    lines = [json.loads(line) for line in given.results.read_text().splitlines()] if given.results.exists() else []
    if not given.show:
        if any(line["settings"] != settings for line in lines):
            parser.error(f"{given.results} has fits with {lines[0]['settings']}, not {settings}: give another file")
        done = {line["crowd"] for line in lines}

        def findings(X: NDArray[Any], ann: Annotations) -> Findings:
            return fit_and_test(X, ann, **settings)

        with given.results.open("a") as file:
            for crowd in [*range(given.fits), "Music", "LabelMe", "CIFAR-10N, 2,000"]:
                if crowd in done:
                    continue
                result = fit_independent(crowd, findings) if isinstance(crowd, int) else fit_real(crowd, findings)
                lines.append({"settings": settings, "crowd": crowd, **result})
                file.write(json.dumps(lines[-1]) + "\n")
                file.flush()
    show(lines)


if __name__ == "__main__":
    main()

"""Diagnostics: false alarms on healthy crowds and power on planted faults.

    python benchmarks/diagnostics.py --results diagnostics.jsonl --json diagnostics.json
    python benchmarks/diagnostics.py --results diagnostics.jsonl --show

The results hold one line per crowd; a crowd that has a line is not run again, so an interrupted run continues. `--seed`
draws other crowds, which need a results file of their own.

False alarms: 200 crowds of independent annotators with 100 to 5,000 items, 2, 3 or 10 classes, 3 to 50 annotators, 30
to 100 % of the labels present, accuracies from 0.5 to 0.95 and confusion matrices that depend on the class. Every
annotator is informative (Cohen's kappa with the truth of at least 0.2; an accuracy of 0.5 with two classes is
guessing). Gold is known for a fifth of the items.

Power: crowds of the same annotators with one planted fault, 300 or 1,000 items, 5 or 10 annotators, 60 or 100 % of
the labels present. Two annotators share mistakes: where the first is wrong, the second gives the same label in 60 %
of the cases; or both give the same wrong label to 15 % of the items. A spammer: labels drawn without looking, or
always the same label. A copy: 95 % of the labels are those of another annotator. A rare class: a tenth of the items,
and the classifier never predicts it. Gold: of the known true classes, 30 % are replaced by another class. Inputs: the
predictions do not depend on the truth.

The consensus comes from the labels and a simulated classifier with an accuracy of 0.75 (a softmax of noise plus
signal), or from the labels alone ("none": no probabilities and no predictions are passed).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.aggregation.posterior import MAX_SHARPNESS, UNIFORM_MIXTURE_WEIGHT, fit_posterior
from crowdfuse.aggregation.votes import Votes
from crowdfuse.labels.annotations import Annotations
from crowdfuse.quality.confidence_discount import discount_temperature, error_dependence, temper
from crowdfuse.quality.diagnostics import diagnose
from crowdfuse.quality.findings import Finding

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

KINDS = (
    "shared_mistakes",
    "copied_labels",
    "uninformative_annotator",
    "class_never_predicted",
    "gold_contradicts_consensus",
    "labels_ignore_inputs",
)
CLASSIFIERS = ("75 % accurate", "none")
MIN_KAPPA = 0.2


@dataclass
class Crowd:
    truth: IntArray
    labels: IntArray  # (items, annotators), -1 where missing
    probabilities: FloatArray  # of the classifier
    gold: IntArray  # -1 where unknown


def consensus_probabilities(ann: Annotations, probabilities: FloatArray) -> FloatArray:
    """Return the class probabilities of `crowdfuse.consensus`, which also computes intervals and findings."""
    votes = Votes(ann)
    K = ann.n_classes
    log_p = np.log(probabilities * (1 - UNIFORM_MIXTURE_WEIGHT) + UNIFORM_MIXTURE_WEIGHT / K)[votes.labelled]
    fit = fit_posterior(votes, log_p, np.full(len(log_p), -1), MAX_SHARPNESS)
    result = np.full(probabilities.shape, np.nan)
    result[votes.labelled] = temper(fit.soft.astype(np.float64), discount_temperature(*error_dependence(fit)))
    return result


def draw_confusion(generator: np.random.Generator, prior: FloatArray) -> FloatArray:
    """Return the confusion matrix (true, said) of an informative annotator."""
    K = len(prior)
    while True:
        right = np.clip(generator.uniform(0.5, 0.95) + generator.uniform(-0.1, 0.1, K), 0.05, 0.98)
        concentration = generator.choice([0.5, 2, 50])  # from one wrong class per true class to all alike
        matrix = np.diag(right)
        for k in range(K):
            matrix[k, np.arange(K) != k] = (1 - right[k]) * generator.dirichlet(np.full(K - 1, concentration))
        by_chance = float((prior @ matrix) @ prior)
        if (prior @ right - by_chance) / (1 - by_chance) >= MIN_KAPPA:
            return matrix


def draw_labels(generator: np.random.Generator, truth: IntArray, confusion: FloatArray) -> IntArray:
    below = confusion[truth].cumsum(1) < generator.random((len(truth), 1))
    return np.asarray(np.minimum(below.sum(1), confusion.shape[1] - 1), np.int64)


def draw_probabilities(generator: np.random.Generator, truth: IntArray, K: int, accuracy: float = 0.75) -> FloatArray:
    noise = generator.normal(size=(len(truth), K))
    low, high = 0.0, 10.0
    for _ in range(30):
        signal = (low + high) / 2
        is_low = ((noise + signal * np.eye(K)[truth]).argmax(1) == truth).mean() < accuracy
        low, high = (signal, high) if is_low else (low, signal)
    logits = signal * (noise + signal * np.eye(K)[truth])
    shares = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(shares / shares.sum(1, keepdims=True))


def draw_crowd(generator: np.random.Generator, n: int, K: int, R: int, prior: FloatArray | None = None) -> Crowd:
    prior = generator.dirichlet(np.full(K, 5.0)) if prior is None else prior
    truth = generator.choice(K, n, p=prior)
    labels = np.stack([draw_labels(generator, truth, draw_confusion(generator, prior)) for _ in range(R)], 1)
    gold = np.where(generator.random(n) < 0.2, truth, -1)
    return Crowd(truth, labels, draw_probabilities(generator, truth, K), gold)


def find(crowd: Crowd, K: int, classifier: str) -> tuple[Finding, ...]:
    ann = Annotations.from_matrix(crowd.labels, classes=range(K))
    if classifier == "none":
        uniform = np.full((len(crowd.truth), K), 1 / K)
        return diagnose(ann, consensus_probabilities(ann, uniform), gold=crowd.gold)
    probabilities = consensus_probabilities(ann, crowd.probabilities)
    return diagnose(ann, probabilities, predicted=crowd.probabilities.argmax(1), gold=crowd.gold)


def plant_shared_mistakes(generator: np.random.Generator, crowd: Crowd, K: int) -> None:
    first, second = crowd.labels[:, 0], crowd.labels[:, 1]
    follows = (first != crowd.truth) & (generator.random(len(first)) < 0.6)
    crowd.labels[:, 1] = np.where(follows, first, second)


def plant_shared_traps(generator: np.random.Generator, crowd: Crowd, K: int) -> None:
    is_trap = generator.random(len(crowd.truth)) < 0.15
    wrong = (crowd.truth + generator.integers(1, K, len(crowd.truth))) % K
    crowd.labels[:, :2] = np.where(is_trap[:, None], wrong[:, None], crowd.labels[:, :2])


def plant_random_labels(generator: np.random.Generator, crowd: Crowd, K: int) -> None:
    crowd.labels[:, 0] = generator.choice(K, len(crowd.truth), p=generator.dirichlet(np.full(K, 5.0)))


def plant_constant_labels(generator: np.random.Generator, crowd: Crowd, K: int) -> None:
    crowd.labels[:, 0] = generator.integers(K)


def plant_copy(generator: np.random.Generator, crowd: Crowd, K: int) -> None:
    copied = generator.random(len(crowd.truth)) < 0.95
    crowd.labels[:, 1] = np.where(copied, crowd.labels[:, 0], crowd.labels[:, 1])


def plant_missing_class(generator: np.random.Generator, crowd: Crowd, K: int) -> None:
    crowd.probabilities[:, 0] *= 1e-3
    crowd.probabilities /= crowd.probabilities.sum(1, keepdims=True)
    crowd.probabilities[crowd.probabilities.argmax(1) == 0] = [0, *[1 / (K - 1)] * (K - 1)]


def plant_wrong_gold(generator: np.random.Generator, crowd: Crowd, K: int) -> None:
    is_wrong = (crowd.gold >= 0) & (generator.random(len(crowd.gold)) < 0.3)
    crowd.gold = np.where(is_wrong, (crowd.gold + 1) % K, crowd.gold)


def plant_wrong_inputs(generator: np.random.Generator, crowd: Crowd, K: int) -> None:
    crowd.probabilities = crowd.probabilities[generator.permutation(len(crowd.truth))]


FAULTS: dict[str, tuple[Callable[[np.random.Generator, Crowd, int], None], str, frozenset[str]]] = {
    "shared mistakes, 60 % of the first one's": (plant_shared_mistakes, "shared_mistakes", frozenset({"0", "1"})),
    "shared mistakes, 15 % of items": (plant_shared_traps, "shared_mistakes", frozenset({"0", "1"})),
    "spammer, random": (plant_random_labels, "uninformative_annotator", frozenset({"0"})),
    "spammer, constant": (plant_constant_labels, "uninformative_annotator", frozenset({"0"})),
    "copied labels": (plant_copy, "copied_labels", frozenset({"0", "1"})),
    "class never predicted": (plant_missing_class, "class_never_predicted", frozenset()),
    "wrong gold": (plant_wrong_gold, "gold_contradicts_consensus", frozenset()),
    "inputs without information": (plant_wrong_inputs, "labels_ignore_inputs", frozenset()),
}


def names_fault(finding: Finding, kind: str, annotators: frozenset[str]) -> bool:
    """Return whether a finding has the kind of the fault and names its annotators; a shared mistake may be a copy."""
    words = set(finding.message.replace(":", " ").split())
    kinds = {"shared_mistakes", "copied_labels"} if kind == "shared_mistakes" else {kind}
    return finding.kind in kinds and annotators <= words


@dataclass(frozen=True)
class Job:
    fault: str | None  # None: a healthy crowd
    n_items: int | None  # None: drawn
    number: int

    @property
    def key(self) -> tuple[str | None, int | None, int]:
        return self.fault, self.n_items, self.number


def list_jobs(n_healthy: int, n_faulty: int) -> Iterator[Job]:
    """Yield all crowds, in an order in which an interrupted run has some of each kind."""
    for number in range(n_faulty):
        for healthy in range(number * n_healthy // n_faulty, (number + 1) * n_healthy // n_faulty):
            yield Job(None, None, healthy)
        for fault in FAULTS:
            for n_items in (300, 1_000):
                yield Job(fault, n_items, number)


def make_crowd(job: Job, seed: int) -> tuple[Crowd, int, float]:
    """Return a crowd, its number of classes and the share of labels that are present."""
    if job.fault is None or job.n_items is None:
        generator = np.random.default_rng([seed, job.number])
        n = round(np.exp(generator.uniform(np.log(100), np.log(5_000))))
        K, R = int(generator.choice([2, 3, 10])), int(generator.choice([3, 4, 5, 8, 15, 30, 50]))
        crowd = draw_crowd(generator, n, K, R)
        density = float(generator.choice([0.3, 0.6, 1.0]))
    else:
        generator = np.random.default_rng([seed, job.number, job.n_items, list(FAULTS).index(job.fault)])
        plant, kind, _ = FAULTS[job.fault]
        is_rare = kind == "class_never_predicted"
        K, R = int(generator.choice([3, 10] if is_rare else [2, 3, 10])), int(generator.choice([5, 10]))
        crowd = draw_crowd(
            generator, job.n_items, K, R, np.array([0.1, *[0.9 / (K - 1)] * (K - 1)]) if is_rare else None
        )
        plant(generator, crowd, K)
        density = float(generator.choice([0.6, 1.0]))
    crowd.labels[generator.random(crowd.labels.shape) > density] = -1
    return crowd, K, density


def run(job: Job, seed: int) -> dict[str, Any]:
    """Return the line of a crowd: its size, and by classifier the findings and whether they name the fault."""
    crowd, K, density = make_crowd(job, seed)
    n, R = crowd.labels.shape
    line: dict[str, Any] = {"fault": job.fault, "n_items": job.n_items, "number": job.number, "seed": seed}
    line |= {"items": n, "classes": K, "annotators": R, "density": density, "results": {}}
    for classifier in CLASSIFIERS:
        start = time.process_time()
        if job.fault is None:
            findings = find(crowd, K, classifier)
            result: dict[str, Any] = {"kinds": sorted({finding.kind for finding in findings})}
        else:
            _, kind, annotators = FAULTS[job.fault]
            if classifier == "none" and kind in ("class_never_predicted", "labels_ignore_inputs"):
                continue
            findings = find(crowd, K, classifier)
            is_fault = [names_fault(finding, kind, annotators) for finding in findings]
            result = {"found": any(is_fault), "other": not all(is_fault)}
        result |= {"messages": [finding.message for finding in findings], "seconds": time.process_time() - start}
        line["results"][classifier] = result
    return line


def count_false_alarms(lines: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the number of healthy crowds with at least one finding, by classifier and kind."""
    healthy = [line for line in lines if line["fault"] is None]
    return {
        name: {kind: sum(kind in line["results"][name]["kinds"] for line in healthy) for kind in KINDS}
        for name in CLASSIFIERS
    }


def measure_power(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the share of crowds in which the planted fault is found, one row per fault, size and classifier."""
    rows = []
    for fault in FAULTS:
        for n_items in (300, 1_000):
            for classifier in CLASSIFIERS:
                chosen = [line for line in lines if (line["fault"], line["n_items"]) == (fault, n_items)]
                chosen = [line for line in chosen if classifier in line["results"]]
                if not chosen:
                    continue
                found = np.array([line["results"][classifier]["found"] for line in chosen])
                classes = np.array([line["classes"] for line in chosen])
                rows.append(
                    {
                        "fault": fault,
                        "n_items": n_items,
                        "classifier": classifier,
                        "n_crowds": len(chosen),
                        "power": float(found.mean()),
                        "power_by_n_classes": {int(K): float(found[classes == K].mean()) for K in np.unique(classes)},
                        "other_findings": float(np.mean([line["results"][classifier]["other"] for line in chosen])),
                    }
                )
    return rows


def measure_seconds() -> float:
    """Return the CPU time for a million labels: 200,000 items, 2,000 annotators, 10 classes."""
    generator = np.random.default_rng(0)
    n, R, K = 200_000, 2_000, 10
    truth = generator.integers(0, K, n)
    item = np.repeat(np.arange(n), 5)
    teams = generator.integers(0, R // 10, n)  # teams of ten, so that pairs have common items
    annotator = (teams[:, None] * 10 + generator.random((n, 10)).argsort(1)[:, :5]).ravel()
    accuracy = generator.uniform(0.5, 0.95, R)
    is_right = generator.random(len(item)) < accuracy[annotator]
    label = np.where(is_right, truth[item], generator.integers(0, K, len(item)))
    ann = Annotations(
        indptr=np.arange(0, 5 * n + 1, 5),
        annotator=annotator.astype(np.int32),
        label=label.astype(np.int32),
        items=np.arange(n),
        annotators=np.arange(R),
        classes=np.arange(K),
        by_row=True,
    )
    probabilities = ann.vote_shares()
    predicted = np.where(generator.random(n) < 0.75, truth, generator.integers(0, K, n))
    start = time.process_time()
    findings = diagnose(ann, probabilities, predicted=predicted)
    seconds = time.process_time() - start
    print(f"a million labels: {seconds:.1f} s of CPU time, {len(findings)} findings", flush=True)
    return seconds


def show(lines: list[dict[str, Any]]) -> None:
    """Print false alarms and power as tables."""
    alarms = count_false_alarms(lines)
    n_healthy = sum(line["fault"] is None for line in lines)
    print(f"\n| false alarms in {n_healthy} crowds | {' | '.join(f'classifier {name}' for name in CLASSIFIERS)} |")
    print("|---|" + "---|" * len(CLASSIFIERS))
    for kind in KINDS:
        print(f"| `{kind}` | {' | '.join(str(alarms[name][kind]) for name in CLASSIFIERS)} |")
    print("\n| planted fault | classifier | items | crowds | power (%) | with 2, 3, 10 classes | other findings (%) |")
    print("|---|---|---|---|---|---|---|")
    for row in measure_power(lines):
        by_classes = row["power_by_n_classes"]
        parts = ", ".join(f"{100 * by_classes[K]:.0f}" if K in by_classes else "-" for K in (2, 3, 10))
        print(
            f"| {row['fault']} | {row['classifier']} | {row['n_items']:,} | {row['n_crowds']} | "
            f"{100 * row['power']:.0f} | {parts} | {100 * row['other_findings']:.0f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("diagnostics.jsonl"), help="one line per crowd")
    parser.add_argument("--crowds", type=int, default=200, help="healthy crowds")
    parser.add_argument("--faulty-crowds", type=int, default=60, help="crowds per planted fault and size")
    parser.add_argument("--seed", type=int, default=18)
    parser.add_argument("--show", action="store_true", help="print the tables of what has run, and run nothing")
    parser.add_argument("--json", type=Path, help="write a summary")
    given = parser.parse_args()
    lines = [json.loads(line) for line in given.results.read_text().splitlines()] if given.results.exists() else []
    if any(line["seed"] != given.seed for line in lines):
        parser.error(
            f"{given.results} has crowds of seed {lines[0]['seed']}, not {given.seed}: give that seed, or another file"
        )
    if not given.show:
        done = {(line["fault"], line["n_items"], line["number"]) for line in lines}
        with given.results.open("a") as file:
            for job in list_jobs(given.crowds, given.faulty_crowds):
                if job.key in done:
                    continue
                lines.append(run(job, given.seed))
                file.write(json.dumps(lines[-1]) + "\n")
                file.flush()
    show(lines)
    if given.json:
        content = {
            "seed": given.seed,
            "n_healthy_crowds": sum(line["fault"] is None for line in lines),
            "false_alarms": count_false_alarms(lines),
            "power": measure_power(lines),
            "million_labels_cpu_seconds": round(measure_seconds(), 1),
        }
        given.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()

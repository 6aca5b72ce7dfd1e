"""Choose the labels to collect next (which annotator, which item), for the most information per cost."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.aggregation.posterior import ANNOTATOR_PRIOR_LABELS
from crowdfuse.aggregation.result import Aggregate
from crowdfuse.aggregation.votes import FLOATS_PER_BLOCK, FloatArray
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray, format_count, format_names, normalize_ids, positions_of, refuse_repeats
from crowdfuse.quality.consensus import Consensus

MIN_INFORMATION_BITS = 1e-9  # labels with less information are not proposed
MAX_ANSWER_BRANCHES = 128  # combinations of answers that are considered per item; the least likely ones are dropped


def next_labels(
    ann: Annotations,
    model: Aggregate,
    budget: float,
    annotators: ArrayLike | None = None,
    cost: Mapping[Any, float] | None = None,
    *,
    pairs: tuple[ArrayLike, ArrayLike] | None = None,
) -> Any:
    """Choose the labels to collect next (which annotator, which item), the most informative first.

    Parameters
    ----------
    ann : Annotations
        The labels so far.
    model : Aggregate
        Class probabilities of the items and confusion matrices of the annotators. Pass the result of `consensus(ann,
        pred_probs)`, of `clf.consensus(X, ann)`, or of a function of `crowdfuse.aggregation` such as
        `dawid_skene(ann)`. If the model has no class probabilities for an item without labels, the item is given the
        mean class probabilities of the other items.
    budget : float
        Number of labels to collect. If `cost` is given: the maximum total cost of the labels to collect.
    annotators : array-like or None, default=None
        Names of the annotators who can be asked. Annotators who are not in the model are treated like the average
        annotator. None: all annotators of `ann`.
    cost : mapping of str to float or None, default=None
        Cost of one label by each annotator. The keys are the names of the annotators who can be asked. None: each label
        costs 1.
    pairs : tuple of two array-likes or None, default=None
        A list of item ids and a list of annotator names, of the same length: the annotator at position i of the second
        list may be asked about the item at position i of the first list. None: every annotator may be asked about every
        item.

    Returns
    -------
    table : pyarrow.Table
        One row per proposed label, in the order of choice, with the columns item, annotator, information (in bits) and
        cost. A label is not proposed if the annotator has already labelled the item.

    Raises
    ------
    TypeError
        If `ann`, `model` or `cost` has the wrong type.
    ValueError
        If the budget or a cost is not above 0, if `annotators` is empty or repeats a name, if `cost` lacks an annotator
        who can be asked, if `pairs` contains an unknown item or an annotator who cannot be asked, or if items or
        classes of `ann` are missing from the model.

    See Also
    --------
    consensus : Computes a model from the labels and the probabilities of any classifier.

    Notes
    -----
    The information of a label by annotator r is the mutual information, in bits, between the true class and the
    annotator's answer, given the labels so far. H is the entropy, k runs over the classes, and `confusion[r, k, :]` is
    the distribution of the answers of annotator r on items of class k::

        I(true; answer)  =  H(sum_k P(true = k) confusion[r, k, :])  -  sum_k P(true = k) H(confusion[r, k, :])

    Labels are chosen one by one, with the highest information per cost first. After a label of an item has been chosen,
    a second label of the same item gives less information. How much less depends on the value of the first label, which
    is not known yet. The information of the second label is therefore averaged over the possible values of the first.

    Examples
    --------
    >>> from crowdfuse.aggregation import one_coin
    >>> labels = [[0, 0, 0], [1, 1, 1], [0, 0, 1], [1, 1, 0], [0, 0, 0], [0, 1, -1]]
    >>> ann = Annotations.from_matrix(labels, annotators=["ada", "bob", "cy"])
    >>> next_labels(ann, one_coin(ann), budget=1).select(["item", "annotator"]).to_pylist()
    [{'item': 5, 'annotator': 'cy'}]
    """
    import pyarrow as pa

    if not isinstance(ann, Annotations):
        raise TypeError(
            f"ann must be Annotations, got {type(ann).__name__}; create them with Annotations.from_matrix()"
        )
    if not isinstance(model, Aggregate):
        raise TypeError(
            f"model must be an Aggregate, got {type(model).__name__}; pass the result of "
            "crowdfuse.consensus(annotations, pred_probs), of clf.consensus(X, annotations) for a fitted classifier "
            "clf, or of crowdfuse.aggregation.dawid_skene(annotations)"
        )
    if isinstance(budget, bool) or not isinstance(budget, (int, float, np.number)) or not 0 < budget < math.inf:
        raise ValueError(f"budget must be a number above 0, got {budget!r}")
    people = ann.annotators if annotators is None else normalize_ids(annotators, "annotators")
    refuse_repeats(people, "annotators")
    if not len(people):
        raise ValueError("annotators= is empty; name at least one annotator who is available for further labels")
    prices = _prices(people, cost)
    posterior = _posterior(ann, model)
    gains = _Gains(_confusions(people, model))
    open_pairs = _OpenPairs(ann, people, pairs)

    # one candidate per item: its best label; if it is chosen, only the candidate of this item changes
    candidates: list[tuple[float, int, int, float]] = []
    for rows in _blocks(len(posterior), gains.confusions.size // posterior.shape[1]):
        gain = gains.information(posterior[rows])
        rate = np.where(open_pairs.block(rows), gain / prices, -np.inf)
        best = rate.argmax(1)
        at = np.flatnonzero(rate.max(1) > 0)  # for all other items, no annotator is left
        best = best[at]
        candidates += zip(
            (-rate[at, best]).tolist(), (rows.start + at).tolist(), best.tolist(), gain[at, best].tolist(),
            strict=True,
        )  # fmt: skip
    heapq.heapify(candidates)

    chosen: list[tuple[int, int, float]] = []
    # per item with proposals: probabilities of the answers, and class probabilities after each of them
    answers: dict[int, tuple[FloatArray, FloatArray]] = {}
    left = float(budget)
    while candidates and prices.min() <= left:
        _, item, annotator, information = heapq.heappop(candidates)
        weights, branches = answers.get(item, (np.ones(1), posterior[item : item + 1]))
        if information > MIN_INFORMATION_BITS and prices[annotator] <= left:
            chosen.append((item, annotator, information))
            left -= prices[annotator]
            open_pairs.close(item, annotator)
            answers[item] = weights, branches = _after_answer(weights, branches, gains.confusions[annotator])
        elif information <= MIN_INFORMATION_BITS:
            continue
        # the next best label of the item, by an annotator whom the remaining budget allows
        gain = weights @ gains.information(branches)
        rate = np.where(
            open_pairs.for_item(item) & (prices <= left) & (gain > MIN_INFORMATION_BITS), gain / prices, -np.inf
        )
        best_one = int(rate.argmax())
        if rate[best_one] > 0:
            heapq.heappush(candidates, (-float(rate[best_one]), item, best_one, float(gain[best_one])))
    chosen_items, chosen_annotators = (np.array([row[i] for row in chosen], np.int64) for i in (0, 1))
    return pa.table(
        {
            "item": pa.array(ann.items).take(pa.array(chosen_items)),
            "annotator": pa.array(people).take(pa.array(chosen_annotators)),
            "information": pa.array([information for _, _, information in chosen], pa.float64()),
            "cost": pa.array(prices[chosen_annotators]),
        }
    )


class _Gains:
    """Information of the answer of each annotator, in bits."""

    def __init__(self, confusions: FloatArray) -> None:
        self.confusions = confusions
        R, K, _ = confusions.shape
        self.by_class = np.ascontiguousarray(confusions.transpose(1, 0, 2).reshape(K, R * K))
        self.noise = _entropy(confusions).T  # (K, R): entropy of the answer given the class

    def information(self, posterior: FloatArray) -> FloatArray:
        """Return the information of each annotator's answer, (B, R), for class probabilities (B, K)."""
        R, K, _ = self.confusions.shape
        answers = (posterior @ self.by_class).reshape(-1, R, K)
        gain: FloatArray = np.maximum(_entropy(answers) - posterior @ self.noise, 0)
        return gain


class _OpenPairs:
    """The pairs (item, annotator) for which a label may still be proposed, computed for blocks of items on demand."""

    def __init__(self, ann: Annotations, people: NDArray[Any], pairs: tuple[ArrayLike, ArrayLike] | None) -> None:
        self.n_people = len(people)
        position = positions_of(ann.annotators, people)
        given = position[ann.annotator]
        self.given = _by_item(ann.item[given >= 0], given[given >= 0], ann.n_items)
        self.allowed = None if pairs is None else _checked_pairs(ann, people, pairs)
        self.closed: dict[int, list[int]] = {}

    def block(self, rows: slice) -> NDArray[np.bool_]:
        """Return whether each pair of a block of items is open, (B, R), not counting labels proposed so far."""
        is_open = np.full((rows.stop - rows.start, self.n_people), self.allowed is None)
        for pairs, value in ((self.allowed, True), (self.given, False)):
            if pairs is not None:
                indptr, annotator = pairs
                inside = slice(indptr[rows.start], indptr[rows.stop])
                item = np.repeat(np.arange(len(is_open)), np.diff(indptr[rows.start : rows.stop + 1]))
                is_open[item, annotator[inside]] = value
        return is_open

    def close(self, item: int, annotator: int) -> None:
        """Mark a pair as proposed."""
        self.closed.setdefault(item, []).append(annotator)

    def for_item(self, item: int) -> NDArray[np.bool_]:
        """Return whether each annotator may still be asked about the item, (R,)."""
        is_open: NDArray[np.bool_] = self.block(slice(item, item + 1))[0]
        is_open[self.closed.get(item, [])] = False
        return is_open


def _after_answer(weights: FloatArray, branches: FloatArray, confusion: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the probability of each combination of answers, (B,), and the class probabilities given it, (B, K)."""
    joint = weights[:, None, None] * branches[:, :, None] * confusion[None]  # (branch, true, said)
    joint = joint.transpose(0, 2, 1).reshape(-1, branches.shape[1])
    chance = joint.sum(1)
    if len(chance) > MAX_ANSWER_BRANCHES:
        kept = np.argpartition(-chance, MAX_ANSWER_BRANCHES)[:MAX_ANSWER_BRANCHES]
        joint, chance = joint[kept], chance[kept]
    joint, chance = joint[chance > 0], chance[chance > 0]
    return chance / chance.sum(), joint / chance[:, None]


def _entropy(p: FloatArray) -> FloatArray:
    """Return the entropy over the last axis, in bits."""
    logarithm = np.maximum(p, np.finfo(np.float64).tiny)  # 0 log 0 is 0
    np.log2(logarithm, out=logarithm)
    entropy: FloatArray = -np.einsum("...k,...k->...", p, logarithm)
    return entropy


def _posterior(ann: Annotations, model: Aggregate) -> FloatArray:
    """Return the class probabilities of the items of `ann`, (N, K); the mean for items without probabilities."""
    rows = positions_of(ann.items, model.items)
    if (rows < 0).any():
        raise ValueError(
            f"the model does not know the items {format_names(ann.items[rows < 0])}; compute the model from the same "
            "annotations, for example with dawid_skene(annotations)"
        )
    unknown = ann.classes[positions_of(ann.classes, model.classes) < 0]
    if len(unknown):
        raise ValueError(
            f"the model does not know the classes {format_names(unknown)}; compute the model from the same "
            "annotations, for example with dawid_skene(annotations)"
        )
    soft = model.class_probabilities.astype(np.float64)
    known = ~np.isnan(soft).any(1)
    soft[~known] = soft[known].mean(0)
    posterior: FloatArray = soft[rows]
    posterior /= posterior.sum(1, keepdims=True)
    return posterior


def _confusions(people: NDArray[Any], model: Aggregate) -> FloatArray:
    """Return the confusion matrices, (R, K, K), axes (annotator, true, said); new annotators get the average matrix.

    Matrices are shrunk towards the average matrix. Matrices of a `Consensus` are left as they are, because they are
    already shrunk.
    """
    n_labels = model.labels_per_annotator.astype(np.float64)
    known = n_labels > 0
    matrices = model.confusion_matrices
    if matrices is None:
        K = len(model.classes)
        accuracy = model.parameters.get("accuracy", model.annotator_accuracy)[:, None, None]
        matrices = np.where(np.eye(K, dtype=bool), accuracy, (1 - accuracy) / (K - 1))
    average = np.einsum("r,rks->ks", n_labels[known], matrices[known]) / n_labels.sum()
    all_matrices = np.where(known[:, None, None], matrices, average)
    if not isinstance(model, Consensus):
        share = (n_labels / (n_labels + ANNOTATOR_PRIOR_LABELS))[:, None, None]
        all_matrices = share * all_matrices + (1 - share) * average
    position = positions_of(people, model.annotators)
    chosen: FloatArray = np.concatenate([all_matrices, average[None]])[position]  # position -1 selects the last
    return chosen


def _prices(people: NDArray[Any], cost: Mapping[Any, float] | None) -> FloatArray:
    """Return the cost of a label by each annotator, (R,)."""
    if cost is None:
        return np.ones(len(people))
    if not isinstance(cost, Mapping):
        raise TypeError(f"cost must map each annotator to a number, such as {{'ada': 2.0}}, got {type(cost).__name__}")
    unnamed = [name for name in people.tolist() if name not in cost]
    if unnamed:
        raise ValueError(
            f"cost= has no cost for {format_names(unnamed)}; give one cost for each annotator who can be asked"
        )
    for name in people.tolist():
        if not isinstance(cost[name], (int, float, np.number)) or not 0 < cost[name] < math.inf:
            raise ValueError(f"the cost of {format_names([name])} is {cost[name]!r}; costs must be numbers above 0")
    return np.array([cost[name] for name in people.tolist()], np.float64)


def _checked_pairs(
    ann: Annotations, people: NDArray[Any], pairs: tuple[ArrayLike, ArrayLike]
) -> tuple[IntArray, IntArray]:
    """Return the allowed pairs: the start position of each item, and annotators sorted by item."""
    items, names = normalize_ids(pairs[0], "pairs[0]"), normalize_ids(pairs[1], "pairs[1]")
    if len(items) != len(names):
        raise ValueError(
            "pairs= must hold two lists of the same length, items and annotators; got "
            f"{format_count(len(items), 'item')} and {format_count(len(names), 'annotator')}"
        )
    row, person = positions_of(items, ann.items), positions_of(names, people)
    if (row < 0).any():
        raise ValueError(
            f"pairs= contains items that the annotations do not have: {format_names(items[row < 0])}. Correct the ids, "
            "or remove these pairs"
        )
    if (person < 0).any():
        raise ValueError(
            f"pairs= contains annotators who cannot be asked: {format_names(names[person < 0])}. Correct the names, "
            "remove these pairs, or add the annotators to annotators="
        )
    return _by_item(row, person, ann.n_items)


def _by_item(item: IntArray, annotator: IntArray, n_items: int) -> tuple[IntArray, IntArray]:
    """Return the start position of each item, (N + 1,), and the annotators sorted by item."""
    order = np.argsort(item, kind="stable")
    return np.searchsorted(item[order], np.arange(n_items + 1)), annotator[order]


def _blocks(n_items: int, width: int) -> list[slice]:
    """Return slices of items so small that a block with `width` numbers per item fits into memory."""
    step = max(FLOATS_PER_BLOCK // max(width, 1), 1)
    bounds = [*range(0, n_items, step), n_items]
    return [slice(start, end) for start, end in pairwise(bounds)]

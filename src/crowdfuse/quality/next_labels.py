"""Which item to show to whom next: the label from which most is to be learned."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.aggregation.result import Aggregate
from crowdfuse.aggregation.votes import FLOATS_PER_BLOCK, FloatArray
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray, format_names, normalize_ids, positions_of, refuse_repeats
from crowdfuse.quality.label_quality import ANNOTATOR_PRIOR_LABELS, LabelQuality

MIN_INFORMATION_BITS = 1e-9  # bits that are not worth asking for
MAX_ANSWER_BRANCHES = 128  # answers to earlier proposals that are thought through; the less likely ones are dropped


def next_labels(
    ann: Annotations,
    model: Aggregate,
    budget: float,
    annotators: ArrayLike | None = None,
    cost: Mapping[Any, float] | None = None,
    *,
    pairs: tuple[ArrayLike, ArrayLike] | None = None,
) -> Any:
    """The labels to ask for next, the best first: a pyarrow table of item, annotator, information, cost.

    `model` says how likely the classes of each item are, and how annotators confuse them: what
    `label_quality(ann, probs)`, a fitted classifier's `label_quality(X, ann)` or a method of
    `crowdfuse.aggregation`, such as `dawid_skene(ann)`, gives. Information is the mutual
    information between true class and answer, in bits, given what is known already:

        I(true; answer)  =  H(sum_k P(true = k) confusion[r, k, :])  -  sum_k P(true = k) H(confusion[r, k, :])

    Labels are chosen one by one, the highest information per cost first. What is chosen counts: the information of a
    second label of an item is what it adds to the first, in the mean over the answers that the first may get. No label
    is proposed that exists.

    `budget` is what may be spent: the number of labels, or the sum of their costs, where `cost` names a price for each
    annotator. `annotators` are those who can be asked, without it all of `ann`; one who is new counts as the average
    annotator. `pairs`, item ids and annotators' names side by side, leaves the choice among these pairs alone.

    An item that has no labels, and of which the model says nothing, may be of any class as often as items in general.

    >>> from crowdfuse.aggregation import one_coin
    >>> said = [[0, 0, 0], [1, 1, 1], [0, 0, 1], [1, 1, 0], [0, 0, 0], [0, 1, -1]]
    >>> ann = Annotations.from_matrix(said, annotators=["ada", "bob", "cy"])
    >>> next_labels(ann, one_coin(ann), budget=1).select(["item", "annotator"]).to_pylist()
    [{'item': 5, 'annotator': 'cy'}]
    """
    import pyarrow as pa

    if not isinstance(ann, Annotations):
        raise TypeError(f"labels must be Annotations, got {type(ann).__name__}; Annotations.from_matrix() makes them")
    if not isinstance(model, Aggregate):
        raise TypeError(
            f"model must know the classes of items and the skills of annotators, got {type(model).__name__}; pass what "
            "label_quality(ann, pred_probs), clf.label_quality(X, ann) or aggregation.dawid_skene(ann) gives"
        )
    if isinstance(budget, bool) or not isinstance(budget, (int, float, np.number)) or not 0 < budget < math.inf:
        raise ValueError(f"budget must be a number above 0, got {budget!r}")
    people = ann.annotators if annotators is None else normalize_ids(annotators, "annotators")
    refuse_repeats(people, "annotators")
    if not len(people):
        raise ValueError("there is nobody to ask; annotators= must name at least one")
    prices = _prices(people, cost)
    posterior = _posterior(ann, model)
    gains = _Gains(_confusions(people, model))
    open_pairs = _OpenPairs(ann, people, pairs)

    # of each item only the best label is a candidate; it alone changes when a label of the item is chosen
    candidates: list[tuple[float, int, int, float]] = []
    for rows in _blocks(len(posterior), gains.confusions.size // posterior.shape[1]):
        gain = gains.information(posterior[rows])
        rate = np.where(open_pairs.block(rows), gain / prices, -np.inf)
        best = rate.argmax(1)
        at = np.flatnonzero(rate.max(1) > 0)  # the others have nobody left to ask
        best = best[at]
        candidates += zip(
            (-rate[at, best]).tolist(), (rows.start + at).tolist(), best.tolist(), gain[at, best].tolist(),
            strict=True,
        )  # fmt: skip
    heapq.heapify(candidates)

    chosen: list[tuple[int, int, float]] = []
    thought: dict[int, tuple[FloatArray, FloatArray]] = {}  # of items with proposals: chances of answers, posteriors
    left = float(budget)
    while candidates and prices.min() <= left:
        _, item, annotator, information = heapq.heappop(candidates)
        weights, branches = thought.get(item, (np.ones(1), posterior[item : item + 1]))
        if information > MIN_INFORMATION_BITS and prices[annotator] <= left:
            chosen.append((item, annotator, information))
            left -= prices[annotator]
            open_pairs.close(item, annotator)
            thought[item] = weights, branches = _after(weights, branches, gains.confusions[annotator])
        elif information <= MIN_INFORMATION_BITS:
            continue
        # the item's next best, among those who can still be paid
        gain = weights @ gains.information(branches)
        rate = np.where(open_pairs.of(item) & (prices <= left) & (gain > MIN_INFORMATION_BITS), gain / prices, -np.inf)
        best_one = int(rate.argmax())
        if rate[best_one] > 0:
            heapq.heappush(candidates, (-float(rate[best_one]), item, best_one, float(gain[best_one])))
    rows_chosen, who = (np.array([row[i] for row in chosen], np.int64) for i in (0, 1))
    return pa.table(
        {
            "item": pa.array(ann.items).take(pa.array(rows_chosen)),
            "annotator": pa.array(people).take(pa.array(who)),
            "information": pa.array([information for _, _, information in chosen], pa.float64()),
            "cost": pa.array(prices[who]),
        }
    )


class _Gains:
    """The information of each annotator's answer, in bits."""

    def __init__(self, confusions: FloatArray) -> None:
        self.confusions = confusions
        R, K, _ = confusions.shape
        self.by_class = np.ascontiguousarray(confusions.transpose(1, 0, 2).reshape(K, R * K))
        self.noise = _entropy(confusions).T  # (K, R): what the answer leaves open even where the class is known

    def information(self, posterior: FloatArray) -> FloatArray:
        """(B, K) to (B, R)."""
        R, K, _ = self.confusions.shape
        answers = (posterior @ self.by_class).reshape(-1, R, K)
        gain: FloatArray = np.maximum(_entropy(answers) - posterior @ self.noise, 0)
        return gain


class _OpenPairs:
    """Who may still be asked about what: bits of rows of items, made when they are needed."""

    def __init__(self, ann: Annotations, people: NDArray[Any], pairs: tuple[ArrayLike, ArrayLike] | None) -> None:
        self.n_people = len(people)
        position = positions_of(ann.annotators, people)
        given = position[ann.annotator]
        self.given = _by_item(ann.item[given >= 0], given[given >= 0], ann.n_items)
        self.allowed = None if pairs is None else _checked_pairs(ann, people, pairs)
        self.closed: dict[int, list[int]] = {}

    def block(self, rows: slice) -> NDArray[np.bool_]:
        is_open = np.full((rows.stop - rows.start, self.n_people), self.allowed is None)
        for pairs, value in ((self.allowed, True), (self.given, False)):
            if pairs is not None:
                indptr, annotator = pairs
                inside = slice(indptr[rows.start], indptr[rows.stop])
                item = np.repeat(np.arange(len(is_open)), np.diff(indptr[rows.start : rows.stop + 1]))
                is_open[item, annotator[inside]] = value
        return is_open

    def close(self, item: int, annotator: int) -> None:
        self.closed.setdefault(item, []).append(annotator)

    def of(self, item: int) -> NDArray[np.bool_]:
        is_open: NDArray[np.bool_] = self.block(slice(item, item + 1))[0]
        is_open[self.closed.get(item, [])] = False
        return is_open


def _after(weights: FloatArray, branches: FloatArray, confusion: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What may be known once one more answer is there: (B,) chances and (B, K) posteriors, the likeliest of them."""
    joint = weights[:, None, None] * branches[:, :, None] * confusion[None]  # (branch, true, said)
    joint = joint.transpose(0, 2, 1).reshape(-1, branches.shape[1])
    chance = joint.sum(1)
    if len(chance) > MAX_ANSWER_BRANCHES:
        kept = np.argpartition(-chance, MAX_ANSWER_BRANCHES)[:MAX_ANSWER_BRANCHES]
        joint, chance = joint[kept], chance[kept]
    joint, chance = joint[chance > 0], chance[chance > 0]
    return chance / chance.sum(), joint / chance[:, None]


def _entropy(p: FloatArray) -> FloatArray:
    """In bits, over the last axis."""
    logarithm = np.maximum(p, np.finfo(np.float64).tiny)  # 0 log 0 is 0
    np.log2(logarithm, out=logarithm)
    entropy: FloatArray = -np.einsum("...k,...k->...", p, logarithm)
    return entropy


def _posterior(ann: Annotations, model: Aggregate) -> FloatArray:
    """(N, K): how likely the classes of ann's items are; where the model does not know, as in general."""
    rows = positions_of(ann.items, model.items)
    if (rows < 0).any():
        raise ValueError(
            f"the model does not know {format_names(ann.items[rows < 0])} of the items; make it from these annotations"
        )
    strange = ann.classes[positions_of(ann.classes, model.classes) < 0]
    if len(strange):
        raise ValueError(f"the model does not know the classes {format_names(strange)}; make it from these annotations")
    soft = model.class_probabilities.astype(np.float64)
    known = ~np.isnan(soft).any(1)
    soft[~known] = soft[known].mean(0)
    posterior: FloatArray = soft[rows]
    posterior /= posterior.sum(1, keepdims=True)
    return posterior


def _confusions(people: NDArray[Any], model: Aggregate) -> FloatArray:
    """(R, K, K), axes (true, said), of these annotators. Who is new is the average annotator.

    Few labels say little: but for those of `quality`, which are so already, matrices are drawn towards the average.
    """
    n_labels = model.labels_per_annotator.astype(np.float64)
    known = n_labels > 0
    matrices = model.confusion_matrices
    if matrices is None:
        K = len(model.classes)
        accuracy = model.parameters.get("accuracy", model.annotator_accuracy)[:, None, None]
        matrices = np.where(np.eye(K, dtype=bool), accuracy, (1 - accuracy) / (K - 1))
    average = np.einsum("r,rks->ks", n_labels[known], matrices[known]) / n_labels.sum()
    everyone = np.where(known[:, None, None], matrices, average)
    if not isinstance(model, LabelQuality):
        share = (n_labels / (n_labels + ANNOTATOR_PRIOR_LABELS))[:, None, None]
        everyone = share * everyone + (1 - share) * average
    position = positions_of(people, model.annotators)
    chosen: FloatArray = np.concatenate([everyone, average[None]])[position]  # -1 takes the last
    return chosen


def _prices(people: NDArray[Any], cost: Mapping[Any, float] | None) -> FloatArray:
    if cost is None:
        return np.ones(len(people))
    if not isinstance(cost, Mapping):
        raise TypeError(f"cost must map each annotator to a price, such as {{'ada': 2.0}}, got {type(cost).__name__}")
    unnamed = [name for name in people.tolist() if name not in cost]
    if unnamed:
        raise ValueError(
            f"cost= has no price for {format_names(unnamed)}; name one for each annotator who can be asked"
        )
    for name in people.tolist():
        if not isinstance(cost[name], (int, float, np.number)) or not 0 < cost[name] < math.inf:
            raise ValueError(f"the cost of {format_names([name])} is {cost[name]!r}; costs must be numbers above 0")
    return np.array([cost[name] for name in people.tolist()], np.float64)


def _checked_pairs(
    ann: Annotations, people: NDArray[Any], pairs: tuple[ArrayLike, ArrayLike]
) -> tuple[IntArray, IntArray]:
    items, names = normalize_ids(pairs[0], "pairs[0]"), normalize_ids(pairs[1], "pairs[1]")
    if len(items) != len(names):
        raise ValueError(f"pairs= must be items and annotators side by side, got {len(items):,} and {len(names):,}")
    row, person = positions_of(items, ann.items), positions_of(names, people)
    for what, codes, given in (("items", row, items), ("annotators", person, names)):
        if (codes < 0).any():
            raise ValueError(
                f"pairs= names {format_names(given[codes < 0])}, not among the {what} that can be asked for"
            )
    return _by_item(row, person, ann.n_items)


def _by_item(item: IntArray, annotator: IntArray, n_items: int) -> tuple[IntArray, IntArray]:
    order = np.argsort(item, kind="stable")
    return np.searchsorted(item[order], np.arange(n_items + 1)), annotator[order]


def _blocks(n_items: int, width: int) -> list[slice]:
    """Rows of items such that their answers, `width` numbers each, fit into a block."""
    step = max(FLOATS_PER_BLOCK // max(width, 1), 1)
    bounds = [*range(0, n_items, step), n_items]
    return [slice(start, end) for start, end in pairwise(bounds)]

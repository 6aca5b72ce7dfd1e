"""The gated channel: how likely each annotator is right on each item, learned with the classifier.

A network says what an item is, and gates say whether an annotator can read it; together they must explain all labels
of an item at once. That is the model of Yan et al. (2010) made deep, and, with one class given, of MaDL (Herde et al.,
2023) with an isotropic matrix. Where an annotator is worse than chance its label says what the item is not, as
complementary labels do (Ishida et al., 2017).

Such a likelihood has more than one best answer, so where it starts decides where it ends. Training therefore has three
phases. First a network for what each annotator would *say* of an item: that is plain classification, with one answer.
Then, from what they would say, what the item most likely *is*, with no other assumption than that an annotator's wrong
labels are even; classifier and gates start as that. Only then the likelihood.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, logsigmoid, one_hot

from crowdfuse.batches import Batch, TrainingData
from crowdfuse.functional import class_scores, posterior, scatter_sum
from crowdfuse.methods.base import Judge, Loss, Method, Phase, Predict, Problem
from crowdfuse.methods.wrong_labels import WrongLabels
from crowdfuse.nets.annotator_heads import AnnotatorEmbedding, AnnotatorHead, EmbeddedHead

SHARES = (0.25, 0.08)  # of the epochs: on what annotators say, and on the start; the rest is for the likelihood
ASKED = 64  # annotators at most, those with the most labels, who are asked what they would say of an item

Heads = Callable[[int, tuple[int, ...], int, int], nn.Module]
Reading = Literal["any", "above chance"]


class Gated(Method):
    """`mean_n -log sum_k f_n(k) prod_{r in S_n} p(y_nr | k)`, with `p(y | k) = g_nr` where y is k, and
    `(1 - g_nr) W_r[k, y]` where it is not: g_nr the gate of the pair, W what is said instead.
    """

    confusion_given = "true"
    kept: ClassVar[tuple[str, ...]] = ("target",)

    started: Tensor
    asked: Tensor
    target: Tensor

    def __init__(
        self, problem: Problem, *, heads: Literal["shared", "embedded"], embedding: int, wrong: WrongLabels
    ) -> None:
        super().__init__(problem)
        make: Heads = AnnotatorHead
        hidden = problem.head_hidden
        if heads == "embedded":
            hidden = hidden or (64,)
            make = partial(EmbeddedHead, embedding=AnnotatorEmbedding(problem.n_annotators, embedding))
        n_features, n_annotators = problem.trunk.n_features, problem.n_annotators
        self.heads = heads
        self.says = make(n_features, hidden, n_annotators, problem.n_classes)
        self.gate = make(n_features, hidden[-1:], n_annotators, 1)
        self.wrong = wrong
        self.reading: Reading | None = None
        self.register_buffer("started", torch.zeros((), dtype=torch.bool))
        self.register_buffer("asked", torch.zeros(n_annotators))  # how much each counts when asked

    def phases(self, epochs: int) -> list[Phase]:
        """What annotators say, the start, the likelihood; held-out labels choose among what comes after the start."""
        says, start = (max(1, round(share * epochs)) for share in SHARES)
        return [
            Phase("what annotators say", says, chosen="never"),
            Phase("start", start, chosen="end"),
            Phase("gates", max(0, epochs - says - start), chosen="any"),
        ]

    def prepare(self, data: TrainingData) -> None:
        ann = data.annotations
        counts = np.bincount(ann.annotator, data.weight[ann.item], minlength=self.n_annotators)
        counts[np.argsort(-counts, kind="stable")[ASKED:]] = 0
        self.asked.copy_(torch.from_numpy(counts / max(counts.sum(), 1e-9)))
        self.register_buffer("target", torch.zeros(len(data), dtype=torch.int64), persistent=False)

    def begin_phase(self, data: TrainingData, predict: Predict, judge: Judge | None) -> None:
        """Before the start: read from what annotators would say what each item is."""
        if self.phase == 1:
            classes = renamed(self._read(predict, judge), data.gold, self.n_classes)
            self.target.copy_(torch.from_numpy(classes))
            self.started.fill_(True)

    def _read(self, predict: Predict, judge: Judge | None) -> NDArray[np.int64]:
        """The class of every row.

        Labels below chance are read as saying what an item is not, where held-out labels bear that out. With two
        classes nothing could: there the mirror image explains them equally well.
        """
        self.reading = "above chance"
        if self.n_classes > 2 and judge is not None:
            above, any_ = (judge(partial(self._as_read, reading)) for reading in ("above chance", "any"))
            self.reading = "any" if any_.beats(above) else "above chance"
        try:
            classes: NDArray[np.int64] = predict().argmax(1)
        finally:
            self.reading = None  # also where Ctrl-C ends it: a saved model would not know of it
        return classes

    def _as_read(self, reading: Reading, h: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """How likely each label is if the items are what this reading takes them for, in logs, (L,)."""
        truth = self._asked_scores(h, reading).argmax(1)[item]
        q = self.says(h, item, annotator).softmax(1).gather(1, truth[:, None])[:, 0].clamp(1e-6, 1 - 1e-6)
        if reading == "above chance":
            q = q.clamp(min=1 / self.n_classes)
        return torch.where(label == truth, q.log(), ((1 - q) / (self.n_classes - 1)).log())

    def log_likelihood(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        log_f = self.class_logits(features).log_softmax(1)[item]
        return (log_f + self._evidence(features, item, annotator, label)).logsumexp(1)

    def class_logits(self, h: Tensor) -> Tensor:
        """Features (B, D) to class logits (B, K): before the start, what annotators would say amounts to."""
        if self.reading is None and self.started:
            return super().class_logits(h)
        return self._asked_scores(h, self.reading or "above chance")

    def _asked_scores(self, h: Tensor, reading: Reading) -> Tensor:
        annotators = self.asked.nonzero()[:, 0]
        pair = torch.arange(len(h) * len(annotators), device=h.device)
        said = self.says(h, pair // len(annotators), annotators[pair % len(annotators)])
        q = said.softmax(1).view(len(h), len(annotators), self.n_classes)
        return (self.asked[annotators, None] * class_scores(q, above_chance=reading == "above chance")).sum(1)

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        weight = batch.weight * (torch.bincount(batch.item, minlength=batch.n_items) > 0)
        if self.phase == 0:
            losses = self._saying(h, batch)
        elif self.phase == 1:
            losses = self._starting(h, batch, self.target.to(batch.row.device)[batch.row])
        else:
            log_f = super().class_logits(h).log_softmax(1)
            evidence = self._evidence(h, batch.item, batch.annotator, batch.label)
            losses = -(log_f + scatter_sum(evidence, batch.item, batch.n_items)).logsumexp(1)
        return Loss((weight * losses).sum(), weight.sum())

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """The class is certain, and whether each annotator was right is seen."""
        if self.phase == 0:
            return self._saying(h, batch)
        return self._starting(h, batch, batch.gold)

    def _saying(self, h: Tensor, batch: Batch) -> Tensor:
        said = cross_entropy(self.says(h, batch.item, batch.annotator), batch.label, reduction="none")
        return scatter_sum(said, batch.item, batch.n_items)

    def _starting(self, h: Tensor, batch: Batch, truth: Tensor) -> Tensor:
        """Classifier, gates and wrong labels as if this were the truth, (B,)."""
        of_class = cross_entropy(super().class_logits(h), truth, reduction="none")
        logits = self.gate(h, batch.item, batch.annotator)[:, 0]
        is_right = (batch.label == truth[batch.item]).to(logits.dtype)
        of_gates = binary_cross_entropy_with_logits(logits, is_right, reduction="none")
        of_wrong = (1 - is_right) * self.wrong.given(batch.annotator, truth[batch.item], batch.label)
        return of_class + scatter_sum(of_gates - of_wrong, batch.item, batch.n_items)

    def _evidence(self, h: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """`log p(y | k)` of each pair and class k, (L, K)."""
        logits = self.gate(h, item, annotator)
        is_said = one_hot(label, self.n_classes).bool()
        return torch.where(is_said, logsigmoid(logits), logsigmoid(-logits) + self.wrong(annotator, label))

    # ---- what it has to say about annotators ---------------------------------------------------

    def accuracies(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """The gates: how likely the annotator is right, (L,)."""
        gates: Tensor = self.gate(features, item, annotator)[:, 0].sigmoid()
        return gates

    def weight_scores(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Weights in proportion to the gates."""
        return self.accuracies(features, item, annotator).clamp(min=1e-6).log()

    def confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        g = self.accuracies(features, item, annotator)[:, None, None]
        right = torch.eye(self.n_classes, device=features.device)
        return g * right + (1 - g) * self.wrong.matrices(annotator)

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """The posterior of the class, given the item and all its labels."""
        log_f = self.class_logits(features).log_softmax(1)
        return posterior(log_f, self._evidence(features, item, annotator, label), item)

    def add_annotators(self, count: int) -> None:
        super().add_annotators(count)
        self.asked = torch.cat([self.asked, self.asked.new_zeros(count)])


def renamed(classes: NDArray[np.int64], gold: NDArray[np.int64], n_classes: int) -> NDArray[np.int64]:
    """Classes (N,) as read, where gold (N,), -1 where unknown, is clearly against one of them by its name there.

    Where all annotators make the same mistake, nothing but gold can tell. Clearly: by two standard errors.

    >>> renamed(np.array([0, 0, 0, 0, 0, 0, 1]), np.array([1, 1, 1, 1, 1, -1, -1]), 2)
    array([1, 1, 1, 1, 1, 1, 1])
    >>> renamed(np.array([0, 0, 0, 0, 0, 0, 1]), np.array([1, 1, 1, -1, -1, -1, -1]), 2)
    array([0, 0, 0, 0, 0, 0, 1])
    """
    known = gold >= 0
    counts = np.zeros((n_classes, n_classes))
    np.add.at(counts, (classes[known], gold[known]), 1)
    own, most = counts.diagonal(), counts.max(1)
    clearly = most - own > 2 * np.sqrt(most + own)
    names: NDArray[np.int64] = np.where(clearly, counts.argmax(1), np.arange(n_classes))
    return names[classes]

"""The gated channel: how likely each annotator is right on each item, learned with the classifier.

A network says what an item is, and gates say whether an annotator can read it; together they must explain all labels
of an item at once. That is the model of Yan et al. (2010) made deep, and, with one class given, of MaDL (Herde et al.,
2023) with an isotropic matrix. Where an annotator is worse than chance its label says what the item is not, as
complementary labels do (Ishida et al., 2017).

Such a likelihood has more than one best answer, so where it starts decides where it ends. Training therefore has three
phases. First a network for what each annotator would *say* of an item: that is plain classification, with one answer.
Then, from what they would say, what the item most likely *is*, with no other assumption than that an annotator's wrong
labels are even; classifier and gates start as that. Only then the likelihood.

Gold can overrule that reading, and then part of it watches the likelihood. With two classes, annotators who contradict
each other now on these items, now on those, leave nothing to tell who is right: then a fresh network is trained on the
vote, and the diagnostics ask for gold.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, logsigmoid, normalize, one_hot

from crowdfuse.functional import expected_class_log_likelihood, posterior, scatter_sum
from crowdfuse.methods.base import HeldOutScorer, Loss, Method, ModelSpec, Phase, Predict
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.methods.gold_classifier import MIN_GOLD_ITEMS, fit_gold_classifier
from crowdfuse.methods.wrong_labels import WrongLabels
from crowdfuse.nets.annotator_heads import AnnotatorEmbedding, AnnotatorHead, EmbeddedHead

PHASE_EPOCH_SHARES = (
    0.25,
    0.08,
)  # of the epochs: on what annotators say, and on the start; the rest is for the likelihood
MAX_POLLED_ANNOTATORS = (
    64  # annotators at most, those with the most labels, who are asked what they would say of an item
)
MIN_CONFIDENT_PROBABILITY = 0.8  # what a sure answer is
MAX_CONTESTED_SHARE, MAX_DISAGREEMENT_SHARE = (
    0.14,
    0.5,
)  # the share of sure pairs that may be of two minds: of two classes, and of more
MIN_COMMON_CLASS_SHARE = 0.01  # of the items: gold decides only if it has all classes that labels see so often
MIN_PAIR_SHARE, MAX_CONFLICT_CHECK_ITEMS = (
    0.05,
    5_000,
)  # the share of pairs that must be sure to speak of it; items that show it

HeadFactory = Callable[[int, tuple[int, ...], int, int], nn.Module]
Reading = Literal["any", "above chance"]


class Gated(Method):
    """`mean_n -log sum_k f_n(k) prod_{r in S_n} p(y_nr | k)`, with `p(y | k) = g_nr` where y is k, and
    `(1 - g_nr) W_r[k, y]` where it is not: g_nr the gate of the pair, W what is said instead.
    """

    confusion_given = "true"
    resume_buffers: ClassVar[tuple[str, ...]] = ("target", "held_out_gold", "initial_trunk")

    is_initialized: Tensor
    poll_weights: Tensor
    target: Tensor
    starts_from_gold: Tensor
    trains_on_vote: Tensor
    skips_likelihood: Tensor
    held_out_gold: Tensor
    initial_trunk: Tensor
    start_held_out_accuracy: Tensor

    def __init__(
        self, spec: ModelSpec, *, heads: Literal["shared", "embedded"], embedding: int, wrong: WrongLabels
    ) -> None:
        super().__init__(spec)
        make: HeadFactory = AnnotatorHead
        hidden = spec.head_hidden
        if heads == "embedded":
            hidden = hidden or (64,)
            make = partial(EmbeddedHead, embedding=AnnotatorEmbedding(spec.n_annotators, embedding))
        n_features, n_annotators = spec.trunk.n_features, spec.n_annotators
        self.heads = heads
        self.label_head = make(n_features, hidden, n_annotators, spec.n_classes)
        self.gate = make(n_features, hidden[-1:], n_annotators, 1)
        self.wrong = wrong
        self.register_buffer("is_initialized", torch.zeros((), dtype=torch.bool))
        self.register_buffer(
            "starts_from_gold", torch.zeros((), dtype=torch.bool)
        )  # the start is what gold makes of labels
        self.register_buffer(
            "skips_likelihood", torch.zeros((), dtype=torch.bool)
        )  # nothing could watch the likelihood
        self.register_buffer("trains_on_vote", torch.zeros((), dtype=torch.bool))  # nothing tells who is right
        self.register_buffer(
            "start_held_out_accuracy", torch.zeros(())
        )  # how much of the gold that watches is right at the start
        self.register_buffer("poll_weights", torch.zeros(n_annotators))  # how much each counts when asked

    def phases(self, epochs: int) -> list[Phase]:
        """What annotators say, the start, the likelihood; held-out labels choose among what comes after the start."""
        says, start = (max(1, round(share * epochs)) for share in PHASE_EPOCH_SHARES)
        return [
            Phase("annotator labels", says, selection="never"),
            Phase("start", start, selection="end"),
            Phase("gates", max(0, epochs - says - start), selection="any"),
        ]

    def prepare(self, data: TrainingData) -> None:
        for decision in (self.starts_from_gold, self.trains_on_vote, self.skips_likelihood):
            decision.fill_(False)  # of an earlier training
        ann = data.annotations
        counts = np.bincount(ann.annotator, data.weight[ann.item], minlength=self.n_annotators)
        counts[np.argsort(-counts, kind="stable")[MAX_POLLED_ANNOTATORS:]] = 0
        self.poll_weights.copy_(torch.from_numpy(counts / max(counts.sum(), 1e-9)))
        self.register_buffer("target", torch.zeros(len(data), dtype=torch.int64), persistent=False)
        self.register_buffer("held_out_gold", torch.full((len(data),), -1), persistent=False)
        fresh = [tensor.detach().flatten() for tensor in self._trunk_tensors()] if self.n_classes == 2 else []
        self.register_buffer("initial_trunk", torch.cat([torch.zeros(0), *fresh]), persistent=False)

    def _trunk_tensors(self) -> list[Tensor]:
        return [tensor for tensor in self.trunk.state_dict().values() if tensor.is_floating_point()]

    def begin_phase(self, data: TrainingData, predict: Predict, score_held_out: HeldOutScorer | None) -> None:
        """Before the start: read from what annotators would say what each item is."""
        if self.phase_index != 1:
            return
        reading = self._best_reading(score_held_out)
        classes = predict(partial(self._asked_scores, reading=reading)).argmax(1)
        known = np.flatnonzero(data.gold >= 0)
        told = None
        common = np.flatnonzero(np.bincount(classes, minlength=self.n_classes) > MIN_COMMON_CLASS_SHARE * len(classes))
        if (
            len(known) >= MIN_GOLD_ITEMS and np.isin(common, data.gold[known]).all()
        ):  # a class that gold lacks would be lost
            told = fit_gold_classifier(
                predict(self._described, known), data.gold[known], classes[known], self.n_classes
            )
        if told is not None:
            self.starts_from_gold.fill_(True)
            classes = predict(lambda h: told(self._described(h))).argmax(1)
            self.skips_likelihood.fill_(score_held_out is None)
            if score_held_out is not None:
                self.held_out_gold[known[::2]] = torch.from_numpy(data.gold[known[::2]]).to(self.held_out_gold)
                self.start_held_out_accuracy.fill_(float(told.is_correct_out_of_fold[::2].mean()))
        elif self._is_undecided(data, predict):
            self.trains_on_vote.fill_(True)
            if self.n_classes == 2:
                self._forget()
        self.target.copy_(torch.from_numpy(classes))
        self.is_initialized.fill_(True)

    def _best_reading(self, score_held_out: HeldOutScorer | None) -> Reading:
        """Labels below chance are read as saying what an item is not, where held-out labels bear that out.

        With two classes nothing could: there the mirror image explains them equally well.
        """
        if self.n_classes == 2 or score_held_out is None:
            return "above chance"
        above, any_ = (score_held_out(partial(self._as_read, reading)) for reading in ("above chance", "any"))
        return "any" if any_.beats(above) else "above chance"

    def _is_undecided(self, data: TrainingData, predict: Predict) -> bool:
        """Whether annotators contradict each other so surely that nothing tells who is right where."""
        rows = np.flatnonzero(np.diff(data.annotations.indptr) > 0)
        rows = np.sort(np.random.default_rng(0).permutation(rows)[:MAX_CONFLICT_CHECK_ITEMS])
        weight = self.poll_weights[self.poll_weights > 0].cpu().numpy()
        if self.n_classes == 2:
            return contested_share(predict(lambda h: self._asked_shares(h)[..., 1], rows), weight) > MAX_CONTESTED_SHARE
        said = predict(lambda h: torch.cat([part.to(h) for part in self._asked_shares(h).max(2)], 1), rows)
        share, named = np.split(said, 2, axis=1)
        return (
            disagreement_share(np.where(share > MIN_CONFIDENT_PROBABILITY, named, -1).astype(np.int64), weight)
            > MAX_DISAGREEMENT_SHARE
        )

    def _forget(self) -> None:
        """The trunk as it was: one that knows who is wrong where votes along with them more than the vote does."""
        tensors = self._trunk_tensors()
        with torch.no_grad():
            for tensor, fresh in zip(tensors, self.initial_trunk.split([t.numel() for t in tensors]), strict=True):
                tensor.copy_(fresh.view_as(tensor))

    def failed_checks(self, label_checks: tuple[str, ...], predict: Predict) -> tuple[str, ...]:
        """Gold that overruled the labels also overrules what they object to, and objects to what is worse by it."""
        if not self.starts_from_gold:
            return label_checks
        rows = self.held_out_gold.cpu().numpy()
        watching = np.flatnonzero(rows >= 0)
        share = float((predict(rows=watching).argmax(1) == rows[watching]).mean())
        if self.phase_index < 2 or share >= float(self.start_held_out_accuracy):
            return ()
        at_start = 100 * self.start_held_out_accuracy
        return (f"accuracy on held-out gold: {100 * share:.0f} %, at the start {at_start:.0f} %",)

    def _as_read(self, reading: Reading, h: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """How likely each label is if the items are what this reading takes them for, in logs, (L,)."""
        truth = self._asked_scores(h, reading).argmax(1)[item]
        q = self.label_head(h, item, annotator).softmax(1).gather(1, truth[:, None])[:, 0].clamp(1e-6, 1 - 1e-6)
        if reading == "above chance":
            q = q.clamp(min=1 / self.n_classes)
        return torch.where(label == truth, q.log(), ((1 - q) / (self.n_classes - 1)).log())

    def class_logits(self, h: Tensor) -> Tensor:
        """Features (B, D) to class logits (B, K): before the start, what annotators would say amounts to."""
        return super().class_logits(h) if self.is_initialized else self._asked_scores(h, "above chance")

    def _asked_shares(self, h: Tensor) -> Tensor:
        """What those who are asked would say of each item, (B, A, K)."""
        annotators = self.poll_weights.nonzero()[:, 0]
        pair = torch.arange(len(h) * len(annotators), device=h.device)
        said = self.label_head(h, pair // len(annotators), annotators[pair % len(annotators)])
        shares: Tensor = said.softmax(1).view(len(h), len(annotators), self.n_classes)
        return shares

    def _asked_scores(self, h: Tensor, reading: Reading) -> Tensor:
        q, weight = self._asked_shares(h), self.poll_weights[self.poll_weights > 0]
        return (weight[:, None] * expected_class_log_likelihood(q, above_chance=reading == "above chance")).sum(1)

    def _described(self, h: Tensor) -> Tensor:
        """Items by features, and by what annotators would say of them, of length 1 each, (B, D')."""
        said = self._asked_shares(h)
        return torch.cat([normalize(h), (said / said.shape[1]).sqrt().flatten(1)], 1)

    def loss(self, batch: Batch) -> Loss:
        """Gold that watches does not teach as well."""
        if self.phase_index == 2 and self.starts_from_gold:
            watches = self.held_out_gold.to(batch.row.device)[batch.row] >= 0
            batch = batch._replace(gold=batch.gold.masked_fill(watches, -1))
        return super().loss(batch)

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        weight = batch.labelled_weight
        if self.phase_index == 0:
            losses = self._saying(h, batch)
        elif self.trains_on_vote:
            losses = self._voting(h, batch)
        elif self.phase_index == 1 or self.skips_likelihood:
            losses = self._starting(h, batch, self.target.to(batch.row.device)[batch.row])
        else:
            log_f = super().class_logits(h).log_softmax(1)
            evidence = self.label_log_probabilities(h, batch.item, batch.annotator, batch.label)
            losses = -(log_f + scatter_sum(evidence, batch.item, batch.n_items)).logsumexp(1)
        return Loss((weight * losses).sum(), weight.sum())

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """The class is certain, and whether each annotator was right is seen."""
        if self.phase_index == 0:
            return self._saying(h, batch)
        return self._starting(h, batch, batch.gold)

    def _saying(self, h: Tensor, batch: Batch) -> Tensor:
        said = cross_entropy(self.label_head(h, batch.item, batch.annotator), batch.label, reduction="none")
        return scatter_sum(said, batch.item, batch.n_items)

    def _starting(self, h: Tensor, batch: Batch, truth: Tensor) -> Tensor:
        """Classifier, gates and wrong labels as if this were the truth, (B,)."""
        of_class = cross_entropy(super().class_logits(h), truth, reduction="none")
        logits = self.gate(h, batch.item, batch.annotator)[:, 0]
        is_right = (batch.label == truth[batch.item]).to(logits.dtype)
        of_gates = binary_cross_entropy_with_logits(logits, is_right, reduction="none")
        of_wrong = (1 - is_right) * self.wrong.given(batch.annotator, truth[batch.item], batch.label)
        return of_class + scatter_sum(of_gates - of_wrong, batch.item, batch.n_items)

    def _voting(self, h: Tensor, batch: Batch) -> Tensor:
        """The classifier by the share of labels a class got, and gates by what the classifier makes of them, (B,)."""
        log_f = super().class_logits(h).log_softmax(1)
        count = torch.bincount(batch.item, minlength=batch.n_items).clamp(min=1)
        said = log_f[batch.item, batch.label]
        logits = self.gate(h, batch.item, batch.annotator)[:, 0]
        of_gates = binary_cross_entropy_with_logits(logits, said.detach().exp(), reduction="none")
        return scatter_sum(of_gates - said / count[batch.item], batch.item, batch.n_items)

    def label_log_probabilities(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        logits = self.gate(features, item, annotator)
        is_said = one_hot(label, self.n_classes).bool()
        return torch.where(is_said, logsigmoid(logits), logsigmoid(-logits) + self.wrong(annotator, label))

    # ---- what it has to say about annotators ---------------------------------------------------

    def accuracies(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """The gates: how likely the annotator is right, (L,)."""
        gates: Tensor = self.gate(features, item, annotator)[:, 0].sigmoid()
        return gates

    def weight_logits(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Weights in proportion to the gates."""
        return self.accuracies(features, item, annotator).clamp(min=1e-6).log()

    def confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        g = self.accuracies(features, item, annotator)[:, None, None]
        right = torch.eye(self.n_classes, device=features.device)
        return g * right + (1 - g) * self.wrong.matrices(annotator)

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """The posterior of the class, given the item and all its labels."""
        log_f = self.class_logits(features).log_softmax(1)
        return posterior(log_f, self.label_log_probabilities(features, item, annotator, label), item)

    def add_annotators(self, count: int) -> None:
        super().add_annotators(count)
        self.poll_weights = torch.cat([self.poll_weights, self.poll_weights.new_zeros(count)])


def contested_share(said: NDArray[Any], weight: NDArray[Any]) -> float:
    """Of pairs of annotators who are both sure of an item, the share that is of two minds, and elsewhere of one.

    `said` (N, A) is how likely each says the second of two classes. Those who disagree throughout do not count: one is
    the other's mirror image, and most annotators tell which. Where hardly anybody is ever sure there is no saying: 0.

    >>> contested_share(np.array([[0.9, 0.9], [0.1, 0.1], [0.9, 0.1], [0.5, 0.1]]), np.array([1.0, 1.0]))
    0.3333333333333333
    >>> contested_share(np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([1.0, 1.0]))
    0.0
    """
    up, down = (said > MIN_CONFIDENT_PROBABILITY).astype(float), (said < 1 - MIN_CONFIDENT_PROBABILITY).astype(float)
    of_one, of_two = up.T @ up + down.T @ down, up.T @ down + down.T @ up
    pairs = weight[:, None] * weight * (1 - np.eye(len(weight)))
    sure = float((pairs * (of_one + of_two)).sum())
    if not sure > MIN_PAIR_SHARE * len(said) * pairs.sum():
        return 0.0
    return float((pairs * np.minimum(of_one, of_two)).sum()) / sure


def disagreement_share(named: NDArray[np.int64], weight: NDArray[Any]) -> float:
    """Of pairs of annotators who are both sure of an item, the share that is of two minds.

    `named` (N, A) is the class that each is sure of, or -1. Pairs that hardly ever agree do not count: one of the two
    has names of its own, and the others tell which. Where hardly anybody is ever sure there is no saying: 0. Wrong
    labels that are even are nothing that an annotator could be sure to say: they divide nobody.

    >>> disagreement_share(np.array([[0, 0], [1, 2], [2, -1], [0, 1]]), np.array([1.0, 1.0]))
    0.6666666666666666
    >>> disagreement_share(np.array([[0, 1], [1, 2], [2, 0]]), np.array([1.0, 1.0]))
    0.0
    """
    sure = (named >= 0).astype(float)
    together = sure.T @ sure
    of_one = np.zeros_like(together)
    for k in np.unique(named[named >= 0]):
        says = (named == k).astype(float)
        of_one += says.T @ says
    pairs = weight[:, None] * weight * (1 - np.eye(len(weight)))
    if not (pairs * together).sum() > MIN_PAIR_SHARE * len(named) * pairs.sum():
        return 0.0
    pairs = pairs * (of_one > MIN_PAIR_SHARE * together)
    return float((pairs * (together - of_one)).sum() / max((pairs * together).sum(), 1e-300))

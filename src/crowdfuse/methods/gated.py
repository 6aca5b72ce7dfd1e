"""The gated method: the probability that each annotator is right on each item, learned with the classifier.

The classifier predicts the class of an item. The gates are the predicted probabilities that each annotator is right on
the item. Together they must explain all labels of the item. This is the model of Yan et al. (2010) with neural
networks. Given the class, labels follow the same model as in MaDL (Herde et al., 2023) with isotropic matrices. If an
annotator is worse than chance, the label is evidence against the class that it names, like a complementary label
(Ishida et al., 2017).

The likelihood of this model has several optima, so the result depends on the starting point. Training therefore has
three phases:

1. "annotator labels": a network learns which label each annotator would give. This is ordinary classification.
2. "start": the predicted labels give the most likely class of each item, assuming only that all wrong labels are
   equally likely. Classifier and gates are trained on these initial classes.
3. "gates": classifier and gates are trained to maximize the likelihood of the labels.

Gold can overrule the initial classes. In that case, part of the gold is held out (not trained on) to check phase 3. If
different annotators contradict each other on different items, the labels do not show who is right. In that case, the
classifier is trained on the vote, and the diagnostics ask for gold. If there are two classes, the trunk is also reset
to its initial values before it is trained on the vote.
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

from crowdfuse.functional import posterior, scatter_sum
from crowdfuse.methods.base import HeldOutScorer, Loss, Method, ModelSpec, Phase, Predict
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.methods.gold_classifier import MIN_GOLD_ITEMS, GoldClassifier, fit_gold_classifier
from crowdfuse.methods.label_poll import CLASS_RULES, ClassRule, class_scores, poll_weights, rule_log_likelihood
from crowdfuse.methods.wrong_labels import WrongLabels
from crowdfuse.nets.annotator_heads import AnnotatorEmbedding, AnnotatorHead, EmbeddedHead

PHASE_EPOCH_SHARES = (0.25, 0.08)  # of the epochs, for phases 1 and 2; phase 3 has the rest
MAX_PHASE_PASSES, MIN_PHASE_STEPS = (31, 10), 100  # of phases 1 and 2, if the number of epochs is not given
MIN_CONFIDENT_PROBABILITY = 0.8  # an annotator is called confident if the predicted label is more probable than this
MAX_CONTESTED_SHARE = 0.14  # of confident pairs of annotators, for two classes; above it, train on the vote
MAX_DISAGREEMENT_SHARE = 0.5  # of confident pairs of annotators, for more classes; above it, train on the vote
MAX_MEMORIZED_GAP = 0.1  # accepted difference of the accuracy of confident predictions on training and held-out labels
MIN_COMMON_CLASS_SHARE = 0.01  # of the items; gold must contain every class that is more common than this
MIN_PAIR_SHARE = 0.05  # share of pairs of annotators that must be confident before conflicts are measured
MAX_CONFLICT_CHECK_ITEMS = 5_000

HeadFactory = Callable[[int, tuple[int, ...], int, int], nn.Module]


class Gated(Method):
    """Joint likelihood of all labels of an item, with a gate for each pair of item and annotator.

    The loss is `mean_n -log sum_k f_n(k) prod_{r in S_n} p(y_nr | k)`. A label y has probability `p(y | k) = g_nr` if y
    = k, and `p(y | k) = (1 - g_nr) W_r[k, y]` otherwise. f_n are the class probabilities of item n, S_n are the
    annotators who labelled it, and y_nr are their labels. The gate g_nr is the probability that annotator r is right on
    item n. W_r[k, y] is the probability that a wrong label of annotator r is y if the class is k.

    Training has three phases. Phase 1 learns which label each annotator would give to each item. Before phase 2, these
    predicted labels, or a classifier fitted to gold, give an initial class of each item. Phase 2 trains classifier and
    gates on the initial classes. Phase 3 minimizes the loss above.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    heads : {"shared", "embedded"}
        Kind of the heads that predict labels and gates. "shared": `AnnotatorHead`. "embedded": `EmbeddedHead`.
    embedding : int
        Length of an annotator's embedding, used only if `heads` is "embedded".
    wrong : WrongLabels
        Distribution of wrong labels.

    Attributes
    ----------
    is_initialized : Tensor of bool of shape ()
        Whether the initial classes have been chosen. As long as it is False, class logits are computed from predicted
        labels.
    starts_from_gold : Tensor of bool of shape ()
        Whether a classifier fitted to gold chose the initial classes.
    skips_likelihood : Tensor of bool of shape ()
        Whether phase 3 is trained on the initial classes instead of the likelihood. This is so if gold chose the
        initial classes and no labels are held out.
    trains_on_vote : Tensor of bool of shape ()
        Whether phases 2 and 3 train on the majority vote, because the labels do not show which annotators are right.
    start_held_out_accuracy : Tensor of shape ()
        Accuracy of the gold classifier on the held-out gold, before phase 3.
    poll_weights : Tensor of shape (R,)
        Weight of each annotator when predicted labels are combined.
    target : Tensor of shape (N,)
        Initial class of each row.
    held_out_gold : Tensor of shape (N,)
        Gold class of the rows that are held out to check phase 3; -1 for all other rows.
    initial_trunk : Tensor
        Initial values of the trunk; stored only if there are two classes.

    References
    ----------
    Yan et al., "Modeling annotator expertise: learning when everybody knows a bit of something", AISTATS 2010.
    Ishida, Niu, Hu and Sugiyama, "Learning from complementary labels", NeurIPS 2017.
    Herde, Huseljic and Sick, "Multi-annotator deep learning", TMLR 2023.
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
        self.register_buffer("starts_from_gold", torch.zeros((), dtype=torch.bool))
        self.register_buffer("skips_likelihood", torch.zeros((), dtype=torch.bool))
        self.register_buffer("trains_on_vote", torch.zeros((), dtype=torch.bool))
        self.register_buffer("start_held_out_accuracy", torch.zeros(()))
        self.register_buffer("poll_weights", torch.zeros(n_annotators))

    min_steps: ClassVar[int] = 2_000  # held-out labels choose the epoch, so long training does no harm

    def phases(self, epochs: int) -> list[Phase]:
        """Return the three phases. Validation chooses among the last epoch of phase 2 and all epochs of phase 3."""
        labels, start = (max(1, round(share * epochs)) for share in PHASE_EPOCH_SHARES)
        return _phases(labels, start, max(0, epochs - labels - start))

    def default_phases(self, n_steps_per_pass: int, n_steps_per_epoch: int) -> list[Phase]:
        """Return the three phases. If there are few items, phases 1 and 2 are short, to avoid memorizing labels."""
        epochs = -(-self.default_steps(n_steps_per_pass) // n_steps_per_epoch)
        labels, start = (
            min(max(1, round(share * epochs)), -(-max(most * n_steps_per_pass, MIN_PHASE_STEPS) // n_steps_per_epoch))
            for share, most in zip(PHASE_EPOCH_SHARES, MAX_PHASE_PASSES, strict=True)
        )
        return _phases(labels, start, epochs - labels - start)

    def prepare(self, data: TrainingData) -> None:
        """Reset the decisions of an earlier training run, and choose the annotators whose labels are predicted."""
        for decision in (self.starts_from_gold, self.trains_on_vote, self.skips_likelihood):
            decision.fill_(False)
        self.poll_weights.copy_(torch.from_numpy(poll_weights(data, self.n_annotators)))
        self.register_buffer("target", torch.zeros(len(data), dtype=torch.int64), persistent=False)
        self.register_buffer("held_out_gold", torch.full((len(data),), -1), persistent=False)
        initial = [tensor.detach().flatten() for tensor in self._trunk_tensors()] if self.n_classes == 2 else []
        self.register_buffer("initial_trunk", torch.cat([torch.zeros(0), *initial]), persistent=False)

    def _trunk_tensors(self) -> list[Tensor]:
        """Return the floating-point parameters and buffers of the trunk."""
        return [tensor for tensor in self.trunk.state_dict().values() if tensor.is_floating_point()]

    def begin_phase(self, data: TrainingData, predict: Predict, score_held_out: HeldOutScorer | None) -> None:
        """Before phase 2, choose the initial class of each row."""
        if self.phase_index != 1:
            return
        rule = self._best_class_rule(score_held_out)
        classes = predict(partial(self._polled_scores, rule=rule)).argmax(1)
        known = np.flatnonzero(data.gold >= 0)
        gold_classifier = self._fit_gold_classifier(data, predict, classes, known)
        if gold_classifier is not None:
            self.starts_from_gold.fill_(True)
            classes = predict(lambda h: gold_classifier(self._descriptions(h))).argmax(1)
            self.skips_likelihood.fill_(score_held_out is None)
            if score_held_out is not None:
                held_out = known[::2]
                self.held_out_gold[held_out] = torch.from_numpy(data.gold[held_out]).to(self.held_out_gold)
                self.start_held_out_accuracy.fill_(float(gold_classifier.is_correct_out_of_fold[::2].mean()))
        elif self._is_undecided(data, predict, score_held_out):
            self.trains_on_vote.fill_(True)
            if self.n_classes == 2:
                self._reset_trunk()
        self.target.copy_(torch.from_numpy(classes))
        self.is_initialized.fill_(True)

    def limitations(self) -> tuple[str, ...]:
        """Return a message if the network was trained on the majority vote."""
        if not self.trains_on_vote:
            return ()
        return (
            "Annotators contradict each other, and these labels do not show who is right, so the model was trained "
            f"on the majority vote. Gold labels of {MIN_GOLD_ITEMS} or more items can show who is right; pass them as "
            "--gold (in Python, as the argument gold).",
        )

    def _fit_gold_classifier(
        self, data: TrainingData, predict: Predict, classes: NDArray[np.int64], known: NDArray[np.int64]
    ) -> GoldClassifier | None:
        """Return a classifier fitted to gold if it is better than `classes` and gold contains all common classes."""
        common = np.flatnonzero(np.bincount(classes, minlength=self.n_classes) > MIN_COMMON_CLASS_SHARE * len(classes))
        # a class without gold would be lost
        if len(known) < MIN_GOLD_ITEMS or not np.isin(common, data.gold[known]).all():
            return None
        descriptions = predict(self._descriptions, known)
        return fit_gold_classifier(descriptions, data.gold[known], classes[known], self.n_classes)

    def _best_class_rule(self, score_held_out: HeldOutScorer | None) -> ClassRule:
        """Return "any" if held-out labels confirm that labels below chance are evidence against a class.

        If there are two classes, held-out labels cannot confirm it: swapped classes explain the labels equally well.
        """
        if self.n_classes == 2 or score_held_out is None:
            return "above chance"
        above_score, any_score = (score_held_out(partial(self._rule_log_likelihood, rule)) for rule in CLASS_RULES)
        return "any" if any_score.beats(above_score) else "above chance"

    def _confident_hits(self, h: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Return, for each label, 1 if it was predicted with confidence, 0 if another label was, -1 if none was."""
        probability, predicted = self.label_head(h, item, annotator).softmax(1).max(1)
        is_hit = (predicted == label).to(probability)
        return torch.where(probability > MIN_CONFIDENT_PROBABILITY, is_hit, -1)

    def _is_undecided(self, data: TrainingData, predict: Predict, score_held_out: HeldOutScorer | None) -> bool:
        """Return whether confident annotators contradict each other so often that labels do not show who is right.

        False if the network has memorized the labels of the training items, including the mistakes. In that case,
        contradictions between its predictions say nothing about the annotators.
        """
        rows = np.flatnonzero(np.diff(data.annotations.indptr) > 0)
        rows = np.sort(np.random.default_rng(0).permutation(rows)[:MAX_CONFLICT_CHECK_ITEMS])
        weight = self.poll_weights[self.poll_weights > 0].cpu().numpy()
        best = predict(
            lambda h: torch.cat([part.to(h) for part in self._polled_label_probabilities(h).max(2)], 1), rows
        )
        probability, label = np.split(best, 2, axis=1)
        confident_label = np.where(probability > MIN_CONFIDENT_PROBABILITY, label, -1).astype(np.int64)
        if self.n_classes == 2:
            second_class = np.where(label == 1, probability, 1 - probability)
            is_undecided = contested_share(second_class, weight) > MAX_CONTESTED_SHARE
        else:
            is_undecided = disagreement_share(confident_label, weight) > MAX_DISAGREEMENT_SHARE
        return is_undecided and not self._has_memorized(data, rows, confident_label, score_held_out)

    def _has_memorized(
        self,
        data: TrainingData,
        rows: NDArray[np.int64],
        confident_label: NDArray[np.int64],
        score_held_out: HeldOutScorer | None,
    ) -> bool:
        """Return whether confident predictions are right much more often on training labels than on held-out labels.

        `confident_label` (n_rows, n_polled) holds the label predicted for each polled annotator, -1 if not confident.
        """
        if score_held_out is None:
            return False
        held_out = score_held_out(self._confident_hits).values
        held_out = held_out[held_out >= 0]
        position = np.full(self.n_annotators, -1)
        position[self.poll_weights.cpu().numpy() > 0] = np.arange(confident_label.shape[1])
        ann = data.annotations[rows]
        predicted = np.where(position[ann.annotator] >= 0, confident_label[ann.item, position[ann.annotator]], -1)
        trained = (predicted == ann.label)[predicted >= 0]
        if not len(held_out) or not len(trained):
            return False
        return float(trained.mean() - held_out.mean()) > MAX_MEMORIZED_GAP

    def _reset_trunk(self) -> None:
        """Restore the initial trunk. A trunk that has learned to predict labels fits wrong labels more closely."""
        tensors = self._trunk_tensors()
        with torch.no_grad():
            for tensor, initial in zip(tensors, self.initial_trunk.split([t.numel() for t in tensors]), strict=True):
                tensor.copy_(initial.view_as(tensor))

    def failed_checks(self, label_checks: tuple[str, ...], predict: Predict) -> tuple[str, ...]:
        """Return the failed checks against the labels, or against held-out gold if gold chose the initial classes.

        If gold chose the initial classes, it has overruled the labels, so checks against the labels are ignored.
        Instead, there is one check: the accuracy on held-out gold must not be lower than at the start of phase 3.
        """
        if not self.starts_from_gold:
            return label_checks
        gold = self.held_out_gold.cpu().numpy()
        rows = np.flatnonzero(gold >= 0)
        accuracy = float((predict(rows=rows).argmax(1) == gold[rows]).mean())
        if self.phase_index < 2 or accuracy >= float(self.start_held_out_accuracy):
            return ()
        at_start = 100 * self.start_held_out_accuracy
        return (f"accuracy on held-out gold: {100 * accuracy:.0f} %, but {at_start:.0f} % at the start of phase 3",)

    def _rule_log_likelihood(
        self, rule: ClassRule, h: Tensor, item: Tensor, annotator: Tensor, label: Tensor
    ) -> Tensor:
        """Return the log-likelihood of each label, assuming that items have the classes that the rule infers, (L,)."""
        truth = self._polled_scores(h, rule).argmax(1)[item]
        return rule_log_likelihood(self.label_head(h, item, annotator).softmax(1), truth, label, rule)

    def class_logits(self, h: Tensor) -> Tensor:
        """Return the class logits (B, K). Before phase 2, these are scores computed from the predicted labels."""
        return super().class_logits(h) if self.is_initialized else self._polled_scores(h, "above chance")

    def _polled_label_probabilities(self, h: Tensor) -> Tensor:
        """Return the predicted label probabilities of the polled annotators for each item, (B, A, K)."""
        annotators = self.poll_weights.nonzero()[:, 0]
        pair = torch.arange(len(h) * len(annotators), device=h.device)
        logits = self.label_head(h, pair // len(annotators), annotators[pair % len(annotators)])
        probabilities: Tensor = logits.softmax(1).view(len(h), len(annotators), self.n_classes)
        return probabilities

    def _polled_scores(self, h: Tensor, rule: ClassRule) -> Tensor:
        """Return the score of each class from the predicted labels, (B, K)."""
        weight = self.poll_weights[self.poll_weights > 0]
        return class_scores(self._polled_label_probabilities(h), weight, rule)

    def _descriptions(self, h: Tensor) -> Tensor:
        """Return the features and the predicted label probabilities of each item, both scaled to norm 1, (B, D')."""
        probabilities = self._polled_label_probabilities(h)
        return torch.cat([normalize(h), (probabilities / probabilities.shape[1]).sqrt().flatten(1)], 1)

    def loss(self, batch: Batch) -> Loss:
        """Return the loss of the current phase. In phase 3, held-out gold is not used."""
        if self.phase_index == 2 and self.starts_from_gold:
            is_held_out = self.held_out_gold.to(batch.row.device)[batch.row] >= 0
            batch = batch._replace(gold=batch.gold.masked_fill(is_held_out, -1))
        return super().loss(batch)

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the loss of the current phase for items without gold."""
        weight = batch.labelled_weight
        if self.phase_index == 0:
            losses = self._label_losses(h, batch)
        elif self.trains_on_vote:
            losses = self._vote_losses(h, batch)
        elif self.phase_index == 1 or self.skips_likelihood:
            losses = self._known_class_losses(h, batch, self.target.to(batch.row.device)[batch.row])
        else:
            log_f = super().class_logits(h).log_softmax(1)
            log_likelihoods = self.label_log_probabilities(h, batch.item, batch.annotator, batch.label)
            losses = -(log_f + scatter_sum(log_likelihoods, batch.item, batch.n_items)).logsumexp(1)
        return Loss((weight * losses).sum(), weight.sum())

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Return the loss of each item with gold, (B,).

        In phase 1, this is the loss of the predicted labels. In phases 2 and 3, it is the loss of classifier and gates,
        with the gold class as the true class.
        """
        if self.phase_index == 0:
            return self._label_losses(h, batch)
        return self._known_class_losses(h, batch, batch.gold)

    def _label_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Return the summed cross-entropy of predicted labels of each item, (B,)."""
        losses = cross_entropy(self.label_head(h, batch.item, batch.annotator), batch.label, reduction="none")
        return scatter_sum(losses, batch.item, batch.n_items)

    def _known_class_losses(self, h: Tensor, batch: Batch, truth: Tensor) -> Tensor:
        """Return the losses of classifier, gates and wrong labels if `truth` (B,) are the classes, (B,)."""
        class_losses = cross_entropy(super().class_logits(h), truth, reduction="none")
        logits = self.gate(h, batch.item, batch.annotator)[:, 0]
        is_right = (batch.label == truth[batch.item]).to(logits.dtype)
        gate_losses = binary_cross_entropy_with_logits(logits, is_right, reduction="none")
        wrong_log_likelihood = (1 - is_right) * self.wrong.given(batch.annotator, truth[batch.item], batch.label)
        return class_losses + scatter_sum(gate_losses - wrong_log_likelihood, batch.item, batch.n_items)

    def _vote_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Return the loss if training on the vote, (B,): classifier on vote shares, gates on the classifier."""
        log_f = super().class_logits(h).log_softmax(1)
        count = torch.bincount(batch.item, minlength=batch.n_items).clamp(min=1)
        log_probability = log_f[batch.item, batch.label]
        logits = self.gate(h, batch.item, batch.annotator)[:, 0]
        gate_losses = binary_cross_entropy_with_logits(logits, log_probability.detach().exp(), reduction="none")
        return scatter_sum(gate_losses - log_probability / count[batch.item], batch.item, batch.n_items)

    def label_log_probabilities(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Return `log p(y | k)` for each label y and each possible true class k, (L, K)."""
        logits = self.gate(features, item, annotator)
        is_label = one_hot(label, self.n_classes).bool()
        return torch.where(is_label, logsigmoid(logits), logsigmoid(-logits) + self.wrong(annotator, label))

    # ---- what the method says about annotators -------------------------------------------------

    def accuracies(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the gates: for each pair (item, annotator), the probability that the annotator is right, (L,)."""
        gates: Tensor = self.gate(features, item, annotator)[:, 0].sigmoid()
        return gates

    def weight_logits(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the logarithm of the gate of each pair (item, annotator), (L,)."""
        return self.accuracies(features, item, annotator).clamp(min=1e-6).log()

    def confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the confusion matrix of each pair (item, annotator), P(label | true class), (L, K, K)."""
        g = self.accuracies(features, item, annotator)[:, None, None]
        right = torch.eye(self.n_classes, device=features.device)
        return g * right + (1 - g) * self.wrong.matrices(annotator)

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Return the posterior class probabilities of each item, given its input and labels, (B, K)."""
        log_f = self.class_logits(features).log_softmax(1)
        return posterior(log_f, self.label_log_probabilities(features, item, annotator, label), item)

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators. Their labels are not used to infer initial classes."""
        super().add_annotators(count)
        self.poll_weights = torch.cat([self.poll_weights, self.poll_weights.new_zeros(count)])


def _phases(labels: int, start: int, gates: int) -> list[Phase]:
    """Return the phases, given their epochs."""
    return [
        Phase("annotator labels", labels, selection="never"),
        Phase("start", start, selection="end"),
        Phase("gates", gates, selection="any"),
    ]


def contested_share(second_class: NDArray[Any], weight: NDArray[Any]) -> float:
    """Return how often confident annotators contradict each other on some items and agree on others, as a share.

    The share is defined for two classes. An annotator is confident on an item if the annotator's label is predicted
    with a probability above 0.8. For each pair of annotators, two numbers are counted: the items on which both are
    confident and agree, and the items on which both are confident and contradict each other. The share is the sum of
    the smaller numbers of all pairs, divided by the sum of all numbers. In both sums, the weight of a pair is the
    product of the annotators' weights. Two annotators who always contradict each other therefore contribute nothing to
    the first sum: one of them swaps the classes, and the other annotators show who it is.

    Parameters
    ----------
    second_class : ndarray of shape (N, A)
        Predicted probability that each annotator gives the second class to each item.
    weight : ndarray of shape (A,)
        Annotator weights.

    Returns
    -------
    share : float
        Between 0 and 1; 0 if two annotators are hardly ever both confident.

    Examples
    --------
    >>> contested_share(np.array([[0.9, 0.9], [0.1, 0.1], [0.9, 0.1], [0.5, 0.1]]), np.array([1.0, 1.0]))
    0.3333333333333333
    >>> contested_share(np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([1.0, 1.0]))
    0.0
    """
    second = (second_class > MIN_CONFIDENT_PROBABILITY).astype(float)
    first = (second_class < 1 - MIN_CONFIDENT_PROBABILITY).astype(float)
    agree, contradict = second.T @ second + first.T @ first, second.T @ first + first.T @ second
    pairs = weight[:, None] * weight * (1 - np.eye(len(weight)))
    confident = float((pairs * (agree + contradict)).sum())
    if not confident > MIN_PAIR_SHARE * len(second_class) * pairs.sum():
        return 0.0
    return float((pairs * np.minimum(agree, contradict)).sum()) / confident


def disagreement_share(label: NDArray[np.int64], weight: NDArray[Any]) -> float:
    """Return how often two annotators disagree if both are confident, as a share of all such cases.

    A case is an item and a pair of annotators. Pairs that hardly ever agree are left out: one of the two annotators
    permutes the classes, and the other annotators show who it is. Uniformly random wrong labels have no effect either,
    because they are never predicted confidently.

    Parameters
    ----------
    label : ndarray of shape (N, A)
        Label that each annotator would give to each item; -1 if it cannot be predicted confidently.
    weight : ndarray of shape (A,)
        Annotator weights.

    Returns
    -------
    share : float
        Between 0 and 1; 0 if two annotators are hardly ever both confident.

    Examples
    --------
    >>> disagreement_share(np.array([[0, 0], [1, 2], [2, -1], [0, 1]]), np.array([1.0, 1.0]))
    0.6666666666666666
    >>> disagreement_share(np.array([[0, 1], [1, 2], [2, 0]]), np.array([1.0, 1.0]))
    0.0
    """
    is_confident = (label >= 0).astype(float)
    both_confident = is_confident.T @ is_confident
    agree = np.zeros_like(both_confident)
    for k in np.unique(label[label >= 0]):
        gives_k = (label == k).astype(float)
        agree += gives_k.T @ gives_k
    pairs = weight[:, None] * weight * (1 - np.eye(len(weight)))
    if not (pairs * both_confident).sum() > MIN_PAIR_SHARE * len(label) * pairs.sum():
        return 0.0
    pairs = pairs * (agree > MIN_PAIR_SHARE * both_confident)
    return float((pairs * (both_confident - agree)).sum() / max((pairs * both_confident).sum(), 1e-300))

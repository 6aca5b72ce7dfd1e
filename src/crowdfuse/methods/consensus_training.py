"""Consensus training: networks are trained on a consensus that is computed with the help of these networks.

The labelled items are split into folds. Every network is trained without one fold, so it has not seen the labels of the
items of this fold. Training alternates between two steps, as in expectation maximization:

1. Class networks are trained on the current class probabilities of the items. Gate networks are trained on the
   probability that each label is right.
2. The class probabilities are computed again: from the labels, the annotators' confusion matrices, and the predictions
   of networks for items that they were not trained on (`crowdfuse.aggregation.posterior`).

The result depends on the initial class probabilities. So training runs from two starts (initial class probabilities) at
the same time. The first start is "vote": the vote shares. The second start is "predicted labels": the classes that best
explain the labels that annotators are predicted to give (`crowdfuse.methods.label_poll`). If both starts lead to nearly
the same consensus, or if neither makes the labels clearly more likely, their predictions are averaged. Otherwise the
more likely start is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from crowdfuse.aggregation.posterior import MAX_CONFUSION_BYTES, PosteriorFit, center_gates, fit_posterior
from crowdfuse.aggregation.posterior import MAX_SHARPNESS as MAX_OUT_OF_FOLD_SHARPNESS
from crowdfuse.aggregation.votes import Votes
from crowdfuse.functional import posterior
from crowdfuse.labels.encoding import concatenate_ranges
from crowdfuse.labels.folds import assign_folds
from crowdfuse.labels.ids import IntArray
from crowdfuse.methods.base import HeldOutScorer, Loss, Method, ModelSpec, Phase, Predict
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.methods.label_poll import CLASS_RULES, class_scores, poll_weights, rule_log_likelihood
from crowdfuse.nets.annotator_heads import AnnotatorEmbedding, AnnotatorHead, EmbeddedHead
from crowdfuse.nets.backbones import Trunk
from crowdfuse.nets.committee import make_committee
from crowdfuse.nets.mlp import mlp

STARTS = ("vote", "predicted labels")
MAX_ROUNDS = 4
MIN_LABEL_STEPS, MIN_CLASS_STEPS, MIN_GATE_STEPS = 1_000, 1_200, 600  # per phase, if the number of epochs is not given
CLASS_PASSES, MAX_CLASS_STEPS, MIN_CLASS_PASSES = (
    40,
    6_000,
    10,
)  # a class phase has 40 passes; if these are more than 6,000 steps, it has fewer passes, but at least 10
LABEL_SHARE, GATE_SHARE = 0.12, 0.07  # per phase, of a given number of epochs; class phases have the rest
CLEAR_STANDARD_ERRORS = 2.0  # a start is better if its log-likelihood is higher by this many standard errors
MAX_DISAGREEMENT = 0.1  # share of items; if the consensus of the two starts differs on fewer items, both are kept
MIN_PROBABILITY = 1e-3  # share of the uniform distribution that is mixed into class probabilities, so that none is 0
ROWS_PER_BLOCK = 512

HeadFactory = Callable[[int, tuple[int, ...], int, int], nn.Module]
PairHead = Callable[[Tensor, Tensor, Tensor], Tensor]


class OutOfFoldOutputs(NamedTuple):
    """Predictions of networks for items that they were not trained on. The first axis is the start.

    Attributes
    ----------
    class_probabilities : ndarray of shape (n_starts, n_items, n_classes)
        Probability of each class.
    gate_logits : ndarray of shape (n_starts, n_labels)
        For each label, the logit of the probability that its annotator is right on the item.
    """

    class_probabilities: NDArray[np.float64]
    gate_logits: NDArray[np.float64]


class AnnotatorNetwork(nn.Module):
    """A trunk with a head that has one output layer per annotator.

    Parameters
    ----------
    trunk : Trunk
        The backbone.
    head : nn.Module
        Maps features, items and annotators of pairs to outputs.
    """

    def __init__(self, trunk: Trunk, head: nn.Module) -> None:
        super().__init__()
        self.trunk = trunk.module
        self.head = head

    def forward(self, x: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the outputs of pairs (item, annotator), (L, n_out)."""
        outputs: Tensor = self.head(self.trunk(x), item, annotator)
        return outputs


class ConsensusTraining(Method):
    """Cross-fitted networks, trained on a consensus that is computed with their help.

    In a class phase, the loss is `mean_n sum_f [fold of n is not f] -sum_k t_n(k) log f_nf(k)`, summed over both starts
    (see the module's docstring). f_nf are the class probabilities of item n by the network of fold f, and t_n are the
    current class probabilities of the item. In a gate phase, the loss is the binary cross-entropy between the gates and
    t_n(y_nr), the probability that the label y_nr is right.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    trunks : sequence of Trunk
        Backbones of all networks. Each fold has one label network, one gate network, and one class network per start;
        see `n_trunks`.
    n_folds : int
        Number of folds. If 0, one network of each kind is trained on all items.
    heads : {"shared", "embedded"}
        Kind of the heads that predict labels and gates. "shared": `AnnotatorHead`. "embedded": `EmbeddedHead`.
    embedding : int
        Length of an annotator's embedding, used only if `heads` is "embedded".

    Attributes
    ----------
    fold : Tensor of shape (N,)
        Fold of each row of the training data. -1 for rows that are not trained on; -1 for all rows if there are no
        folds.
    target : Tensor of shape (n_starts, N, K)
        Class probabilities that the class networks are trained on.
    start_weights : Tensor of shape (n_starts,)
        Weight of each start in predictions.
    """

    confusion_given: ClassVar[Literal["said", "true"] | None] = "true"
    resume_buffers: ClassVar[tuple[str, ...]] = ("fold", "target")
    fold: Tensor
    target: Tensor
    start_weights: Tensor
    right_probability: Tensor
    wrong_labels: Tensor
    confusion: Tensor
    gate_mean: Tensor
    gate_weight: Tensor

    def __init__(
        self,
        spec: ModelSpec,
        *,
        trunks: Sequence[Trunk],
        n_folds: int,
        heads: Literal["shared", "embedded"],
        embedding: int,
    ) -> None:
        super().__init__(spec)
        self.trunk, self.classify = nn.Identity(), nn.Sequential()  # the networks below replace them
        self.n_folds, self.n_networks, self.seed, self.heads = n_folds, max(n_folds, 1), spec.seed, heads
        hidden = spec.head_hidden
        make: HeadFactory = AnnotatorHead
        if heads == "embedded":
            hidden = hidden or (64,)
            make = partial(EmbeddedHead, embedding=AnnotatorEmbedding(spec.n_annotators, embedding))
        R, K, n = spec.n_annotators, spec.n_classes, self.n_networks
        n_features = trunks[0].n_features
        self.label_networks = nn.ModuleList(
            AnnotatorNetwork(trunk, make(n_features, hidden, R, K)) for trunk in trunks[:n]
        )
        self.gate_networks = nn.ModuleList(
            AnnotatorNetwork(trunk, make(n_features, hidden[-1:], R, len(STARTS))) for trunk in trunks[n : 2 * n]
        )
        self.class_networks = make_committee(
            [
                nn.Sequential(trunk.module, mlp(n_features, spec.head_hidden, K, spec.dropout))
                for trunk in trunks[2 * n :]
            ]
        )
        self.register_buffer("start_weights", torch.full((len(STARTS),), 1 / len(STARTS)))
        has_matrices = R * K * K * 8 <= MAX_CONFUSION_BYTES
        self.register_buffer("right_probability", torch.full((R,), 0.5))
        self.register_buffer("wrong_labels", (1 - torch.eye(K)) / (K - 1))  # axes (true, said)
        self.register_buffer(
            "confusion", torch.full((R if has_matrices else 0, K, K), 1 / K)
        )  # (annotator, true, said)
        self.register_buffer("gate_mean", torch.zeros(R))
        self.register_buffer("gate_weight", torch.zeros(()))

    @staticmethod
    def n_trunks(n_folds: int) -> int:
        """Return how many backbones the method needs."""
        return max(n_folds, 1) * (2 + len(STARTS))

    # ---- training ------------------------------------------------------------------------------

    def phases(self, epochs: int) -> list[Phase]:
        """Return one phase for the label networks, then two phases per round: for class networks and gate networks."""
        n_rounds = min(MAX_ROUNDS, max(1, (epochs - 1) // 2))
        labels, gates = (max(1, round(share * epochs)) for share in (LABEL_SHARE, GATE_SHARE))
        gates = gates if epochs > 2 else 0
        return _phases(labels, max(1, (epochs - labels) // n_rounds - gates), gates, n_rounds)

    def default_phases(self, n_steps_per_pass: int, n_steps_per_epoch: int) -> list[Phase]:
        """Return phases that are long enough to converge, whatever the number of items."""
        limited = min(CLASS_PASSES * n_steps_per_pass, MAX_CLASS_STEPS)
        class_steps = max(MIN_CLASS_STEPS, limited, MIN_CLASS_PASSES * n_steps_per_pass)
        steps = (MIN_LABEL_STEPS, class_steps, MIN_GATE_STEPS)
        labels, classes, gates = (-(-n_steps // n_steps_per_epoch) for n_steps in steps)
        return _phases(labels, classes, gates, MAX_ROUNDS)

    def prepare(self, data: TrainingData) -> None:
        """Assign the rows that are trained on to folds."""
        fold = np.full(len(data), -1)
        rows = np.flatnonzero(self.training_mask(data))
        if self.n_folds:
            # a single row is a fold of its own, so that at least one network has not seen its labels
            for number, part in enumerate(assign_folds(rows, self.n_folds, self.seed) or [rows]):
                fold[part] = number
        self.register_buffer("fold", torch.from_numpy(fold), persistent=False)
        shape = (len(STARTS), len(data), self.n_classes)
        self.register_buffer("target", torch.zeros(shape), persistent=False)

    def begin_phase(self, data: TrainingData, predict: Predict, score_held_out: HeldOutScorer | None) -> None:
        """Compute the class probabilities that the next phase is trained on."""
        self.eval()
        round_index, trains_gates = divmod(self.phase_index - 1, 2)
        if round_index == 0 and not trains_gates:
            self._set_targets(data, [data.annotations.vote_shares(), self._classes_from_predicted_labels(data)])
            return
        outputs = self.outputs(data)
        gates = outputs.gate_logits if round_index or not trains_gates else [None] * len(STARTS)
        targets = []
        for number, (probabilities, gate) in enumerate(zip(outputs.class_probabilities, gates, strict=True)):
            if number and gate is None:  # gates start better from the classes that explain the predicted labels
                targets.append(self.target[number].cpu().numpy())
                continue
            fit = self._fit_posterior(data, probabilities, gate)
            soft = np.zeros(self.target.shape[1:], np.float32)
            soft[fit.votes.labelled] = fit.soft
            targets.append(soft)
        self._set_targets(data, targets)

    def _set_targets(self, data: TrainingData, targets: Sequence[NDArray[np.floating]]) -> None:
        """Set the class probabilities of both starts, (N, K) each. The gold class of an item gets probability 1."""
        known = np.flatnonzero(data.gold >= 0)
        stacked = np.nan_to_num(np.stack(targets)).astype(np.float32)
        stacked[:, known] = np.eye(self.n_classes, dtype=np.float32)[data.gold[known]]
        self.target.copy_(torch.from_numpy(stacked))

    def _fit_posterior(
        self, data: TrainingData, probabilities: NDArray[np.float64], gate_logits: NDArray[np.float64] | None
    ) -> PosteriorFit:
        """Fit the posterior to the labels, out-of-fold class probabilities (N, K), and gates if they are not None."""
        votes = Votes(data.annotations)
        ann = data.annotations
        mixed = (1 - MIN_PROBABILITY) * probabilities[votes.labelled] + MIN_PROBABILITY / self.n_classes
        gate = None if gate_logits is None else center_gates(gate_logits, ann.annotator, self.n_annotators)[0]
        max_sharpness = MAX_OUT_OF_FOLD_SHARPNESS if self.n_folds else 1.0
        return fit_posterior(votes, np.log(mixed), data.gold[votes.labelled], max_sharpness, gate)

    def finish(self, data: TrainingData) -> None:
        """Choose the weights of the two starts, and keep the annotator model for labels of later calls.

        Parameters
        ----------
        data : TrainingData
            The training data.
        """
        if not data.annotations.n_labels:
            return
        self.eval()
        outputs = self.outputs(data)
        fits = [self._fit_posterior(data, *pair) for pair in zip(*outputs, strict=True)]
        weights = _start_weights([fit.soft.argmax(1) for fit in fits], [fit.item_log_likelihoods() for fit in fits])
        models = [fit.annotators() for fit in fits]
        self.start_weights.copy_(torch.from_numpy(weights))
        self.right_probability.copy_(_mix(weights, [model.accuracy for model in models]))
        self.wrong_labels.copy_(_mix(weights, [model.wrong_labels.T for model in models]))
        if len(self.confusion):
            self.confusion.copy_(_mix(weights, [model.confusions.transpose(0, 2, 1) for model in models]))  # type: ignore[union-attr]
        ann = data.annotations
        means = [center_gates(logits, ann.annotator, self.n_annotators)[1] for logits in outputs.gate_logits]
        self.gate_mean.copy_(_mix(weights, means))
        self.gate_weight.copy_(_mix(weights, [np.array(model.gate_weight) for model in models]))

    def loss(self, batch: Batch) -> Loss:
        """Return the loss of the phase. Gold needs no separate loss: it is part of the current class probabilities."""
        return self.crowd_loss(self.features(batch.x), batch)

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the loss of the phase, summed over the networks."""
        weight = self._weight_by_network(batch)
        if self.phase_index == 0:
            total = self._sum_of_pair_losses(h, batch, weight, self.label_networks, _label_losses)
        elif self.phase_index % 2:
            log_f = self.class_networks(h).log_softmax(-1).unflatten(0, (len(STARTS), self.n_networks))
            target = self.target.to(h.device)[:, batch.row, :].to(log_f.dtype)
            total = -(weight * (target[:, None] * log_f).sum(-1)).sum()
        else:
            target = self.target.to(h.device)[:, batch.row[batch.item], batch.label].T
            total = self._sum_of_pair_losses(h, batch, weight, self.gate_networks, partial(_gate_losses, right=target))
        return Loss(total, weight.sum() / self.n_networks)

    def _weight_by_network(self, batch: Batch) -> Tensor:
        """Return the weight of each item for each network, (n_networks, B): 0 for items of the network's own fold."""
        own = (
            self.fold.to(batch.row.device)[batch.row] == torch.arange(self.n_networks, device=batch.row.device)[:, None]
        )
        return batch.weight * ~own

    def _sum_of_pair_losses(
        self,
        h: Tensor,
        batch: Batch,
        weight: Tensor,
        networks: nn.ModuleList,
        losses: Callable[[Tensor, Batch], Tensor],
    ) -> Tensor:
        """Return the sum of losses of labels, weighted by network and item."""
        return torch.stack(
            [
                (of_items[batch.item] * losses(network(h, batch.item, batch.annotator), batch)).sum()
                for network, of_items in zip(networks, weight, strict=True)
            ]
        ).sum()

    # ---- predictions of networks for rows that they were not trained on ------------------------

    def outputs(self, data: TrainingData) -> OutOfFoldOutputs:
        """Return class probabilities and gates of all rows, predicted by networks that were not trained on the row.

        For rows that are in no fold, the predictions are the mean over all networks. If there are no folds, this holds
        for all rows.

        Parameters
        ----------
        data : TrainingData
            Rows in the order of the training data; the labels may differ.

        Returns
        -------
        outputs : OutOfFoldOutputs
        """
        probabilities = np.zeros((len(STARTS), len(data), self.n_classes))
        gates = np.zeros((len(STARTS), data.annotations.n_labels))
        for members, batch, h, labels in self._out_of_fold_batches(data):
            f = torch.stack([self._class_probabilities(h, start, members).mean(0) for start in range(len(STARTS))])
            probabilities[:, batch.row.cpu().numpy()] = f.cpu().numpy()
            gates[:, labels] = self._gate_logits(h, batch.item, batch.annotator, members).double().T.cpu().numpy()
        return OutOfFoldOutputs(probabilities, gates)

    def _out_of_fold_batches(self, data: TrainingData) -> Iterator[tuple[slice, Batch, Tensor, IntArray]]:
        """Yield blocks of rows: networks that were not trained on them, batch, features and positions of the labels."""
        fold, device = self.fold.cpu().numpy(), next(self.parameters()).device
        indptr = data.annotations.indptr
        dtype = next(self.parameters()).dtype
        for number in range(-1, self.n_folds):
            rows = np.flatnonzero(fold == number)
            blocks = [rows[start : start + ROWS_PER_BLOCK] for start in range(0, len(rows), ROWS_PER_BLOCK)]
            members = slice(None) if number < 0 else slice(number, number + 1)
            with torch.inference_mode(), closing(data.stream(blocks)) as stream:
                for block, batch in zip(blocks, stream, strict=True):
                    moved = batch.to(device)
                    # annotators that were added after training share one position
                    moved = moved._replace(annotator=moved.annotator.clamp(max=self.n_annotators - 1))
                    labels = concatenate_ranges(indptr[block], indptr[block + 1] - indptr[block])
                    yield members, moved, self.features(moved.x.to(dtype)), labels

    def _class_probabilities(self, h: Tensor, start: int, members: slice = slice(None)) -> Tensor:
        """Return the class probabilities by the networks of a start, (n_members, B, K), in double precision.

        Single precision is not enough: there, the last digit of a softmax depends on the position of the row.
        """
        first, last, _ = members.indices(self.n_networks)
        offset = start * self.n_networks
        logits: Tensor = self.class_networks(h, slice(offset + first, offset + last))
        return logits.double().softmax(-1)

    def _gate_logits(self, h: Tensor, item: Tensor, annotator: Tensor, members: slice = slice(None)) -> Tensor:
        """Return the gates of pairs, averaged over networks, as logits, (L, n_starts)."""
        return torch.stack([network(h, item, annotator) for network in self.gate_networks[members]]).mean(0)

    def _classes_from_predicted_labels(self, data: TrainingData) -> NDArray[np.float32]:
        """Return the classes that explain the predicted labels best, as one-hot vectors, (N, K).

        There are two rules for choosing these classes: "any" is used if it makes the labels clearly more likely,
        otherwise "above chance". If there are only two classes, "above chance" is used, because the labels cannot
        decide: swapped classes would explain them equally well.
        """
        weights = torch.from_numpy(poll_weights(data, self.n_annotators)).float()
        polled = weights.nonzero()[:, 0]
        rules = CLASS_RULES[: 1 if self.n_classes == 2 else len(CLASS_RULES)]
        classes = np.zeros((len(rules), len(data)), np.int64)
        scores = np.zeros((len(rules), data.annotations.n_labels))
        for members, batch, h, labels in self._out_of_fold_batches(data):
            device = h.device
            weight, annotators = weights[polled].to(device), polled.to(device)
            pair = torch.arange(len(h) * len(polled), device=device)
            q = self._label_probabilities(h, pair // len(polled), annotators[pair % len(polled)], members)
            said = self._label_probabilities(h, batch.item, batch.annotator, members)
            for number, rule in enumerate(rules):
                truth = class_scores(q.unflatten(0, (len(h), len(polled))), weight, rule).argmax(1)
                classes[number, batch.row.cpu().numpy()] = truth.cpu().numpy()
                values = rule_log_likelihood(said, truth[batch.item], batch.label, rule)
                scores[number, labels] = values.cpu().numpy()
        best = 0
        if len(rules) > 1:
            gain = scores[1] - scores[0]
            best = int(gain.mean() > gain.std() / max(len(gain), 1) ** 0.5)
        initial: NDArray[np.float32] = np.eye(self.n_classes, dtype=np.float32)[classes[best]]
        return initial

    def _label_probabilities(self, h: Tensor, item: Tensor, annotator: Tensor, members: slice) -> Tensor:
        """Return the probability of each label that the annotator could give, averaged over networks, (L, K)."""
        networks = self.label_networks[members]
        return torch.stack([network(h, item, annotator).softmax(1) for network in networks]).mean(0)

    # ---- predictions of classes, and estimates about annotators --------------------------------

    def limitations(self) -> tuple[str, ...]:
        """Return a sentence that the confidence is too high, or nothing without folds."""
        if not self.n_folds:
            return ()
        return (
            "The confidence is too high, especially if there are fewer than about 2,000 items. Each network was "
            "trained without the items that it predicts, but their labels influenced the consensus of other items.",
        )

    def class_logits(self, h: Tensor) -> Tensor:
        """Return the logarithms of the mean class probabilities of all networks, (B, K)."""
        weights = self.start_weights.tolist()
        mean = torch.stack(
            [w * self._class_probabilities(h, start).mean(0) for start, w in enumerate(weights) if w > 0]
        ).sum(0)
        return mean.clamp(min=1e-12).log().to(h.dtype)

    def accuracies(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return, for each pair, the probability that the annotator is right, (L,)."""
        return (self._gate_logits(features, item, annotator) @ self.start_weights).sigmoid()

    def weight_logits(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the logarithms of the accuracies, (L,)."""
        return self.accuracies(features, item, annotator).clamp(min=1e-6).log()

    def confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the confusion matrix of each pair, P(label | true class), (L, K, K)."""
        base = self._base_confusions(annotator)
        right = base.diagonal(dim1=1, dim2=2).clamp(1e-6, 1 - 1e-6)
        shifted = self._shifted(right, features, item, annotator)
        eye = torch.eye(self.n_classes, device=features.device)
        return torch.where(eye.bool(), shifted[:, :, None], base * ((1 - shifted) / (1 - right))[:, :, None])

    def label_log_probabilities(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Return `log p(label | class)` of each label and class, (L, K)."""
        matrices = self.confusions(features, item, annotator)
        return matrices[torch.arange(len(label), device=label.device), :, label].clamp(min=1e-9).log()

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Return the posterior of the class given the item and its labels, (B, K)."""
        log_f = self.class_logits(features)
        return posterior(log_f, self.label_log_probabilities(features, item, annotator, label), item)

    def _base_confusions(self, annotator: Tensor) -> Tensor:
        """Return the confusion matrices of annotators on their average item, (L, K, K), axes (pair, true, said)."""
        if len(self.confusion):
            return self.confusion[annotator]
        right = self.right_probability[annotator][:, None, None]
        eye = torch.eye(self.n_classes, device=annotator.device)
        return right * eye + (1 - right) * self.wrong_labels

    def _shifted(self, right: Tensor, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return, for each pair and class k, P(label k | true class k), adjusted by the gate of the pair, (L, K)."""
        logits = self._gate_logits(features, item, annotator) @ self.start_weights
        gate = logits.clamp(-6.9, 6.9) - self.gate_mean[annotator]
        return (right.logit() + self.gate_weight * gate[:, None]).sigmoid().clamp(1e-6, 1 - 1e-6)

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators, each with the average of the existing annotators' parameters."""
        super().add_annotators(count)
        for name in ("right_probability", "gate_mean", "confusion"):
            table = getattr(self, name)
            if len(table):
                setattr(self, name, torch.cat([table, table.mean(0, keepdim=True).expand(count, *table.shape[1:])]))


def _phases(labels: int, classes: int, gates: int, n_rounds: int) -> list[Phase]:
    """Return the phases, given their epochs. Validation chooses an epoch of the last class phase."""
    phases = [Phase("annotator labels", labels, ("label_networks",), selection="never")]
    for number in range(1, n_rounds + 1):
        selection: Literal["epoch", "never"] = "epoch" if number == n_rounds else "never"
        phases.append(Phase(f"classes, round {number}", classes, ("class_networks",), selection=selection))
        phases.append(Phase(f"annotators, round {number}", gates, ("gate_networks",), selection="never"))
    return phases


def _label_losses(logits: Tensor, batch: Batch) -> Tensor:
    """Return the cross-entropy of each label, (L,)."""
    return cross_entropy(logits, batch.label, reduction="none")


def _gate_losses(logits: Tensor, batch: Batch, right: Tensor) -> Tensor:
    """Return the cross-entropy between the gates and `right` (L, n_starts), summed over both starts, (L,)."""
    return binary_cross_entropy_with_logits(logits, right.to(logits.dtype), reduction="none").sum(1)


def _start_weights(
    classes: Sequence[NDArray[np.int64]], log_likelihoods: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return the weights of the starts: equal, unless they disagree on many items and one is clearly more likely.

    `classes` holds the consensus of each start, (n,). `log_likelihoods` holds, for each start, the log-likelihood of
    the labels of each item, (n,).

    Examples
    --------
    >>> same, other, log_likelihood = np.zeros(4), np.arange(4), np.array([-1.0, -1.2, -0.9, -1.1])
    >>> _start_weights([same, other], [log_likelihood, log_likelihood - 1]).tolist()
    [1.0, 0.0]
    >>> _start_weights([same, same], [log_likelihood, log_likelihood - 1]).tolist()
    [0.5, 0.5]
    """
    gain = log_likelihoods[0] - log_likelihoods[1]
    margin = CLEAR_STANDARD_ERRORS * gain.std() / len(gain) ** 0.5
    if abs(gain.mean()) <= margin or (classes[0] != classes[1]).mean() <= MAX_DISAGREEMENT:
        return np.array([0.5, 0.5])
    return np.array([1.0, 0.0]) if gain.mean() > 0 else np.array([0.0, 1.0])


def _mix(weights: NDArray[np.float64], arrays: Sequence[NDArray[np.float64]]) -> Tensor:
    """Return the weighted mean of arrays."""
    return torch.from_numpy(np.asarray(sum(w * array for w, array in zip(weights, arrays, strict=True)))).float()

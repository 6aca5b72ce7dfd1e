"""Consensus training: networks learn from the consensus of the labels and of cross-fitted classifiers.

The consensus is computed before the training, from the labels and from classifiers that were trained without the item
(`crowdfuse.estimators.consensus_training`). Class networks learn it from the inputs. Then a gate network learns which
labels are right according to the consensus, so that it knows on which items each annotator is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from crowdfuse.aggregation.posterior import (
    MAX_CONFUSION_BYTES,
    MAX_GATE_LOGIT,
    AnnotatorModel,
    center_gates,
    fit_posterior,
)
from crowdfuse.aggregation.votes import Votes
from crowdfuse.functional import posterior
from crowdfuse.labels.folds import assign_folds
from crowdfuse.methods.base import HeldOutScorer, Loss, Method, ModelSpec, Phase, Predict
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.nets.annotator_heads import AnnotatorEmbedding, AnnotatorHead, EmbeddedHead
from crowdfuse.nets.backbones import Trunk
from crowdfuse.nets.committee import StackedMLPs, make_committee
from crowdfuse.nets.mlp import mlp

N_CLASS_NETWORKS = 5
MIN_CLASS_STEPS = 1_500  # if the number of epochs is not given
CLASS_PASSES, MAX_CLASS_STEPS, MIN_CLASS_PASSES = 40, 6_000, 10  # 40 passes, or fewer if they take over 6,000 steps
GATE_SHARE = 0.25  # of a given number of epochs
GATE_PASSES, MIN_GATE_STEPS, MAX_GATE_STEPS, MIN_GATE_PASSES = 20, 1_000, 3_000, 5  # the same for the gate network
ROWS_PER_BLOCK = 512

HeadFactory = Callable[[int, tuple[int, ...], int, int], nn.Module]


class TrainingConsensus(NamedTuple):
    """The consensus that the networks are trained on.

    Attributes
    ----------
    class_probabilities : ndarray of shape (n_items, n_classes)
        Probability of each class. Rows of items without labels are not used.
    annotators : AnnotatorModel
        Accuracies and confusion matrices of the annotators.
    """

    class_probabilities: NDArray[np.float32]
    annotators: AnnotatorModel


class GateNetwork(nn.Module):
    """A trunk with a head that predicts, for pairs (item, annotator), whether the annotator is right on the item.

    Parameters
    ----------
    spec : ModelSpec
        Sizes of the head.
    trunk : Trunk
        The backbone.
    heads : {"shared", "embedded"}
        Kind of the head. "shared": `AnnotatorHead`. "embedded": `EmbeddedHead`.
    embedding : int
        Length of an annotator's embedding, for "embedded".
    """

    def __init__(self, spec: ModelSpec, trunk: Trunk, heads: Literal["shared", "embedded"], embedding: int) -> None:
        super().__init__()
        self.trunk = trunk.module
        hidden = spec.head_hidden
        make: HeadFactory = AnnotatorHead
        if heads == "embedded":
            hidden = hidden or (64,)
            make = partial(EmbeddedHead, embedding=AnnotatorEmbedding(spec.n_annotators, embedding))
        self.head = make(trunk.n_features, hidden[-1:], spec.n_annotators, 1)

    def forward(self, x: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return, for each pair (item, annotator), the logit of the probability that the annotator is right, (L,)."""
        gates: Tensor = self.head(self.trunk(x), item, annotator)[:, 0]
        return gates


class ConsensusTraining(Method):
    """Class networks and a gate network that are trained on a consensus.

    The consensus `t_n` holds class probabilities of each item n. In the first phase, the class networks learn it: the
    loss is the cross-entropy `mean_nm -sum_k t_n(k) log f_nm(k)`, where `f_nm` are the class probabilities of item n by
    class network m. If there are several class networks, each leaves out a different part of the items, so that the
    mean of their predictions is more accurate than one network. In the second phase, the gate network learns the
    probability that annotator r is right on item n, called the gate. The loss is the binary cross-entropy of the gates
    with `t_n(y_nr)`, the probability that the label `y_nr` is right.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    trunks : sequence of Trunk
        Backbones: one per class network, and the last one for the gate network.
    heads : {"shared", "embedded"}
        Kind of the head that predicts the gates. "shared": `AnnotatorHead`. "embedded": `EmbeddedHead`.
    embedding : int
        Length of an annotator's embedding, for "embedded".

    Attributes
    ----------
    target : Tensor of shape (N, K)
        The consensus of each row of the training data.
    left_out_by : Tensor of shape (N,)
        Index of the class network that does not learn from the row; -1 if all class networks learn from it.
    """

    confusion_given: ClassVar[Literal["said", "true"] | None] = "true"
    resume_buffers: ClassVar[tuple[str, ...]] = ("target",)
    target: Tensor
    left_out_by: Tensor
    right_probability: Tensor
    wrong_labels: Tensor
    confusion: Tensor
    gate_mean: Tensor
    gate_weight: Tensor
    is_trained: Tensor

    def __init__(
        self,
        spec: ModelSpec,
        *,
        trunks: Sequence[Trunk],
        heads: Literal["shared", "embedded"],
        embedding: int,
    ) -> None:
        super().__init__(spec)
        self.trunk, self.classify = nn.Identity(), nn.Sequential()  # the networks below replace them
        self.heads, self.seed, self.n_class_networks = heads, spec.seed, len(trunks) - 1
        R, K = spec.n_annotators, spec.n_classes
        n_features = spec.trunk.n_features
        self.class_networks = make_committee(
            [nn.Sequential(trunk.module, mlp(n_features, spec.head_hidden, K, spec.dropout)) for trunk in trunks[:-1]]
        )
        self.gate_network = GateNetwork(spec, trunks[-1], heads, embedding)
        has_matrices = R * K * K * 8 <= MAX_CONFUSION_BYTES
        self.register_buffer("right_probability", torch.full((R,), 0.5))
        self.register_buffer("wrong_labels", (1 - torch.eye(K)) / (K - 1))  # axes (true, said)
        self.register_buffer(
            "confusion", torch.full((R if has_matrices else 0, K, K), 1 / K)
        )  # (annotator, true, said)
        self.register_buffer("gate_mean", torch.zeros(R))
        self.register_buffer("gate_weight", torch.zeros(()))
        self.register_buffer("is_trained", torch.zeros((), dtype=torch.bool))
        self.consensus: TrainingConsensus | None = None
        self._learned_gate_weight = 0.0

    def backbones(self) -> list[nn.Module]:
        """Return the class networks and the backbone of the gate network; `trunk` is empty."""
        return [self.class_networks, self.gate_network.trunk]

    # ---- training ------------------------------------------------------------------------------

    def unsupported_reason(self, data: TrainingData) -> str | None:
        """Return an error message if there are no labels of annotators."""
        if data.annotations.n_labels:
            return None
        return "consensus-training needs labels of annotators, but got only gold; use the method true-label"

    def phases(self, epochs: int) -> list[Phase]:
        """Return a phase for the class networks and one for the gate network."""
        gates = max(1, round(GATE_SHARE * epochs))
        return _phases(max(1, epochs - gates), gates)

    def default_phases(self, n_steps_per_pass: int, n_steps_per_epoch: int) -> list[Phase]:
        """Return phases that are long enough to converge, whatever the number of items."""
        class_steps = min(CLASS_PASSES * n_steps_per_pass, MAX_CLASS_STEPS)
        gate_steps = min(GATE_PASSES * n_steps_per_pass, MAX_GATE_STEPS)
        class_steps = max(MIN_CLASS_STEPS, class_steps, MIN_CLASS_PASSES * n_steps_per_pass)
        gate_steps = max(MIN_GATE_STEPS, gate_steps, MIN_GATE_PASSES * n_steps_per_pass)
        return _phases(-(-class_steps // n_steps_per_epoch), -(-gate_steps // n_steps_per_epoch))

    def prepare(self, data: TrainingData) -> None:
        """Set the consensus that the networks are trained on.

        Parameters
        ----------
        data : TrainingData
            The training data. If the attribute `consensus` is None, as in `partial_fit`, the consensus is computed from
            the labels and, after the first training run, also from the predictions of the networks.
        """
        found = self._own_consensus(data) if self.consensus is None else self.consensus
        target = np.nan_to_num(found.class_probabilities).astype(np.float32)
        known = np.flatnonzero(data.gold >= 0)
        target[known] = np.eye(self.n_classes, dtype=np.float32)[data.gold[known]]
        self.register_buffer("target", torch.from_numpy(target), persistent=False)
        left_out_by = np.full(len(data), -1)
        rows = np.flatnonzero(self.training_mask(data) & (data.weight > 0))
        if self.n_class_networks > 1 and len(rows) >= self.n_class_networks:
            for network, part in enumerate(assign_folds(rows, self.n_class_networks, self.seed)):
                left_out_by[part] = network
        self.register_buffer("left_out_by", torch.from_numpy(left_out_by), persistent=False)
        model = found.annotators
        known_annotators = self._annotators_to_update(data)
        self.right_probability[known_annotators] = torch.from_numpy(model.accuracy).float()[known_annotators]
        self.wrong_labels.copy_(torch.from_numpy(model.wrong_labels.T.copy()))
        if len(self.confusion):
            assert model.confusions is not None
            matrices = torch.from_numpy(model.confusions.transpose(0, 2, 1).copy()).float()
            self.confusion[known_annotators] = matrices[known_annotators]
        self.gate_weight.fill_(0.0)  # until the gates are trained
        self._learned_gate_weight = model.gate_weight
        self.is_trained.fill_(True)

    def begin_phase(self, data: TrainingData, predict: Predict, score_held_out: HeldOutScorer | None) -> None:
        """Let the gates shift the confusion matrices, from the start of the gate phase.

        Until then, the gate network is untrained, and the gates have weight 0.

        Parameters
        ----------
        data, predict, score_held_out
            Not used.
        """
        self.gate_weight.fill_(self._learned_gate_weight)

    def _annotators_to_update(self, data: TrainingData) -> Tensor:
        """Return a mask of the annotators that this data tells about: all at first, later those with labels."""
        has_labels = np.bincount(data.annotations.annotator, minlength=self.n_annotators) > 0
        return torch.from_numpy(has_labels | (not self.is_trained))

    def _own_consensus(self, data: TrainingData) -> TrainingConsensus:
        """Return the consensus of the labels and, after the first training, of what the networks say."""
        votes = Votes(data.annotations)
        log_p = np.zeros((votes.n_items, self.n_classes))
        if self.is_trained:
            self.eval()
            log_p = self._log_class_probabilities(data, np.flatnonzero(votes.labelled))
        fit = fit_posterior(votes, log_p, data.gold[votes.labelled], 1.0)
        soft = np.zeros((len(data), self.n_classes), np.float32)
        soft[votes.labelled] = fit.soft
        return TrainingConsensus(soft, fit.annotators())

    def _log_class_probabilities(self, data: TrainingData, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the logarithms of the class probabilities of rows, (n_rows, K)."""
        blocks = [rows[start : start + ROWS_PER_BLOCK] for start in range(0, len(rows), ROWS_PER_BLOCK)]
        parameter = next(self.parameters())
        parts = [np.zeros((0, self.n_classes))]
        with torch.inference_mode(), closing(data.stream(blocks)) as stream:
            for batch in stream:
                h = self.features(batch.to(parameter.device).x.to(parameter.dtype))
                parts.append(self.class_logits(h).cpu().double().log_softmax(1).numpy())
        return np.concatenate(parts)

    def finish(self, data: TrainingData) -> None:
        """Compute the mean gate of each annotator.

        A gate shifts the confusion matrix of an annotator on an item by its difference from this mean.

        Parameters
        ----------
        data : TrainingData
            The training data.
        """
        ann = data.annotations
        rows = np.flatnonzero(np.diff(ann.indptr) > 0)
        blocks = [rows[start : start + ROWS_PER_BLOCK] for start in range(0, len(rows), ROWS_PER_BLOCK)]
        logits = np.empty(ann.n_labels)  # filled block by block, since a list of blocks would fragment the memory
        n_done = 0
        with torch.inference_mode(), closing(data.stream(blocks)) as stream:
            for batch in stream:
                of_block = self._gate_logits(self.features(batch.x.float()), batch.item, batch.annotator)
                logits[n_done : n_done + len(of_block)] = of_block.numpy()
                n_done += len(of_block)
        means = center_gates(logits, ann.annotator, self.n_annotators)[1]
        has_labels = torch.from_numpy(np.bincount(ann.annotator, minlength=self.n_annotators) > 0)
        self.gate_mean[has_labels] = torch.from_numpy(means).float()[has_labels]

    def loss(self, batch: Batch) -> Loss:
        """Return the loss of the current phase. The consensus of items with gold is the gold class."""
        return self.crowd_loss(self.features(batch.x), batch)

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the loss of the current phase, for class networks or gate network."""
        target = self.target.to(h.device)
        if self.phase_index == 0:
            log_f = self.class_networks(h).log_softmax(-1)
            losses = -(target[batch.row].to(log_f.dtype) * log_f).sum(-1)
            network = torch.arange(len(losses), device=h.device)[:, None]
            weight = batch.weight * (self.left_out_by.to(h.device)[batch.row] != network)
            return Loss((weight * losses).sum(), weight.sum())
        logits = self._gate_logits(h, batch.item, batch.annotator)
        right = target[batch.row[batch.item], batch.label].to(logits.dtype)
        losses = binary_cross_entropy_with_logits(logits, right, reduction="none")
        weight = batch.weight[batch.item]
        return Loss((weight * losses).sum(), weight.sum())

    # ---- predictions, and what the method says about annotators --------------------------------

    def class_logits(self, h: Tensor) -> Tensor:
        """Return the logarithms of the mean class probabilities of all class networks, (B, K).

        They are computed in double precision if the device supports it. In single precision, the last digit of a
        softmax depends on the position of the item in the batch.
        """
        outputs: Tensor = self.class_networks(h)
        probabilities = outputs.to(highest_precision(outputs.device)).softmax(-1).mean(0)
        return probabilities.clamp(min=1e-12).log().to(h.dtype)

    def _gate_logits(self, h: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the logits of the probability that the annotator is right, for each pair, (L,)."""
        gates: Tensor = self.gate_network(h, item, annotator)
        return gates

    def accuracies(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return, for each pair (item, annotator), the probability that the annotator is right, (L,)."""
        return self._gate_logits(features, item, annotator).sigmoid()

    def weight_logits(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the logarithms of the accuracies, (L,)."""
        return self.accuracies(features, item, annotator).clamp(min=1e-6).log()

    def confusions(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the confusion matrix of each pair (item, annotator), P(label | true class), (L, K, K)."""
        base = self._base_confusions(annotator)
        right = base.diagonal(dim1=1, dim2=2).clamp(1e-6, 1 - 1e-6)
        shifted = self._shifted(right, features, item, annotator)
        eye = torch.eye(self.n_classes, device=features.device)
        return torch.where(eye.bool(), shifted[:, :, None], base * ((1 - shifted) / (1 - right))[:, :, None])

    def label_log_probabilities(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Return `log p(label | class)` for each label and each possible true class, (L, K)."""
        matrices = self.confusions(features, item, annotator)
        return matrices[torch.arange(len(label), device=label.device), :, label].clamp(min=1e-9).log()

    def fused(self, features: Tensor, item: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Return the posterior class probabilities of each item, given its input and labels, (B, K)."""
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
        """Return P(said = k | true = k) of pairs, (L, K), shifted by the gates."""
        logits = self._gate_logits(features, item, annotator)
        gate = logits.clamp(-MAX_GATE_LOGIT, MAX_GATE_LOGIT) - self.gate_mean[annotator]
        return (right.logit() + self.gate_weight * gate[:, None]).sigmoid().clamp(1e-6, 1 - 1e-6)

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators, each the average of the existing ones."""
        super().add_annotators(count)
        for name in ("right_probability", "gate_mean", "confusion"):
            table = getattr(self, name)
            if len(table):
                setattr(self, name, torch.cat([table, table.mean(0, keepdim=True).expand(count, *table.shape[1:])]))


def highest_precision(device: torch.device) -> torch.dtype:
    """Return the most precise floating-point type of a device: float64, but float32 on Apple's GPUs.

    Parameters
    ----------
    device : torch.device
        The device.

    Returns
    -------
    dtype : torch.dtype

    Examples
    --------
    >>> highest_precision(torch.device("cpu")), highest_precision(torch.device("mps"))
    (torch.float64, torch.float32)
    """
    return torch.float32 if device.type == "mps" else torch.float64


def n_class_networks(trunk: Trunk, head_hidden: tuple[int, ...], dropout: float) -> int:
    """Return how many class networks to train: 5 if they are MLPs that can be trained together, otherwise 1."""
    probe = nn.Sequential(trunk.module, mlp(trunk.n_features, head_hidden, 2, dropout))
    return N_CLASS_NETWORKS if isinstance(make_committee([probe]), StackedMLPs) else 1


def _phases(classes: int, gates: int) -> list[Phase]:
    """Return the phases, given their epochs. Validation chooses an epoch of the class phase."""
    return [
        Phase("classes", classes, ("class_networks",)),
        Phase("annotators", gates, ("gate_network", "gate_weight"), selection="never"),
    ]

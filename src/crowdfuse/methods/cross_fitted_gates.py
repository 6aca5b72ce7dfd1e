"""Gates for a given consensus: on which items each annotator is right, by networks that were trained without the item.

Consensus training compares several candidates for the consensus by the likelihood of the labels. Each candidate needs
gates of its own: gates that were trained on another consensus would favour that consensus.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from crowdfuse.labels.encoding import concatenate_ranges
from crowdfuse.labels.ids import IntArray
from crowdfuse.methods.base import Loss, Method, ModelSpec, Phase
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.nets.annotator_heads import AnnotatorEmbedding, AnnotatorHead, EmbeddedHead
from crowdfuse.nets.backbones import Trunk

MIN_GATE_STEPS, GATE_PASSES, MAX_GATE_STEPS, MIN_GATE_PASSES = 1_000, 20, 3_000, 5
ROWS_PER_BLOCK = 512

HeadFactory = Callable[[int, tuple[int, ...], int, int], nn.Module]


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
    n_out : int, default=1
        Number of outputs per pair.
    """

    def __init__(
        self, spec: ModelSpec, trunk: Trunk, heads: Literal["shared", "embedded"], embedding: int, n_out: int = 1
    ) -> None:
        super().__init__()
        self.trunk = trunk.module
        hidden = spec.head_hidden
        make: HeadFactory = AnnotatorHead
        if heads == "embedded":
            hidden = hidden or (64,)
            make = partial(EmbeddedHead, embedding=AnnotatorEmbedding(spec.n_annotators, embedding))
        self.head = make(trunk.n_features, hidden[-1:], spec.n_annotators, n_out)

    def forward(self, x: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return the gates of pairs as logits, (L, n_out)."""
        outputs: Tensor = self.head(self.trunk(x), item, annotator)
        return outputs


def gate_epochs(n_steps_per_pass: int, n_steps_per_epoch: int) -> int:
    """Return how many epochs a gate network is trained if the number of epochs is not given."""
    n_steps = max(
        MIN_GATE_STEPS, min(GATE_PASSES * n_steps_per_pass, MAX_GATE_STEPS), MIN_GATE_PASSES * n_steps_per_pass
    )
    return -(-n_steps // n_steps_per_epoch)


class CrossFittedGates(Method):
    """Gate networks, one per fold, each trained on the labels of the other folds.

    The loss is the mean over networks, labels and candidates of the binary cross-entropy of the gate with `t_n(y_nr)`:
    the probability, according to the candidate for the consensus, that the label `y_nr` is right.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    trunks : sequence of Trunk
        One backbone per fold.
    folds : sequence of ndarray
        The rows of each fold.
    candidates : ndarray of shape (n_candidates, N, K)
        Class probabilities of all rows, according to each candidate for the consensus.
    heads : {"shared", "embedded"}
        Kind of the heads; see `GateNetwork`.
    embedding : int
        Length of an annotator's embedding, for "embedded".
    """

    resume_buffers: ClassVar[tuple[str, ...]] = ("fold", "target")
    fold: Tensor
    target: Tensor

    def __init__(
        self,
        spec: ModelSpec,
        *,
        trunks: Sequence[Trunk],
        folds: Sequence[IntArray],
        candidates: NDArray[np.float32],
        heads: Literal["shared", "embedded"],
        embedding: int,
    ) -> None:
        super().__init__(spec)
        self.trunk, self.classify = nn.Identity(), nn.Sequential()  # the networks below replace them
        self.networks = nn.ModuleList(GateNetwork(spec, trunk, heads, embedding, len(candidates)) for trunk in trunks)
        fold = np.full(candidates.shape[1], -1)
        for number, rows in enumerate(folds):
            fold[rows] = number
        self.register_buffer("fold", torch.from_numpy(fold), persistent=False)
        self.register_buffer("target", torch.from_numpy(candidates), persistent=False)

    def default_phases(self, n_steps_per_pass: int, n_steps_per_epoch: int) -> list[Phase]:
        """Return one phase that is long enough to converge, whatever the number of items."""
        return [Phase("", gate_epochs(n_steps_per_pass, n_steps_per_epoch))]

    def loss(self, batch: Batch) -> Loss:
        """Return the loss; gold is part of the candidates."""
        return self.crowd_loss(self.features(batch.x), batch)

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the loss, summed over the networks."""
        row = batch.row[batch.item]
        fold = self.fold.to(h.device)[row]
        right = self.target.to(h.device)[:, row, batch.label].T
        total, weights = h.new_zeros(()), h.new_zeros(())
        for number, network in enumerate(self.networks):
            weight = batch.weight[batch.item] * (fold != number)
            logits = network(h, batch.item, batch.annotator)
            losses = binary_cross_entropy_with_logits(logits, right.to(logits.dtype), reduction="none").mean(1)
            total, weights = total + (weight * losses).sum(), weights + weight.sum()
        return Loss(total, weights)

    def right_probabilities(self, data: TrainingData) -> NDArray[np.float64]:
        """Return the probability that each label is right, by the network that was not trained on its item.

        Parameters
        ----------
        data : TrainingData
            The training data.

        Returns
        -------
        probabilities : ndarray of shape (n_candidates, n_labels)
            0.5 for labels of rows that belong to no fold.
        """
        fold, indptr = self.fold.cpu().numpy(), data.annotations.indptr
        found = np.full((len(self.target), data.annotations.n_labels), 0.5)
        for number, network in enumerate(self.networks):
            rows = np.flatnonzero(fold == number)
            blocks = [rows[start : start + ROWS_PER_BLOCK] for start in range(0, len(rows), ROWS_PER_BLOCK)]
            with torch.inference_mode(), closing(data.stream(blocks)) as stream:
                for block, batch in zip(blocks, stream, strict=True):
                    labels = concatenate_ranges(indptr[block], indptr[block + 1] - indptr[block])
                    gates = network(self.features(batch.x.float()), batch.item, batch.annotator)
                    found[:, labels] = gates.double().sigmoid().T.numpy()
        return found

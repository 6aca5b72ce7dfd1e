"""Model-bootstrapped EM: confusion matrices are estimated as if the network's predictions were the truth.

Three steps are repeated. The network is trained on the current soft labels. Then each annotator's confusions are
counted, as if the network's predictions were the truth. Then new soft labels are computed from these confusions. The
first soft labels are the vote shares.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import sparse
from torch import Tensor

from crowdfuse.functional import vote_shares
from crowdfuse.methods.base import HeldOutScorer, Loss, ModelSpec, Phase, Predict
from crowdfuse.methods.data import Batch, TrainingData
from crowdfuse.methods.global_confusions import CountedConfusions


class MBEM(CountedConfusions):
    """Cross-entropy on a posterior q that is computed in each round: `mean_n -sum_k q_n(k) log f_n(k)`.

    f_n are the class probabilities of item n, S_n are the annotators who labelled it, and y_nr are their labels. In the
    first round, q are the vote shares. Before each later round, the class prior and the confusion matrices A_r are
    counted (M-step), and q is computed from them (E-step). c_n is the class that the network predicts for item n, and
    items are counted by their weights:

    - M-step: `prior(k)` is the share of items with c_n = k, and `A_r[k, y]` is the share of label y among annotator
      r's labels of items with c_n = k.
    - E-step: `q_n(k)` is proportional to `prior(k) prod_{r in S_n} A_r[k, y_nr]`.

    Network and optimizer are kept from one round to the next. q is computed per batch from prior, matrices and labels,
    so nothing is stored per item.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    rounds : int
        Number of rounds.
    chosen : {"epoch", "round"}
        Epochs among which validation chooses. "epoch": all epochs of the last round. "round": the last epoch of each
        round.

    References
    ----------
    Khetan, Lipton and Anandkumar, "Learning from noisy singly-labeled data", ICLR 2018.
    """

    def __init__(self, spec: ModelSpec, *, rounds: int, chosen: Literal["epoch", "round"]) -> None:
        super().__init__(spec)
        self.rounds = rounds
        self.chosen: Literal["epoch", "end"] = "epoch" if chosen == "epoch" else "end"

    def phases(self, epochs: int) -> list[Phase]:
        """Return one phase per round. If the epochs cannot be split evenly, the first rounds have one epoch more."""
        n_even, n_left_over = divmod(epochs, self.rounds)
        return [
            Phase(f"round {i + 1} of {self.rounds}", n_even + (i < n_left_over), selection=self.chosen)
            for i in range(self.rounds)
        ]

    def prepare(self, data: TrainingData) -> None:
        """Estimate the class prior and the confusion matrices as if the vote shares were the truth."""
        ann = data.annotations
        shares = (1 / np.diff(ann.indptr)[ann.item], (ann.item, ann.label))
        self.estimate_confusions(data, sparse.csr_array(shares, shape=(len(data), self.n_classes)))

    def begin_phase(self, data: TrainingData, predict: Predict, score_held_out: HeldOutScorer | None) -> None:
        """Estimate the class prior and the confusion matrices as if the network's predicted classes were the truth."""
        rows = np.arange(len(data))
        hard = (np.ones(len(data)), (rows, predict().argmax(1)))
        self.estimate_confusions(data, sparse.csr_array(hard, shape=(len(data), self.n_classes)))

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the cross-entropy on the vote shares (first round) or on the posterior (later rounds)."""
        log_f = self.class_logits(h).log_softmax(1)
        q = (
            vote_shares(batch.label, batch.item, batch.n_items, self.n_classes)
            if self.phase_index == 0
            else self.fused(h, batch.item, batch.annotator, batch.label)
        )
        weight = batch.labelled_weight
        return Loss(-(weight[:, None] * q * log_f).sum(), weight.sum())

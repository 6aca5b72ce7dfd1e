"""A method to copy: cross-entropy on every label, with one learned bias per annotator.

To add a method:

1. Copy this file to `methods/your_method.py` and rename the class.
2. Copy `estimators/_template.py` to `estimators/your_method.py`, and rename the class and `method_name`.
3. Add one line to `ESTIMATORS` in `estimators/registry.py`, and one each to the imports and to `__all__` of
   `estimators/__init__.py`.
4. Add `tests/methods/test_your_method.py`. Compare the loss with its definition written out in plain loops, and test an
   example whose right answer is known.

`fit`, `compare`, `reproduce`, `load` and the shared tests then include the method. `tests/test_adding_a_method.py`
follows these steps with this file, so the template is known to work.

A module docstring like this one says in a few sentences how the method works. The formula and the paper belong to the
docstring of the class.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from crowdfuse.functional import scatter_sum
from crowdfuse.methods.base import Loss, Method, ModelSpec
from crowdfuse.methods.data import Batch
from crowdfuse.nets.annotator_tables import extend_tables, take_rows


class TemplateMethod(Method):
    """Cross-entropy on every label, with a bias per annotator and class.

    Write the loss as a formula, in the notation of the other methods: f_n are the class probabilities of item n, S_n
    are the annotators who labelled the item, y_nr are their labels, and K is the number of classes. In this template,
    the loss is `mean_n sum_{r in S_n} -log softmax(z_n + scale b_r)[y_nr]`, where z_n are the class logits of item n
    and b_r is the bias of annotator r.

    Say where the implementation differs from the paper, and why.

    Parameters
    ----------
    spec : ModelSpec
        Backbone, sizes and seed of the method.
    scale : float
        Factor of the biases.

    References
    ----------
    Authors, "Title", venue and year.
    """

    def __init__(self, spec: ModelSpec, *, scale: float) -> None:
        # Makes self.trunk (the backbone), self.classify (the class head), self.n_classes and self.n_annotators.
        super().__init__(spec)
        self.scale = scale
        # A learned tensor is an nn.Parameter, any other tensor is a buffer. Both are saved with the model.
        # Random initial values must come from torch's generator (seeded by the estimator) or from spec.seed.
        self.bias = nn.Parameter(torch.zeros(spec.n_annotators, spec.n_classes))

    def crowd_loss(self, h: Tensor, batch: Batch) -> Loss:
        """Return the loss of items without gold (the only method that every subclass must define)."""
        # h (B, D) are the items' features. The L labels of the batch are the columns batch.item, batch.annotator and
        # batch.label. Use index operations on these pairs, never a dense array of items x annotators.
        losses = self._label_losses(h, batch)
        # Return a weighted sum and the sum of the weights. Items without labels must not add to either.
        return Loss((batch.weight[batch.item] * losses).sum(), batch.labelled_weight.sum())

    def gold_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Return the loss of each item with gold, (B,): cross-entropy on the gold class plus the loss of its labels.

        Leave this method out if the method has no annotator model that gold could train.
        """
        return super().gold_losses(h, batch) + scatter_sum(self._label_losses(h, batch), batch.item, batch.n_items)

    def _label_losses(self, h: Tensor, batch: Batch) -> Tensor:
        """Return the loss of each label, (L,)."""
        logits = self.class_logits(h).index_select(0, batch.item)
        # take_rows has sparse gradients in long tables, so that the cost of a step depends only on its labels.
        logits = logits + self.scale * take_rows(self.bias, batch.annotator)
        return cross_entropy(logits, batch.label, reduction="none")

    def add_annotators(self, count: int) -> None:
        """Append `count` annotators with the mean bias (only for methods with a table of one row per annotator)."""
        super().add_annotators(count)
        extend_tables(self, ("bias",), count)

    # Optional hooks; see the docstrings of `Method` for all of them:
    #   phases, begin_phase      train one part after the other, and compute something in between
    #   prepare                  initialize the method from the whole training data before the first step
    #   unsupported_reason       explain why the method cannot learn from some data, and which methods can
    #   label_log_probabilities  score held-out labels by the method's own likelihood
    #   weight_logits, confusions, accuracies, fused
    #                            what the method says about annotators, for pairs (item, annotator)

    def weight_logits(self, features: Tensor, item: Tensor, annotator: Tensor) -> Tensor:
        """Return minus the length of the bias, (L,): annotators with a small bias get more weight."""
        return -take_rows(self.bias, annotator).square().sum(1).sqrt()

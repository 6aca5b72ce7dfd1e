"""UnionNet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crowdfuse.checks.choices import check_choice
from crowdfuse.estimators.base import SearchSpace
from crowdfuse.estimators.global_confusions import GlobalConfusionsClassifier
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.union_net import UnionNet, Variant


@dataclass(kw_only=True, eq=False, repr=False)
class UnionNetClassifier(GlobalConfusionsClassifier):
    """All annotators of an item taken as one, who says all their labels at once (Wei et al., 2022).

    Parameters
    ----------
    variant : "b": each class has a distribution over all that the annotators can say, and the network mixes these, so
        that its probabilities are to be believed; "a": the network's probabilities go through the matrix first, and are
        made a distribution after, as in the crowd layer

    The other parameters are those of every classifier here: see `CrowdClassifier`. An item's loss is the sum over
    its labels, so items with more labels count more. The union of an item is that of the annotators who labelled it.

    Attributes
    ----------
    confusion_matrices_ (R, K, K) : axes (annotator, true, said): the same on every item, P(said | true). They start
        close to chance and grow with training

    `fused_labels` takes the network's prediction as the prior, and the labels as evidence by Bayes.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)      # the third annotator is always wrong
    >>> clf = UnionNetClassifier(epochs=20, learning_rate=0.02).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices_[2].argmax(1)                 # what it says of each class
    array([1, 0])
    """

    method_name: ClassVar[str] = "union-net"
    assumes: ClassVar[str] = (
        "the labels of an item are one answer of all its annotators together; confusions are the same on every item"
    )
    search_space: ClassVar[SearchSpace] = {"variant": ["a", "b"]}

    variant: Variant = "b"

    def _build(self, spec: ModelSpec) -> Method:
        check_choice("variant", self.variant, ("a", "b"))
        return UnionNet(spec, variant=self.variant)

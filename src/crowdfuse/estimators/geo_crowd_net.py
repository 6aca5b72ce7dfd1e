"""GeoCrowdNet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from crowdfuse.checks.choices import check_choice
from crowdfuse.checks.numbers import check_above_chance, check_nonnegative
from crowdfuse.estimators.base import SearchSpace
from crowdfuse.estimators.global_confusions import GlobalConfusionsClassifier
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.geo_crowd_net import GeoCrowdNet


@dataclass(kw_only=True, eq=False, repr=False)
class GeoCrowdNetClassifier(GlobalConfusionsClassifier):
    """One confusion matrix an annotator, learned with the network, and made unique by a volume (Ibrahim et al., 2023).

    Parameters
    ----------
    regularizer : whose volume is made large. "f": the class probabilities', for items that are certain of their class
        and annotators who are not; "w": the matrices', for items that are uncertain and annotators who know each class
    volume_weight : how strongly; 0 leaves the likelihood of the labels alone
    start : how often annotators are taken to be right before anything is learned; None: e / (e + K - 1), as in the
        authors' code

    The other parameters are those of every classifier here: see `CrowdClassifier`. An item's loss is the sum over
    its labels, so items with more labels count more. The volume is that of a batch: `batch_size` must be well above
    the number of classes for it to say anything.

    Attributes
    ----------
    confusion_matrices_ (R, K, K) : axes (annotator, true, said): the same on every item, true to noisy, P(said | true)

    `fused_labels` takes the network's prediction as the prior, and the labels as evidence by Bayes.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)      # the third annotator is always wrong
    >>> clf = GeoCrowdNetClassifier(epochs=20, learning_rate=0.02).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices_[2].argmax(1)                 # what it says of each class
    array([1, 0])
    """

    method_name: ClassVar[str] = "geo-crowd-net"
    assumes: ClassVar[str] = (
        "confusions are the same on every item; some items are certainly of each class, or each class has experts"
    )
    paper_settings: ClassVar[dict[str, Any]] = {"start": None}
    search_space: ClassVar[SearchSpace] = {
        "regularizer": ["f", "w"],
        "volume_weight": (0.001, 0.5),
        "start": [None, 0.75],
    }

    regularizer: Literal["f", "w"] = "f"
    volume_weight: float = 0.01
    start: float | None = 0.75

    def _build(self, spec: ModelSpec) -> Method:
        check_choice("regularizer", self.regularizer, ("f", "w"))
        check_nonnegative("volume_weight", self.volume_weight)
        if self.start is not None:
            check_above_chance("start", self.start, spec.n_classes)
        return GeoCrowdNet(spec, regularizer=self.regularizer, volume_weight=self.volume_weight, start=self.start)

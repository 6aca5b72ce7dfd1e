"""Crowd layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crowdfuse.checks.choices import check_choice
from crowdfuse.estimators.base import SearchSpace
from crowdfuse.estimators.global_confusions import GlobalConfusionsClassifier
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.crowd_layer import CrowdLayer, Layer


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdLayerClassifier(GlobalConfusionsClassifier):
    """A last layer an annotator on top of the network, taken off to predict (Rodrigues and Pereira, 2018).

    Parameters
    ----------
    layer : what the layer of an annotator does to the class probabilities. "matrix": multiplies them by a K x K matrix,
        so that any bias can be learned; "vector": weighs each class; "bias": adds to each class; "vector+bias": both.
        The last three have few numbers to learn, and cannot tell what an annotator says instead

    The other parameters are those of every classifier here: see `CrowdClassifier`. An item's loss is the sum over
    its labels, so items with more labels count more.

    Attributes
    ----------
    confusion_matrices_ (R, K, K) : axes (annotator, true, said): what the layers make of a class that is certain,
        P(said | true). They start close to chance and grow with training: with few steps, look at which entry of a row
        is largest, and not how large it is

    `fused_labels` takes the network's prediction as the prior, and the labels as evidence by Bayes.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)      # the third annotator is always wrong
    >>> clf = CrowdLayerClassifier(epochs=20, learning_rate=0.02).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices_[2].argmax(1)                 # what it says of each class
    array([1, 0])
    """

    method_name: ClassVar[str] = "crowd-layer"
    assumes: ClassVar[str] = (
        "an annotator turns the network's class probabilities into labels by a layer of its own, the same on every item"
    )
    search_space: ClassVar[SearchSpace] = {"layer": ["matrix", "vector", "bias", "vector+bias"]}

    layer: Layer = "matrix"

    def _build(self, spec: ModelSpec) -> Method:
        check_choice("layer", self.layer, ("matrix", "vector", "bias", "vector+bias"))
        return CrowdLayer(spec, layer=self.layer)

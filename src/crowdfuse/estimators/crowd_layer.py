"""Estimator of the crowd layer."""

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
    """Crowd layer: one output layer per annotator on top of the network.

    The layer of an annotator turns the class probabilities of the network into the probabilities of the annotator's
    labels. The layers are trained together with the network. They are not used for prediction. The loss has one term
    per label, so items with more labels have more influence.

    Parameters
    ----------
    layer : {"matrix", "vector", "bias", "vector+bias"}
        What the layer of an annotator does to the class probabilities before the final softmax. "matrix": multiplies
        them by a K x K matrix, for K classes. "vector": multiplies each probability by a factor. "bias": adds a number
        to each probability. "vector+bias": does both. "vector", "bias" and "vector+bias" have fewer parameters, but
        only "matrix" can learn which classes an annotator confuses with each other.

    Attributes
    ----------
    confusion_matrices_ : ndarray of shape (n_annotators, n_classes, n_classes)
        P(annotator's label | true class). Axes are (annotator, true class, annotator's label), rows sum to 1. To
        compute a row, the annotator's layer is applied to class probabilities of 1 for the true class and 0 for all
        other classes, and a softmax follows. Before training, the diagonal entries are `e / (e + K - 1)` for K classes
        and Euler's number e (23 % for 10 classes), and all other entries are equal. After a short training, the entries
        of a row are still too similar to be used as probabilities. However, the order of the entries can be used: the
        largest entry of a row belongs to the label that the annotator gives most often to items of the row's class.

    See Also
    --------
    CoNALClassifier : Adds a confusion matrix that all annotators share.
    TraceRegClassifier : Multiplies class probabilities by a confusion matrix, whose rows are probabilities.

    Notes
    -----
    `fused_labels()` combines the network's prediction (the prior) with the labels (the evidence) by Bayes' rule.

    References
    ----------
    F. Rodrigues and F. C. Pereira. "Deep Learning from Crowds". AAAI 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import CrowdLayerClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)  # the third annotator is always wrong
    >>> clf = CrowdLayerClassifier(epochs=20, learning_rate=0.02).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices_[2].argmax(1)  # the most likely label of the third annotator, per true class
    array([1, 0])
    """

    method_name: ClassVar[str] = "crowd-layer"
    assumes: ClassVar[str] = "each annotator maps class probabilities to labels by one layer, the same on all items"
    search_space: ClassVar[SearchSpace] = {"layer": ["matrix", "vector", "bias", "vector+bias"]}

    layer: Layer = "matrix"

    def _build(self, spec: ModelSpec) -> Method:
        check_choice("layer", self.layer, ("matrix", "vector", "bias", "vector+bias"))
        return CrowdLayer(spec, layer=self.layer)

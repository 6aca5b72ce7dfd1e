"""Estimator of annot-mix: mixup over items, annotators and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from crowdfuse.checks.numbers import check_above_chance, check_nonnegative, check_positive_integer
from crowdfuse.estimators.base import SearchSpace
from crowdfuse.estimators.global_confusions import GlobalConfusionsClassifier
from crowdfuse.methods.annot_mix import AnnotMix
from crowdfuse.methods.base import Method, ModelSpec


@dataclass(kw_only=True, eq=False, repr=False)
class AnnotMixClassifier(GlobalConfusionsClassifier):
    """Annot-mix: mixup of labelled examples, with one confusion matrix per annotator.

    Each label, with its input and its annotator, is mixed with a second label of the batch. The network gets the
    weighted mean of the two inputs. The confusion matrix is computed from the weighted mean of the two annotators'
    embeddings. The loss is the weighted mean of the losses for the two labels. Annot-mix suits data with few and noisy
    labels, which a network would otherwise memorize. Training takes longer than with other classifiers, because the
    backbone runs once per label instead of once per item. The loss has one term per label, so items with more labels
    have more influence.

    Parameters
    ----------
    alpha : float
        Strength of mixing. The weight w of the first label of a pair is drawn from Beta(alpha, alpha). The weight of
        the second label is 1 - w. If `alpha` is 1, all weights between 0 and 1 are equally likely. If `alpha` is close
        to 0, most labels stay almost unmixed. 0 turns mixing off. The authors' code uses 1, and scikit-activeml uses
        0.5. Leave `mixup` at 0: otherwise items are first mixed in pairs, and these mixtures are mixed again.
    eta : float
        Probability that an annotator is right, according to the untrained model. Must be above chance, 1 / n_classes.
    embedding : int
        Size of the vector (embedding) that the model learns for each annotator.

    See Also
    --------
    MaDLClassifier : Method of the same authors, which estimates confusion matrices per item.

    Notes
    -----
    `fused_labels()` combines the network's prediction (the prior) with the labels (the evidence) by Bayes' rule.

    References
    ----------
    M. Herde, L. Lührs, D. Huseljic and B. Sick. "Annot-Mix: Learning with Noisy Class Labels from Multiple Annotators
    via a Mixup Extension". ECAI 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import AnnotMixClassifier
    >>> generator = np.random.default_rng(0)
    >>> X = generator.normal(size=(300, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> right = generator.random((300, 3)) < [0.9, 0.8, 0.5]  # the third annotator guesses
    >>> Y = np.where(right, truth[:, None], 1 - truth[:, None])
    >>> clf = AnnotMixClassifier(epochs=10, learning_rate=0.02).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices_.diagonal(axis1=1, axis2=2).mean(1).argsort()  # from worst to best
    array([2, 1, 0])
    """

    method_name: ClassVar[str] = "annot-mix"
    assumes: ClassVar[str] = (
        "confusions are the same on all items; labels are few and noisy, so mixtures of them regularize"
    )
    search_space: ClassVar[SearchSpace] = {"alpha": [0.5, 1.0, 2.0], "eta": [0.75, 0.9]}

    alpha: float = 1.0
    eta: float = 0.9
    embedding: int = 16

    def _build(self, spec: ModelSpec) -> Method:
        check_nonnegative("alpha", self.alpha)
        check_positive_integer("embedding", self.embedding)
        check_above_chance("eta", self.eta, spec.n_classes)
        settings: dict[str, Any] = {"alpha": float(self.alpha), "eta": float(self.eta)}
        return AnnotMix(spec, **settings, embedding=int(self.embedding))

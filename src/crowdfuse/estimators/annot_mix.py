"""Annot-mix."""

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
    """Mixup over items, annotators and labels, with a confusion matrix an annotator (Herde et al., 2024).

    For few and noisy labels, which a network else learns by heart. The backbone runs once a label, not once an item.

    Parameters
    ----------
    alpha : how strongly pairs are mixed: shares come from Beta(alpha, alpha). At 1, as here and in the authors' own
        code (scikit-activeml has 0.5), all shares are alike; towards 0 most pairs are nearly left alone, and 0 mixes
        nothing
    eta : how often annotators are taken to be right before anything is learned; more than chance
    embedding : how many numbers describe an annotator

    The other parameters are those of every classifier here: see `CrowdClassifier`. An item's loss is the sum over
    its labels, so items with more labels count more.

    Attributes
    ----------
    confusion_matrices_ (R, K, K) : axes (annotator, true, said): the same on every item, true to noisy, P(said | true)

    `fused_labels` takes the network's prediction as the prior, and the labels as evidence by Bayes.

    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> X = generator.normal(size=(300, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> right = generator.random((300, 3)) < [0.9, 0.8, 0.5]  # the third annotator guesses
    >>> Y = np.where(right, truth[:, None], 1 - truth[:, None])
    >>> clf = AnnotMixClassifier(epochs=10, learning_rate=0.02).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices_.diagonal(axis1=1, axis2=2).mean(1).argsort()   # from the worst to the best
    array([2, 1, 0])
    """

    method_name: ClassVar[str] = "annot-mix"
    assumes: ClassVar[str] = (
        "confusions are the same on every item; labels are few and noisy, so that blends of them teach better"
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

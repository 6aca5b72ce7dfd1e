"""Estimator that is trained on gold: the upper bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.labels.annotations import Annotations
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.true_label import TrueLabel


@dataclass(kw_only=True, eq=False, repr=False)
class TrueLabelClassifier(CrowdClassifier):
    """True labels: trains on gold (trusted labels), as an upper bound for the other learning methods.

    Call `fit(X, gold)` with a 1-D array, or `fit(X, annotations, gold=gold)`. The classifier is not trained on the
    labels of annotators.

    See Also
    --------
    SingleAnnotatorClassifier : Trains on the labels of one annotator.

    References
    ----------
    Z. Gao et al. "Learning from Multiple Annotator Noisy Labels via Sample-wise Label Fusion". ECCV 2022. True labels
    are a baseline there.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import TrueLabelClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> TrueLabelClassifier(epochs=20).fit(X, truth).score(X, truth) > 0.9
    True
    """

    method_name: ClassVar[str] = "true-label"
    assumes: ClassVar[str] = "nothing about annotators: it trains on gold"
    needs: ClassVar[str] = "gold for every item that is trained on"
    trains_on_labels: ClassVar[bool] = False

    def _build(self, spec: ModelSpec) -> Method:
        return TrueLabel(spec)

    def _gold(self, y: Any, gold: ArrayLike | None, ann: Annotations, n_rows: int) -> NDArray[np.int64]:
        if gold is not None:
            return super()._gold(y, gold, ann, n_rows)
        if y.ndim != 1:
            raise ValueError(
                "the method true-label trains on gold labels, but none were passed; call fit(X, gold) with a 1-D "
                "array, or fit(X, annotations, gold=...) (on the command line: --gold)"
            )
        codes = np.full(n_rows, -1, np.int64)
        codes[ann.item] = ann.label
        return codes

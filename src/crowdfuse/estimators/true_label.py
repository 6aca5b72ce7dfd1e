"""Trained on gold."""

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
    """Trained on gold: the upper bound. `fit(X, gold)`, or `fit(X, annotations, gold=gold)`.

    Parameters are those of every classifier here: see `CrowdClassifier`.
    """

    method_name: ClassVar[str] = "true-label"
    assumes: ClassVar[str] = "nothing of annotators: it is told the truth"
    needs: ClassVar[str] = "gold for every item that is trained on"
    trains_on_labels: ClassVar[bool] = False

    def _build(self, spec: ModelSpec) -> Method:
        return TrueLabel(spec)

    def _gold(self, y: Any, gold: ArrayLike | None, ann: Annotations, n_rows: int) -> NDArray[np.int64]:
        if gold is not None:
            return super()._gold(y, gold, ann, n_rows)
        if y.ndim != 1:
            raise ValueError(
                "true-label trains on gold: fit(X, gold) with a 1-D array, or fit(X, annotations, gold=...) "
                "(--gold on the command line)"
            )
        codes = np.full(n_rows, -1, np.int64)
        codes[ann.item] = ann.label
        return codes

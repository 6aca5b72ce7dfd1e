"""Base class of the estimators with one confusion matrix per annotator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.methods.global_confusions import GlobalConfusions


@dataclass(kw_only=True, eq=False, repr=False)
class GlobalConfusionsClassifier(CrowdClassifier):
    """Base class of classifiers that learn one confusion matrix per annotator, the same for all items.

    Attributes
    ----------
    confusion_matrices_ : ndarray of shape (n_annotators, n_classes, n_classes)
        P(annotator's label | true class), the same for all items. Axes are (annotator, true class, annotator's label),
        rows sum to 1.
    """

    @property
    def confusion_matrices_(self) -> NDArray[np.float32]:
        """Confusion matrix of each annotator, the same for all items.

        Returns
        -------
        matrices : ndarray of shape (n_annotators, n_classes, n_classes)
            P(annotator's label | true class); axes are (annotator, true class, annotator's label), rows sum to 1.
        """
        check_is_fitted(self)
        assert isinstance(self.method_, GlobalConfusions)
        matrices: NDArray[np.float32] = (
            self.method_.log_confusions(torch.arange(len(self.annotators_))).detach().exp().numpy()
        )
        return matrices

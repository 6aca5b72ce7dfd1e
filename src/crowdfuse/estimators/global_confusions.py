"""What classifiers with one confusion matrix an annotator share."""

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
    """Base of the classifiers with one confusion matrix an annotator, the same on every item."""

    @property
    def confusion_matrices_(self) -> NDArray[np.float32]:
        """One matrix an annotator, (R, K, K), axes (annotator, true, said).

        Global, and true to noisy: row k is what the annotator says of items of class k, and sums to 1.
        """
        check_is_fitted(self)
        assert isinstance(self.method_, GlobalConfusions)
        matrices: NDArray[np.float32] = (
            self.method_.log_confusions(torch.arange(len(self.annotators_))).detach().exp().numpy()
        )
        return matrices

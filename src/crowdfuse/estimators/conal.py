"""CoNAL: common and individual noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from crowdfuse.checks.numbers import check_nonnegative, check_positive_integer
from crowdfuse.estimators.base import CrowdClassifier, SearchSpace
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.conal import CoNAL


@dataclass(kw_only=True, eq=False, repr=False)
class CoNALClassifier(CrowdClassifier):
    """What all annotators confuse, and what each confuses on top of that (Chu, Ma and Wang, 2021).

    Parameters
    ----------
    separation : how strongly the annotators' matrices are pushed away from the common one, a label. The authors' code
        has 0.00001 an annotator, which for their 44 and 59 annotators comes to 0.0005 here. With planted
        confusions 0.01 separated better, and with 0.1 the push outweighed the labels
    embedding : how many numbers describe an annotator and an item, to say which of the two matrices a label came from

    The other parameters are those of every classifier here: see `CrowdClassifier`. An item's loss is the sum over
    its labels, so items with more labels count more. Mind annotators who are wrong throughout, where there are few: the
    common matrix takes up a part of what they do, and less of it is undone than by `CrowdLayerClassifier`.

    Attributes
    ----------
    common_confusion_ (K, K) : axes (true, said): what everybody is taken to confuse, P(said | true)
    individual_confusions_ (R, K, K) : axes (annotator, true, said): what each annotator does beside

    `confusion_matrices` are the two together, which differ from item to item, and `common_share` says how much of the
    common one is in it: between 0.27 and 0.73. `fused_labels` takes the network's prediction as the prior, and the
    labels as evidence by Bayes.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, truth, 1 - truth], axis=1)   # the fourth annotator is always wrong
    >>> clf = CoNALClassifier(epochs=20, learning_rate=0.02).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.common_confusion_.argmax(1)                          # others are not
    array([0, 1])
    >>> clf.individual_confusions_.diagonal(axis1=1, axis2=2).mean(1).argmin()
    np.int64(3)
    >>> clf.common_share(X).shape
    (200, 4)
    """

    method_name: ClassVar[str] = "conal"
    assumes: ClassVar[str] = (
        "some confusions are everybody's, the others an annotator's own; which it was depends on item and annotator"
    )
    search_space: ClassVar[SearchSpace] = {"separation": (0.0001, 0.02)}

    separation: float = 0.0005
    embedding: int = 20

    def _build(self, spec: ModelSpec) -> Method:
        check_nonnegative("separation", self.separation)
        check_positive_integer("embedding", self.embedding)
        return CoNAL(spec, separation=self.separation, embedding=self.embedding)

    @property
    def common_confusion_(self) -> NDArray[np.float32]:
        """What everybody is taken to confuse, (K, K), axes (true, said): row k sums to 1."""
        check_is_fitted(self)
        assert isinstance(self.method_, CoNAL)
        return _rows(self.method_.common)

    @property
    def individual_confusions_(self) -> NDArray[np.float32]:
        """What each annotator does beside, (R, K, K), axes (annotator, true, said): rows sum to 1."""
        check_is_fitted(self)
        assert isinstance(self.method_, CoNAL)
        return _rows(self.method_.individual)

    def common_share(self, X: Any, annotations: Any = None, *, items: ArrayLike | None = None) -> NDArray[np.float32]:
        """How much of what each annotator says of each item is common noise, (N, R), between 0.27 and 0.73.

        With annotations, those of the labelled pairs alone, (labels,), in the order of the annotations.
        """
        return self._of_pairs("common_share", "common_shares", X, annotations, items)


def _rows(logits: Tensor) -> NDArray[np.float32]:
    matrices: NDArray[np.float32] = logits.detach().softmax(-1).numpy()
    return matrices

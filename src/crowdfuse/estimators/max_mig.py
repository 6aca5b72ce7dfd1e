"""Max-MIG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from crowdfuse.checks.choices import check_choice
from crowdfuse.estimators.base import CrowdClassifier, SearchSpace
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.max_mig import MaxMIG


@dataclass(kw_only=True, eq=False, repr=False)
class MaxMIGClassifier(CrowdClassifier):
    """A classifier and an aggregator of labels, made to tell as much of each other as they can (Cao et al., 2019).

    Copies of an annotator whose labels have little to do with the items do not fool it, however many they are; copies
    who err in a system of their own can, since it starts from the vote. At least two annotators must have labels.

    Parameters
    ----------
    prior : how common the classes are taken to be. "votes": as common as in the labels; "uniform": all alike, as in the
        paper's code, and where many labels are by annotators who keep saying the same

    The other parameters are those of every classifier here: see `CrowdClassifier`. The items of a batch are told apart
    from each other, so `batch_size` should be well above the number of classes.

    `fused_labels` is what the aggregator makes of the labels alone, the classifier has no part in it.
    `annotator_weights` says how far an annotator's labels move the aggregate, the same on every item.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, np.zeros(200, int)], axis=1)  # the third annotator always says the same
    >>> clf = MaxMIGClassifier(epochs=20).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.annotator_weights(X)[0].argmin()
    np.int64(2)
    """

    method_name: ClassVar[str] = "max-mig"
    assumes: ClassVar[str] = (
        "given the class, items and labels have nothing to do with each other; annotators may copy one another"
    )
    needs: ClassVar[str] = "two annotators"
    search_space: ClassVar[SearchSpace] = {"prior": ["votes", "uniform"]}
    paper_settings: ClassVar[dict[str, Any]] = {"prior": "uniform"}

    prior: Literal["votes", "uniform"] = "votes"

    def _build(self, spec: ModelSpec) -> Method:
        check_choice("prior", self.prior, ("votes", "uniform"))
        if self.batch_size == 1:
            raise ValueError("batch_size=1 teaches max-mig nothing: it tells the items of a batch apart; take 64 or so")
        return MaxMIG(spec, prior=self.prior)

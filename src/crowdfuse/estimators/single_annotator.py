"""Estimator that is trained on the labels of one annotator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import format_names, normalize_ids, positions_of
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.single_annotator import SingleAnnotator


@dataclass(kw_only=True, eq=False, repr=False)
class SingleAnnotatorClassifier(CrowdClassifier):
    """Single annotator: trains on the labels of one annotator only.

    Parameters
    ----------
    annotator : object
        Name of the annotator. None is allowed only if all labels come from one annotator.

    See Also
    --------
    MajorityVoteClassifier : Trains on the labels of all annotators.

    Notes
    -----
    `annotator_weights()` gives weight 1 to the chosen annotator and weight 0 to all others. If you pass `annotations`
    to `annotator_weights()`, all weights are 0 for items that the chosen annotator did not label.

    References
    ----------
    Z. Gao et al. "Learning from Multiple Annotator Noisy Labels via Sample-wise Label Fusion". ECCV 2022. Single
    annotators are a baseline there.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import SingleAnnotatorClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, 1 - truth], axis=1)  # the second annotator is always wrong
    >>> SingleAnnotatorClassifier(annotator=0, epochs=20).fit(X, Y).score(X, truth) > 0.9
    True
    """

    method_name: ClassVar[str] = "single-annotator"
    assumes: ClassVar[str] = "one annotator is enough"

    annotator: Any = None

    @classmethod
    def variants(cls, annotators: Sequence[Any]) -> dict[str, dict[str, Any]]:
        """Return the settings of the classifiers that `crowdfuse compare` trains: one classifier per annotator.

        Parameters
        ----------
        annotators : sequence
            Names of the annotators in the data.

        Returns
        -------
        variants : dict of str to dict
            Maps the name of each classifier to its settings.

        Examples
        --------
        >>> from crowdfuse import SingleAnnotatorClassifier
        >>> SingleAnnotatorClassifier.variants(["ada"])
        {'single-annotator ada': {'annotator': 'ada'}}
        """
        return {f"{cls.method_name} {name}": {"annotator": name} for name in annotators}

    def _build(self, spec: ModelSpec) -> Method:
        if self.annotator is None:
            if len(self.annotators_) > 1:
                raise ValueError(
                    "single-annotator is trained on the labels of one annotator; choose one annotator with the "
                    "argument annotator (on the command line: --set annotator=NAME). The annotators are "
                    f"{format_names(self.annotators_)}"
                )
            return SingleAnnotator(spec, annotator=0)
        position = int(positions_of(normalize_ids(np.asarray([self.annotator]), "annotator"), self.annotators_)[0])
        if position < 0:
            raise ValueError(
                f"annotator {self.annotator!r} is not one of the annotators ({format_names(self.annotators_)})"
            )
        return SingleAnnotator(spec, annotator=position)

    def _validation_annotations(self, ann: Annotations) -> Annotations:
        return ann if self.annotator is None else ann.select_annotator(self.annotator)

    def _resolved_settings(self) -> dict[str, Any]:
        assert isinstance(self.method_, SingleAnnotator)
        is_ambiguous = self.annotator is None and len(self.annotators_) > 1
        return {"annotator": self.annotators_[self.method_.annotator]} if is_ambiguous else {}

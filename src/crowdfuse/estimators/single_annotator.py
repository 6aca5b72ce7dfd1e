"""One annotator alone."""

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
    """One annotator's labels and nobody else's.

    Parameters
    ----------
    annotator : the annotator's name; None where there is only one

    The other parameters are those of every classifier here: see `CrowdClassifier`.
    """

    method_name: ClassVar[str] = "single-annotator"
    assumes: ClassVar[str] = "one annotator is enough"

    annotator: Any = None

    @classmethod
    def variants(cls, annotators: Sequence[Any]) -> dict[str, dict[str, Any]]:
        """One an annotator."""
        return {f"{cls.method_name} {name}": {"annotator": name} for name in annotators}

    def _build(self, spec: ModelSpec) -> Method:
        if self.annotator is None:
            if len(self.annotators_) > 1:
                raise ValueError(
                    "say which annotator with annotator= (--set annotator=NAME on the command line); "
                    f"there are {format_names(self.annotators_)}"
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
        open_now = self.annotator is None and len(self.annotators_) > 1
        return {"annotator": self.annotators_[self.method_.annotator]} if open_now else {}

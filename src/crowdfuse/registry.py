"""The methods people can name, and the estimator of each. A new method is one line here.

No torch here: the command line lists methods without loading it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from crowdfuse.choices import nearest

if TYPE_CHECKING:
    from crowdfuse.classifier import CrowdClassifier

ESTIMATORS = {
    "fusion": "FusionClassifier",
    "gated": "GatedClassifier",
    "majority-vote": "MajorityVoteClassifier",
    "single-annotator": "SingleAnnotatorClassifier",
    "trace-reg": "TraceRegClassifier",
    "mbem": "MBEMClassifier",
    "wdn": "WDNClassifier",
    "two-stage": "TwoStageClassifier",
    "crowd-layer": "CrowdLayerClassifier",
    "conal": "CoNALClassifier",
    "union-net": "UnionNetClassifier",
    "geo-crowd-net": "GeoCrowdNetClassifier",
    "coin-net": "COINNetClassifier",
    "max-mig": "MaxMIGClassifier",
    "madl": "MaDLClassifier",
    "annot-mix": "AnnotMixClassifier",
    "robust-vote": "RobustVoteClassifier",
    "true-label": "TrueLabelClassifier",
}

DEFAULT_METHOD = "gated"
"""What `crowdfuse fit` takes: the all-rounder of the stored comparisons (`crowdfuse methods`), of methods that take any
labels. A test asks the evidence."""


def estimator_class(method: str, others: Iterable[str] = ()) -> type[CrowdClassifier]:
    """The estimator class of a method's name; `others` are further names that could have been said in its place."""
    if method not in ESTIMATORS:
        known = [*ESTIMATORS, *others]
        raise ValueError(f"unknown method {method!r}{nearest(method, known)} The methods are {', '.join(known)}")
    from crowdfuse import estimators

    found: type[CrowdClassifier] = getattr(estimators, ESTIMATORS[method])
    return found

"""The methods people can name, and the estimator of each. A new method is one line here.

No torch here: the command line lists methods without loading it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowdfuse.choices import nearest

if TYPE_CHECKING:
    from crowdfuse.classifier import CrowdClassifier

ESTIMATORS = {
    "fusion": "FusionClassifier",
    "majority-vote": "MajorityVoteClassifier",
    "single-annotator": "SingleAnnotatorClassifier",
    "trace-reg": "TraceRegClassifier",
    "mbem": "MBEMClassifier",
    "wdn": "WDNClassifier",
    "true-label": "TrueLabelClassifier",
}


def estimator_class(method: str) -> type[CrowdClassifier]:
    """The estimator class of a method's name."""
    if method not in ESTIMATORS:
        raise ValueError(
            f"unknown method {method!r}{nearest(method, ESTIMATORS)} The methods are {', '.join(ESTIMATORS)}"
        )
    from crowdfuse import estimators

    found: type[CrowdClassifier] = getattr(estimators, ESTIMATORS[method])
    return found

"""The methods people can name, and the estimator of each. A new method is one line here.

No torch here: the command line lists methods without loading it.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

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
        near = difflib.get_close_matches(method, ESTIMATORS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(f"unknown method {method!r}{hint} The methods are {', '.join(ESTIMATORS)}")
    from crowdfuse import estimators

    found: type[CrowdClassifier] = getattr(estimators, ESTIMATORS[method])
    return found

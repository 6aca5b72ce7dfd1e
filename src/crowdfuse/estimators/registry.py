"""The name of each method on the command line, and its estimator class. A new method adds one line here.

This module does not import torch: the command line lists the methods without loading it.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from crowdfuse.checks.choices import did_you_mean

if TYPE_CHECKING:
    from crowdfuse.estimators.base import CrowdClassifier

ESTIMATORS = {
    "fusion": "FusionClassifier",
    "gated": "GatedClassifier",
    "consensus-training": "ConsensusTrainingClassifier",
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

DEFAULT_METHOD = "consensus-training"
"""Learning method that `crowdfuse fit` uses by default. docs/methods.md compares it with the others."""


def estimator_class(method: str, others: Iterable[str] = ()) -> type[CrowdClassifier]:
    """Return the estimator class of a learning method.

    Parameters
    ----------
    method : str
        Name of the learning method on the command line.
    others : iterable of str, default=()
        Further names to suggest in the error message.

    Returns
    -------
    estimator : type

    Raises
    ------
    ValueError
        If there is no learning method of this name. The message lists all names and suggests the most similar name.

    Examples
    --------
    >>> estimator_class("trace-reg").__name__
    'TraceRegClassifier'
    """
    if method not in ESTIMATORS:
        known = [*ESTIMATORS, *others]
        raise ValueError(f"unknown method {method!r}{did_you_mean(method, known)} The methods are {', '.join(known)}")
    return import_estimator(ESTIMATORS[method])


def import_estimator(class_name: str) -> type[CrowdClassifier]:
    """Import the class with this name from its module. The class of the method trace-reg is in `trace_reg.py`."""
    modules = {name: method.replace("-", "_") for method, name in ESTIMATORS.items()} | {"CrowdClassifier": "base"}
    if class_name not in modules:
        raise AttributeError(f"module 'crowdfuse.estimators' has no attribute {class_name!r}")
    estimator: type[CrowdClassifier] = getattr(import_module(f"crowdfuse.estimators.{modules[class_name]}"), class_name)
    return estimator

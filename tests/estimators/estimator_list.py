"""Every estimator, for the shared tests. A new method is tested as soon as it is in the registry."""

from __future__ import annotations

from typing import Any

from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.registry import ESTIMATORS, estimator_class

ALL: list[type[CrowdClassifier]] = [estimator_class(name) for name in ESTIMATORS]

NEEDS_SEVERAL_ANNOTATORS = {
    "coin-net": "outliers are found by comparing two labels of an item",
    "max-mig": "the loss compares labels of at least two annotators",
}
"""Methods that refuse the labels of a single annotator, which scikit-learn's checks use, each with the reason.

Their refusals are tested beside the methods.
"""
WORKS_WITH_ONE_ANNOTATOR = [kind for kind in ALL if kind.method_name not in NEEDS_SEVERAL_ANNOTATORS]


def expected_failures(estimator: CrowdClassifier) -> dict[str, str]:
    """Return the checks of scikit-learn that cannot hold here, each with the reason."""
    batches = "the rows of a mini-batch depend on how many rows there are; full batches are tested in test_loop.py"
    digits = "on some processors the seventh digit depends on the other rows; test_every_estimator.py tests six digits"
    return {
        "check_methods_subset_invariance": digits,
        "check_sample_weight_equivalence_on_dense_data": batches,
        "check_sample_weight_equivalence_on_sparse_data": batches,
        "check_supervised_y_2d": "a 2-D y has one column per annotator; it is not a column vector by mistake",
    }


def quick(kind: type[CrowdClassifier], **settings: Any) -> CrowdClassifier:
    """Return an instance that trains quickly on small data."""
    return kind(**({"epochs": 20, "batch_size": 32, "learning_rate": 0.02} | settings))

"""Every estimator, as the shared tests see it. A new method is tested by being in the registry."""

from __future__ import annotations

from typing import Any

from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.registry import ESTIMATORS, estimator_class

ALL: list[type[CrowdClassifier]] = [estimator_class(name) for name in ESTIMATORS]

OF_SEVERAL = {
    "coin-net": "what annotators have in common on an item takes two labels of it",
    "max-mig": "what annotators and items tell of each other takes two annotators",
}
"""Methods that refuse the labels of one annotator, which is all that scikit-learn's checks have, each with the reason.

Their refusals are tested beside the methods.
"""
OF_ONE = [kind for kind in ALL if kind.method_name not in OF_SEVERAL]


def expected_failures(estimator: CrowdClassifier) -> dict[str, str]:
    """The checks of scikit-learn that do not fit, each with the reason."""
    batches = "the rows of a mini-batch depend on how many rows there are; full batches are tested in test_training.py"
    digits = "in float32 the seventh digit depends on the rows beside; six digits are tested in test_estimators.py"
    return {
        "check_methods_subset_invariance": digits,
        "check_sample_weight_equivalence_on_dense_data": batches,
        "check_sample_weight_equivalence_on_sparse_data": batches,
        "check_supervised_y_2d": "a 2-D y is one column an annotator, not a column vector by mistake",
    }


def quick(kind: type[CrowdClassifier], **settings: Any) -> CrowdClassifier:
    """An instance that trains in a moment on small data."""
    return kind(**({"epochs": 20, "batch_size": 32, "learning_rate": 0.02} | settings))

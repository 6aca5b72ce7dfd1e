"""scikit-learn's own checks, on every estimator that can learn from one annotator."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.estimators.estimator_list import WORKS_WITH_ONE_ANNOTATOR, expected_failures, quick

ACCURACY_CHECKS = ("check_classifiers_train",)
"""Checks that ask for an accuracy. The others check conventions, for which a short training is enough."""
SHORT_EPOCHS = 4


@parametrize_with_checks(  # type: ignore[untyped-decorator]  # scikit-learn has no types
    [quick(kind) for kind in WORKS_WITH_ONE_ANNOTATOR], expected_failed_checks=expected_failures
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    if check.func.__name__ not in ACCURACY_CHECKS:
        estimator.set_params(epochs=SHORT_EPOCHS)
    check(estimator)  # raises where the convention is broken

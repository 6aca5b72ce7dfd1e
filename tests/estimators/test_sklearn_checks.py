"""scikit-learn's own checks, on every estimator that can learn from one annotator."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.estimators.estimator_list import OF_ONE, expected_failures, quick


@parametrize_with_checks(  # type: ignore[untyped-decorator]  # scikit-learn has no types
    [quick(kind) for kind in OF_ONE], expected_failed_checks=expected_failures
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    check(estimator)  # raises where the convention is broken

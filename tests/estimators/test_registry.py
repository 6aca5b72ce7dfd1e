from __future__ import annotations

import pytest

import crowdfuse
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.registry import ESTIMATORS, estimator_class


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_method_has_its_estimator_under_its_own_name(name: str) -> None:
    kind = estimator_class(name)
    assert issubclass(kind, CrowdClassifier)
    assert kind.method_name == name
    assert getattr(crowdfuse, ESTIMATORS[name]) is kind
    assert ESTIMATORS[name] in crowdfuse.__all__


def test_an_unknown_method_gets_the_list_and_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"unknown method 'fussion'; did you mean 'fusion'\? The methods are fusion,"):
        estimator_class("fussion")
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = crowdfuse.Nothing

"""The registry, and the names that `import crowdfuse` offers."""

from __future__ import annotations

import subprocess
import sys

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


def test_dir_lists_every_estimator_and_the_base_class() -> None:
    assert set(dir(crowdfuse)) >= {*ESTIMATORS.values(), "CrowdClassifier"}
    assert set(dir(crowdfuse)) >= set(crowdfuse.__all__)


def test_the_base_class_is_importable_from_crowdfuse() -> None:
    assert crowdfuse.CrowdClassifier is CrowdClassifier
    assert "CrowdClassifier" in crowdfuse.__all__


def test_importing_crowdfuse_does_not_import_torch() -> None:
    code = "import sys, crowdfuse; dir(crowdfuse); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ESTIMATORS)
def test_methods_without_accuracy_per_item_name_the_alternatives(name: str) -> None:
    kind = estimator_class(name)
    if not kind.estimates_item_accuracy:
        with pytest.raises(TypeError, match=r"use GatedClassifier.*consensus\(X, annotations\)\.annotator_accuracy"):
            kind().annotator_accuracy_per_item([[0.0]])

"""How often a run goes over all inputs: large inputs make every pass expensive."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfuse import Annotations, FusionClassifier
from crowdfuse.io import inputs
from crowdfuse.io.inputs import Inputs
from crowdfuse.nets.standardize import Standardize
from crowdfuse.runs import start
from tests.runs.test_runs import job, make_crowd


def test_a_run_checks_hashes_and_measures_its_inputs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, counted)

    count(inputs, "_refuse_nonfinite")
    count(Inputs, "hash_into")
    count(Standardize, "measure")
    start(job(make_crowd(tmp_path), method="fusion"), tmp_path / "run", force=False, verbose=0)
    assert counts == {"_refuse_nonfinite": 1, "hash_into": 1, "measure": 1}


def test_all_results_come_from_one_pass_and_equal_those_of_the_single_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    X, Y = generator.normal(size=(300, 4)), generator.integers(-1, 3, (300, 3))
    Y[:5] = -1
    clf = FusionClassifier(epochs=2).fit(X, Y)
    ann = Annotations.from_matrix(Y, classes=range(3))
    single = clf.predict_proba(X), clf.fused_labels(X, ann), clf.annotator_weights(X, ann, sparse=True).data
    n_streams = 0
    original = Inputs.stream

    def stream(self: Inputs, *arguments: Any) -> Any:
        nonlocal n_streams
        n_streams += 1
        return original(self, *arguments)

    monkeypatch.setattr(Inputs, "stream", stream)
    together = clf.predict_with_labels(X, ann)
    assert n_streams == 1
    for one, part in zip(single, together[1:], strict=True):
        np.testing.assert_array_equal(one, part)

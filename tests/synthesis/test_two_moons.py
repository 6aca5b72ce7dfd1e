from __future__ import annotations

import numpy as np

from crowdfuse.synthesis import two_moon_annotators


def test_each_annotator_sees_one_axis() -> None:
    said = two_moon_annotators(np.array([[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])).to_matrix()
    assert said.tolist() == [[1, 0], [0, 1], [1, 1]]

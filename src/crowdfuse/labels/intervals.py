"""How far a share can be believed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Z = 1.959963984540054  # 95 % of a normal distribution lie within so many standard deviations


def wilson(right: ArrayLike, total: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ends of Wilson's 95 % interval of `right` out of `total`; 0 and 1 where nothing was counted.

    With p = right / total: (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    >>> [round(float(end), 3) for end in wilson(8, 10)]
    [0.49, 0.943]
    """
    right, total = np.asarray(right, np.float64), np.asarray(total, np.float64)
    n = np.maximum(total, 1e-12)
    p = np.clip(right / n, 0, 1)
    middle, spread = p + Z**2 / (2 * n), Z * np.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    scale = 1 + Z**2 / n
    return np.clip((middle - spread) / scale, 0, 1), np.clip((middle + spread) / scale, 0, 1)


def share(right: float, total: float) -> dict[str, Any]:
    """A share with its interval, as the report's figures have it; the value is None where nothing was counted."""
    low, high = (float(end) for end in wilson(right, total))
    return {"value": float(right / total) if total else None, "low": low, "high": high, "of": round(total)}

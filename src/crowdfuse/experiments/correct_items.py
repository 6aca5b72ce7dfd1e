"""Which judged items a model got right, as a run's record holds it: bits in hexadecimal."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def encode_correct(right: NDArray[np.bool_]) -> dict[str, Any]:
    """What goes into a record.

    >>> pack(np.array([True, False, True]))
    {'judged': 3, 'right': 'a0'}
    """
    return {"judged": len(right), "right": np.packbits(right).tobytes().hex()}


def decode_correct(result: dict[str, Any]) -> NDArray[np.bool_]:
    """Which of the judged items were right, in their order.

    >>> right_items({"judged": 3, "right": "a0"}).tolist()
    [True, False, True]
    """
    bits = np.frombuffer(bytes.fromhex(result["right"]), np.uint8)
    return np.unpackbits(bits, count=result["judged"]).astype(bool)

"""Store in the result of a run which evaluated items were predicted correctly, as bits in hexadecimal."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def encode_correct(is_correct: NDArray[np.bool_]) -> dict[str, Any]:
    """Encode which items were predicted correctly, as two entries for the stored result of a run.

    `decode_correct` reads these entries.

    Parameters
    ----------
    is_correct : ndarray of shape (n_evaluated,)
        Whether each evaluated item was predicted correctly.

    Returns
    -------
    dict
        `n_evaluated`, the number of items, and `correct_items_hex`, one bit per item.

    Examples
    --------
    >>> encode_correct(np.array([True, False, True]))
    {'n_evaluated': 3, 'correct_items_hex': 'a0'}
    """
    return {"n_evaluated": len(is_correct), "correct_items_hex": np.packbits(is_correct).tobytes().hex()}


def decode_correct(result: dict[str, Any]) -> NDArray[np.bool_]:
    """Return whether each evaluated item was predicted correctly, from the result of a run.

    Parameters
    ----------
    result : dict
        The result of a run, with the two entries that `encode_correct` returned.

    Returns
    -------
    ndarray of shape (n_evaluated,)

    Examples
    --------
    >>> decode_correct({"n_evaluated": 3, "correct_items_hex": "a0"}).tolist()
    [True, False, True]
    """
    bits = np.frombuffer(bytes.fromhex(result["correct_items_hex"]), np.uint8)
    return np.unpackbits(bits, count=result["n_evaluated"]).astype(bool)

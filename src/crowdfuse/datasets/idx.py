"""The idx format of MNIST: two zero bytes, a type, the number of dimensions, their sizes, then the values."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

UNSIGNED_BYTE = 0x08


def read_idx(content: bytes, where: str) -> NDArray[np.uint8]:
    """The read-only array in an idx file of unsigned bytes. `where` is the name of the file in error messages.

    >>> read_idx(bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9]), "tiny").tolist()
    [[7, 8, 9]]
    """
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != UNSIGNED_BYTE or not content[3]:
        raise ValueError(
            f"{where} begins with the bytes {content[:4].hex(' ') or '(none)'}, but an idx file begins with 00 00 08 "
            "and the number of dimensions. Is it a different file, or still compressed?"
        )
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise ValueError(
            f"{where}: ends after {len(content)} bytes, inside its header of {start} bytes; download it again"
        )
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", count=content[3], offset=4))
    expected, found = math.prod(shape), len(content) - start
    if found != expected:
        what = "is cut short" if found < expected else "has bytes left over"
        raise ValueError(
            f"{where} {what}: its header says {' x '.join(map(str, shape))} values ({expected:,} bytes), but {found:,} "
            "bytes follow; download the file again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)

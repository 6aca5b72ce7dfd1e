from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from crowdfuse.datasets.idx import read_idx


def idx(values: NDArray[np.uint8]) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes() + values.tobytes()


@pytest.mark.parametrize("shape", [(7,), (2, 3, 4), (0, 5)])
def test_idx_round_trip(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    np.testing.assert_array_equal(read_idx(idx(values), "file"), values, strict=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"file begins with the bytes \(none\)"),
        (b"\x1f\x8b\x08\x00rest", "file begins with the bytes 1f 8b 08 00.*still compressed"),
        (b"\0\0\x0d\1\0\0\0\1\0\0\0\0", "begins with the bytes 00 00 0d 01, but an idx file"),
        (b"\0\0\x08\0", "number of dimensions"),
        (idx(np.zeros((2, 3), np.uint8))[:9], "file: ends after 9 bytes, inside its header of 12 bytes"),
        (
            idx(np.zeros((2, 3), np.uint8))[:-1],
            r"file is cut short: its header says 2 x 3 values \(6 bytes\), but 5",
        ),
        (idx(np.zeros((2, 3), np.uint8)) + b"\0", "file has bytes left over: .* but 7 bytes follow"),
    ],
)
def test_invalid_idx_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_idx(content, "file")


def test_header_with_huge_shape_allocates_no_memory() -> None:
    with pytest.raises(ValueError, match="cut short"):
        read_idx(bytes([0, 0, 8, 3]) + b"\xff" * 12, "file")

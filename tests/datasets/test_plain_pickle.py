"""Genuine pickles against Python's own reader, and hostile ones, none of which may do anything."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from crowdfuse.datasets import plain_pickle
from crowdfuse.datasets.plain_pickle import read_plain_pickle

DTYPE_U1 = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
EMPTY_ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
# as Python 2 and NumPy 1 wrote CIFAR's batches, and its meta file
BATCH = (
    b"\x80\x02}q\x01(U\x04dataq\x02" + EMPTY_ARRAY + b"q\x05(K\x01K\x02K\x03\x86" + DTYPE_U1 + b"\x89"
    b"U\x06\x00\x01\x02\xfd\xfe\xfftbU\x06labelsq\x08]q\t(K\x03K\x05eU\x0bbatch_labelq\nU\x0dbatch 1 of \xff\xe9q\x0bu."
)
META = b"(dp1\nS'num_vis'\np2\nI3072\nsS'label_names'\np3\n(lp4\nS'airplane'\np5\naS'frog'\np6\nas."


def array(state: bytes) -> bytes:
    return b"\x80\x02" + EMPTY_ARRAY + state + b"b."


def equal(ours: Any, theirs: Any) -> bool:
    """The same, types included, but for the keys of dicts, which are str here."""
    if isinstance(theirs, np.ndarray):
        return bool(type(ours) is np.ndarray and ours.dtype == theirs.dtype and np.array_equal(ours, theirs))
    if isinstance(theirs, dict):
        named = {key.decode("latin1") if isinstance(key, bytes) else key: part for key, part in theirs.items()}
        return type(ours) is dict and ours.keys() == named.keys() and all(equal(ours[key], named[key]) for key in named)
    if isinstance(theirs, list | tuple):
        return type(ours) is type(theirs) and len(ours) == len(theirs) and all(map(equal, ours, theirs))
    return type(ours) is type(theirs) and bool(ours == theirs)


@pytest.mark.parametrize("content", [BATCH, META], ids=["batch", "meta"])
def test_pickles_of_python_2(content: bytes) -> None:
    found = read_plain_pickle(content, "file")
    assert equal(found, pickle.loads(content, encoding="bytes"))
    assert all(type(key) is str for key in found)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("is_c", [True, False])
def test_pickles_of_python_3(protocol: int, is_c: bool) -> None:
    numbers = np.arange(24).reshape(2, 3, 4)
    if not is_c:
        numbers = np.asfortranarray(numbers)
    arrays = {code: numbers.astype(code) for code in ("u1", "<i8", ">i2", "<f2", ">f8", "?", "S3")}
    plain: list[Any] = [
        1,
        -1,
        2**40,
        300,
        1.5,
        float("inf"),
        True,
        None,
        "ä\n",
        b"\xff\0",
        b"",
        (),
        (1,),
        (1, 2, [3]),
        {"a": {}},
    ]
    value: dict[Any, Any] = {**arrays, b"plain": plain, "column": numbers[:, 1], "one": np.array(2.5)}
    content = pickle.dumps(value, protocol)
    assert equal(read_plain_pickle(content, "file"), value)


def test_arrays_without_values() -> None:
    for protocol in range(6):
        assert read_plain_pickle(pickle.dumps(np.zeros((0, 5), np.uint8), protocol), "file").shape == (0, 5)


def test_booleans_are_0_or_1_for_any_bytes() -> None:
    content = pickle.dumps(np.array([False, True, True]), 4).replace(b"\0\1\1", b"\0\2\xff")
    assert read_plain_pickle(content, "file").view(np.uint8).tolist() == [0, 1, 1]


# ---- malicious pickles: each of these writes a file if read by Python's own reader --------------------------


class Call:
    """Pickled as a call of any function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.made_of = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.made_of


def calls(marker: Path) -> dict[str, tuple[bytes, str]]:
    """Pickles that write the marker, and the name on which each is to be refused."""
    code = f"open({str(marker)!r}, 'w').close()"
    text = b"S" + ascii(code).encode() + b"\n"
    shell = Call(os.system, f"touch {marker}")
    hidden = np.empty(1, object)
    hidden[0] = shell
    return {
        "system": (pickle.dumps(shell), "posix.system"),
        "system, protocol 0": (pickle.dumps([1, {"data": shell}], 0), "posix.system"),
        "eval": (pickle.dumps(Call(eval, code), 2), "builtin__.eval"),
        "inst": (b"(" + text + b"i__builtin__\neval\n.", "__builtin__.eval"),
        "obj": (b"(c__builtin__\neval\n" + text + b"o.", "__builtin__.eval"),
        "after data": (pickle.dumps({"data": np.arange(3), "labels": shell}), "posix.system"),
        "object array": (pickle.dumps(hidden, 4), "dtype 'O8'"),
        "object array, protocol 5": (pickle.dumps(hidden, 5), "dtype 'O8'"),
    }


@pytest.mark.skipif(os.name != "posix", reason="the payloads call a shell")
@pytest.mark.parametrize("kind", calls(Path("marker")))
def test_calls_are_refused_and_not_executed(tmp_path: Path, kind: str) -> None:
    marker = tmp_path / "marker"
    content, named = calls(marker)[kind]
    with pytest.raises(ValueError, match="some file: refused") as error:
        read_plain_pickle(content, "some file")
    assert named in str(error.value)
    assert not marker.exists()
    pickle.loads(content)
    assert marker.exists()


def huge(shape: bytes, raw: bytes = b"U\x01a") -> bytes:
    return array(b"(K\x01" + shape + DTYPE_U1 + b"\x89" + raw + b"t")


DTYPE_WITHOUT_ORDER = DTYPE_U1.partition(b"(")[0]
REFUSED = {
    "copyreg": (b"ccopy_reg\n_reconstructor\n(cX\nY\nc__builtin__\nobject\nNtR.", "copy_reg._reconstructor"),
    "a path through a module": (b"\x80\x04\x8c\x05numpy\x8c\x0ef2py.os.system\x93.", "numpy.f2py.os.system"),
    "a persistent id": (b"Pposix.system\n.", "instruction PERSID 'posix.system'"),
    "a persistent id on the stack": (b"K\x01Q.", "instruction BINPERSID"),
    "an extension": (b"\x82\x01.", "instruction EXT1 1"),
    "an instance": (b"cnumpy\nndarray\n)\x81.", "instruction NEWOBJ"),
    "an instance, protocol 0": (b"(inumpy\nndarray\n.", "imports 'numpy.ndarray'"),
    "a buffer from elsewhere": (b"\x97.", "instruction NEXT_BUFFER"),
    "a set": (pickle.dumps({1, 2}), "instruction EMPTY_SET"),
    "a class": (pickle.dumps(np.ndarray), "unfinished object, Name"),
    "an array without values": (b"\x80\x02" + EMPTY_ARRAY + b".", "unfinished object, Array"),
    "a method of arrays": (b"\x80\x04\x8c\x05numpy\x8c\x14ndarray.__setstate__\x93.", "numpy.ndarray.__setstate__"),
    "a call of ndarray": (b"cnumpy\nndarray\n(K\x09tR.", "calls a function"),
    "a call of a list": (b"])R.", "calls a function"),
    "another class for the array": (
        EMPTY_ARRAY.replace(b"cnumpy\nndarray\n", b"cnumpy\ndtype\n") + b".",
        "calls a function",
    ),
    "another encoding": (b"c_codecs\nencode\nX\x01\0\0\0aX\x05\0\0\0rot13\x86R.", "calls a function"),
    "attributes for an array": (array(b"}U\x05shapeK\x01s"), "sets a state"),
    "attributes for a dict": (b"}}b.", "sets a state"),
    "values given twice": (huge(b"K\x01\x85")[:-1] + b"(K\x01K\x01\x85" + DTYPE_U1 + b"\x89U\x01atb.", "sets a state"),
    "a list for raw values": (huge(b"K\x01\x85", b"]K\x61a"), "sets a state"),
    "more values than bytes": (
        huge(b"\x8a\x06\0\0\0\0\0\x10\x85"),
        r"shape \(17592186044416,\) and dtype u1 in 1 bytes",
    ),
    "a negative shape": (huge(b"J\xff\xff\xff\xffJ\xff\xff\xff\xff\x86"), "without a valid shape"),
    "a shape of arrays": (huge(EMPTY_ARRAY + b"\x85"), "without a valid shape"),
    "too many dimensions": (huge(b"(" + b"K\x01" * 9 + b"t"), "without a valid shape"),
    "no byte order": (huge(b"K\x01\x85").replace(DTYPE_U1, DTYPE_WITHOUT_ORDER), "byte order"),
    "a type with fields": (huge(b"K\x01\x85").replace(b"|NNN", b"|NU\x01f}"), "dtype 'u1' with fields"),
    "a type with flags": (huge(b"K\x01\x85").replace(b"K\x00tb\x89", b"K\x3ftb\x89"), "dtype 'u1' with fields"),
    "times": (pickle.dumps(np.zeros(1, "M8[s]")), "dtype 'M8'"),
    "text too wide": (pickle.dumps(np.zeros(1, "S10000"), 4), "dtype 'S10000'"),
    "a key that is a number": (pickle.dumps({1: 2}), "key of type int"),
    "a key twice": (b"}(U\x01aK\x01X\x01\0\0\0aK\x02u.", "key 'a' twice"),
    "lists in lists": (b"]" * 100_000 + b"a" * 99_999 + b".", "nested more than 32 deep"),
    "tuples in tuples": (b")" + b"\x85" * 100_000 + b".", "nested more than 32 deep"),
    "dicts in dicts": (b"}U\x01a" * 50_000 + b"N" + b"s" * 50_000 + b".", "nested more than 32 deep"),
    "a list in itself": (b"]q\0h\0a.", "refers to the same list twice"),
    "a doubling": (b"]q\0]q\1(h\0h\0e" + b".", "refers to the same list twice"),
    "a doubling of tuples": (b")\x85q\0h\0\x86.", "refers to the same tuple twice"),
    "a doubling without a memo": (b"]2\x86.", "instruction DUP"),
    "a number without end": (b"\x8b" + struct.pack("<i", 500) + b"\x7f" * 500 + b".", "instruction LONG4"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_anything_but_plain_data_is_refused(kind: str) -> None:
    content, said = REFUSED[kind]
    with pytest.raises(ValueError, match=f"^file: refused, because (it|a dict has) .*{said}"):
        read_plain_pickle(content, "file")


DAMAGED = {
    "nothing": b"",
    "a web page": b"<html>please log in</html>",
    "an archive": b"\x1f\x8b\x08\0\0\0\0\0",
    "no value": b".",
    "no mark": b"t.",
    "no list to append to": b"}K\x01a.",
    "a key without value": b"}(U\x01au.",
    "a memo that was never filled": b"h\x07.",
    "bytes without end": b"\x8e" + b"\xff" * 7 + b"\x3f" + b"abc.",
    "text without end": b"X\xff\xff\xff\x7fabc.",
    "a number too long": b"L" + b"9" * 5000 + b"L\n.",
    "an unknown instruction": b"\x80\x04\xf0.",
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_invalid_pickles_are_refused(kind: str) -> None:
    with pytest.raises(
        ValueError, match=r"^file: not a pickle, or damaged after byte .*download the file again$"
    ) as error:
        read_plain_pickle(DAMAGED[kind], "file")
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("content", [BATCH, META, pickle.dumps({"data": np.arange(9), "labels": [1, 2]})])
def test_pickle_truncated_anywhere_is_refused(content: bytes) -> None:
    for end in range(len(content)):
        with pytest.raises(ValueError, match=r"^file: "):
            read_plain_pickle(content[:end], "file")


def test_large_memo_index_allocates_no_memory() -> None:
    assert read_plain_pickle(b"K\x07r\xff\xff\xff\xffj\xff\xff\xff\xff.", "file") == 7


def test_the_number_of_instructions_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_pickle, "MAX_INSTRUCTIONS", 10)
    with pytest.raises(ValueError, match="more than 10 instructions at byte 10"):
        read_plain_pickle(b"N" * 20 + b".", "file")


def is_plain(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) is str and is_plain(part) for key, part in value.items())
    if type(value) in (list, tuple):
        return all(map(is_plain, value))
    return type(value) in (type(None), bool, int, float, str, bytes) or (
        type(value) is np.ndarray and value.dtype.kind in "biufS"
    )


GENUINE = [BATCH, META, *(pickle.dumps({b"d": np.arange(3.0), "l": [1, (2, b"x")]}, protocol) for protocol in range(6))]
EDITS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=6)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(GENUINE), EDITS)
def test_any_bytes_give_plain_data_or_a_value_error(content: bytes, edits: list[tuple[int, int]]) -> None:
    changed = bytearray(content)
    for place, byte in edits:
        changed[place % len(changed)] = byte
    with contextlib.suppress(ValueError):
        assert is_plain(read_plain_pickle(bytes(changed), "file"))


def test_arrays_are_read_only() -> None:
    found: NDArray[Any] = read_plain_pickle(BATCH, "file")["data"]
    assert not found.flags.writeable

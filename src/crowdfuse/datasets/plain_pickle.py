"""Pickles read as data: arrays, lists, tuples, dicts, numbers, texts and bytes. Nothing in them is ever called.

CIFAR's files are pickles, and a pickle is a program that Python's own reader runs: names in it are imported and
called. Here its instructions are gone through one by one, and only those that hold or arrange data are known.
The few names with which NumPy's arrays are written are compared as texts and stand for what is done below; no name
is looked up. A container is never taken a second time, so what comes out is a tree no larger than the file.
"""

from __future__ import annotations

import math
import pickletools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

MOST_STEPS = 2_000_000  # instructions; the largest of CIFAR's files has a tenth of that
DEEPEST = 32  # lists in lists; CIFAR's have 2
MOST_DIMENSIONS = 8

ALLOWED_GLOBALS = {
    "_codecs.encode": "bytes",  # how Python 3 writes bytes for Python 2,
    "__builtin__.bytes": "bytes",  # and where there are none
    "numpy.dtype": "dtype",
    "numpy.ndarray": "ndarray",
    "numpy.core.multiarray._reconstruct": "array",
    "numpy._core.multiarray._reconstruct": "array",
    "numpy.core.numeric._frombuffer": "buffer",  # arrays from protocol 5 on
    "numpy._core.numeric._frombuffer": "buffer",
}
DTYPES = re.compile(r"b1|[iu][1248]|f[248]|S[1-9][0-9]{0,3}")
PLAIN = (type(None), bool, int, float, str, bytes)


def read_plain_pickle(content: bytes, where: str) -> Any:
    """What is pickled in `content`, if it is plain data; `where` names the file in error messages.

    Any protocol. Texts of Python 2 come as bytes, keys of dicts always as str; arrays are read-only and hold
    numbers, truth values or bytes. Anything else is refused with a ValueError that names it.

    >>> import pickle
    >>> read_plain_pickle(pickle.dumps({b"labels": [3, 5]}), "batch")
    {'labels': [3, 5]}
    >>> read_plain_pickle(pickle.dumps(len), "batch")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: batch: refused, for it names 'builtins.len' at byte ...
    """
    position = 0
    machine = _Machine()
    try:
        for step, (opcode, argument, at) in enumerate(pickletools.genops(content)):
            position = at or 0
            if step == MOST_STEPS:
                _refuse(f"it has more than {MOST_STEPS:,} instructions")
            machine.step(opcode.name, argument)
        return _finish(machine.stack.pop(), 0)
    except _RefusedError as reason:
        raise ValueError(
            f"{where}: refused, for {reason} at byte {position:,}. Only arrays, lists, tuples, dicts, numbers, texts "
            "and bytes are read; nothing was executed. Get the file again from its publisher"
        ) from None
    except (IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{where}: is no pickle, or damaged after byte {position:,} ({error!s:.200}); get the file again"
        ) from error


class _RefusedError(Exception):
    """Says what a pickle holds or wants that is not plain data."""


def _refuse(reason: str) -> NoReturn:
    raise _RefusedError(reason)


@dataclass(frozen=True)
class _Name:
    """A name that a pickle would have imported."""

    stands_for: str


@dataclass(eq=False)
class _Dtype:
    """A type code, and the dtype once its byte order is known."""

    code: str
    dtype: np.dtype[Any] | None = None


@dataclass(eq=False)
class _Array:
    """An array, once its values are there."""

    values: NDArray[Any] | None = None


class _Machine:
    """Pickle's stack machine, without the instructions that could do anything but hold data.

    A list, dict or tuple is on the stack or inside one other, never in two places.
    """

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # what lay on the stack before each open mark
        self.memo: dict[int, Any] = {}

    def step(self, opcode: str, argument: Any) -> None:
        stack = self.stack
        match opcode:
            case "BININT1" | "BININT2" | "BININT" | "INT" | "LONG" | "LONG1" | "FLOAT" | "BINFLOAT":
                stack.append(argument)
            case "SHORT_BINUNICODE" | "BINUNICODE" | "BINUNICODE8" | "UNICODE":
                stack.append(argument)
            case "SHORT_BINBYTES" | "BINBYTES" | "BINBYTES8" | "BYTEARRAY8":
                stack.append(bytes(argument))
            case "SHORT_BINSTRING" | "BINSTRING" | "STRING":  # Python 2's: texts or bytes, it does not say which
                stack.append(argument.encode("latin1"))
            case "BINPUT" | "LONG_BINPUT" | "PUT":
                self.memo[argument] = stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET" | "GET":
                stack.append(_once(self.memo[argument]))
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[opcode])
            case "EMPTY_LIST" | "EMPTY_DICT" | "EMPTY_TUPLE":
                stack.append({"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}[opcode]())
            case "MARK":
                self.below.append(stack)
                self.stack = []
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self._pop(int(opcode[-1]))))
            case "TUPLE" | "LIST":
                items = self._since_mark()
                self.stack.append(items if opcode == "LIST" else tuple(items))
            case "DICT":
                items = self._since_mark()
                self.stack.append({})
                self._set(items)
            case "APPEND" | "APPENDS":
                items = self._since_mark() if opcode == "APPENDS" else self._pop(1)
                self._top(list).extend(items)
            case "SETITEM" | "SETITEMS":
                self._set(self._since_mark() if opcode == "SETITEMS" else self._pop(2))
            case "GLOBAL" | "INST":
                self._name(argument.replace(" ", "."), opcode)
            case "STACK_GLOBAL":
                self._name(".".join(self._pop(2)), opcode)
            case "REDUCE":
                stack.append(_make(*self._pop(2)))
            case "BUILD":
                (state,) = self._pop(1)
                _fill(stack[-1], state)
            case "PROTO" | "FRAME" | "STOP":
                pass
            case _:
                _refuse(f"it has the instruction {opcode}" + (f" {argument!r:.80}" if argument is not None else ""))

    def _pop(self, count: int) -> list[Any]:
        """The last so many from the stack."""
        if len(self.stack) < count:
            raise IndexError("the stack is empty")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def _since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def _top(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise TypeError(f"fills a {type(self.stack[-1]).__name__} as if it were a {kind.__name__}")
        return self.stack[-1]

    def _set(self, items: list[Any]) -> None:
        """Keys and values in turn, into the dict on the stack."""
        into = self._top(dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            name = key.decode("latin1") if type(key) is bytes else key
            if type(name) is not str:  # numbers can be chosen so that looking them up takes forever
                _refuse(f"a dict has a key of type {type(key).__name__.strip('_')}")
            if name in into:
                _refuse(f"a dict has the key {name!r:.80} twice")
            into[name] = value

    def _name(self, name: str, opcode: str) -> None:
        if name not in ALLOWED_GLOBALS or opcode == "INST":
            _refuse(f"it names {name!r:.80}")
        self.stack.append(_Name(ALLOWED_GLOBALS[name]))


def _once(value: Any) -> Any:
    """What is taken from the memo: not a container, else few bytes could unfold into a giant or a circle."""
    if type(value) in (list, dict, tuple):
        _refuse(f"it takes a {type(value).__name__} a second time")
    return value


def _make(name: Any, arguments: Any) -> bytes | _Dtype | _Array:
    """What a call in the pickle amounts to, of the four that are known."""
    match name.stands_for if type(name) is _Name else None, arguments:
        case "bytes", (str(text), "latin1"):
            return text.encode("latin1")
        case "bytes", ():
            return b""
        case "dtype", (str(code) | bytes(code), _, _):
            code = code.decode("latin1") if isinstance(code, bytes) else code
            return _Dtype(code) if DTYPES.fullmatch(code) else _refuse(f"it has an array of dtype {code!r:.80}")
        case "array", (_Name("ndarray"), (0,), b"b" | "b"):
            return _Array()
        case "buffer", (bytes(raw), _Dtype() as dtype, tuple(shape), "C" | "F" as order):
            return _Array(_values(raw, dtype, shape, order))
    _refuse("it has a call that NumPy's arrays are not written with")


def _fill(target: Any, state: Any) -> None:
    """Give a dtype its byte order, or an array its values; each once."""
    match target, state:
        case _Dtype(dtype=None), (2 | 3, ("<" | ">" | "|" | "=" | b"<" | b">" | b"|" | b"=") as order, *rest):
            # no part of a type, no fields, no flags; the sizes between them are those of the code
            if rest[:3] != [None, None, None] or any(rest[5:]):
                _refuse(f"it has an array of dtype {target.code!r} with parts")
            sign = order.decode() if isinstance(order, bytes) else order
            target.dtype = np.dtype(sign + target.code)
        case _Array(values=None), (1, tuple(shape), _Dtype() as dtype, bool() | int() as columns_first, bytes(raw)):
            target.values = _values(raw, dtype, shape, "F" if columns_first else "C")
        case _:
            _refuse("it sets a state that NumPy's arrays are not written with")


def _values(raw: bytes, dtype: _Dtype, shape: Iterable[Any], order: Literal["C", "F"]) -> NDArray[Any]:
    """The array, if its bytes are as many as its shape says."""
    sizes = tuple(shape)
    if dtype.dtype is None or len(sizes) > MOST_DIMENSIONS or any(type(n) is not int or n < 0 for n in sizes):
        _refuse(f"it has an array of dtype {dtype.code} without a proper shape or byte order")
    if math.prod(sizes) * dtype.dtype.itemsize != len(raw):
        _refuse(f"it has an array of shape {sizes!s:.80} and dtype {dtype.code} in {len(raw):,} bytes")
    if dtype.dtype == np.bool_:  # NumPy relies on 0 and 1 here
        return np.asarray(np.ndarray(sizes, np.uint8, raw, order=order) != 0)
    return np.ndarray(sizes, dtype.dtype, raw, order=order)


def _finish(value: Any, depth: int) -> Any:
    """The same without our own wrappers. Whatever comes out has been through here."""
    if depth > DEEPEST:
        _refuse(f"it is nested more than {DEEPEST} deep")
    if type(value) is dict:
        return {key: _finish(part, depth + 1) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_finish(part, depth + 1) for part in value)
    if type(value) is _Array and value.values is not None:
        return value.values
    if type(value) not in PLAIN:
        _refuse(f"it holds something unfinished, {type(value).__name__.strip('_')}")
    return value

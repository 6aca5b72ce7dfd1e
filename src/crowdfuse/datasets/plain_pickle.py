"""Read pickles as plain data: arrays, lists, tuples, dicts, numbers, strings and bytes. No pickled code is executed.

The files of CIFAR are pickles. A pickle is a program: Python's own reader imports and calls the functions that it
names. This reader steps through the instructions and supports only instructions that hold or arrange data. NumPy's
functions for arrays are recognised by their names and never looked up. A list, tuple or dict cannot appear twice in the
result, so the result is no larger than the file.
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

MAX_INSTRUCTIONS = 2_000_000  # ten times the number in the largest file of CIFAR
MAX_NESTING_DEPTH = 32  # the files of CIFAR have depth 2
MAX_DIMENSIONS = 8

ALLOWED_GLOBALS = {
    "_codecs.encode": "bytes",  # how Python 3 writes bytes for Python 2
    "__builtin__.bytes": "bytes",  # the same for empty bytes
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
    """Read a pickle of any protocol that holds plain data. `where` is the name of the file in error messages.

    Strings of Python 2 become bytes. Keys of dicts are always str. Arrays are read-only and hold numbers, booleans or
    bytes. Any other content raises a ValueError that names it.

    >>> import pickle
    >>> read_plain_pickle(pickle.dumps({b"labels": [3, 5]}), "batch")
    {'labels': [3, 5]}
    >>> read_plain_pickle(pickle.dumps(len), "batch")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: batch: refused, because it imports 'builtins.len' at byte ...
    """
    position = 0
    machine = _Machine()
    try:
        for step, (opcode, argument, at) in enumerate(pickletools.genops(content)):
            position = at or 0
            if step == MAX_INSTRUCTIONS:
                _refuse(f"it has more than {MAX_INSTRUCTIONS:,} instructions")
            machine.step(opcode.name, argument)
        return _finish(machine.stack.pop(), 0)
    except _RefusedError as reason:
        raise ValueError(
            f"{where}: refused, because {reason} at byte {position:,}. Only arrays, lists, tuples, dicts, numbers, "
            "strings and bytes are read; nothing was executed. Download the file again from its publisher"
        ) from None
    except (IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{where}: not a pickle, or damaged after byte {position:,} ({error!s:.200}); download the file again"
        ) from error


class _RefusedError(Exception):
    """Something in a pickle that is not plain data."""


def _refuse(reason: str) -> NoReturn:
    """Raise the error for something that is not plain data."""
    raise _RefusedError(reason)


@dataclass(frozen=True)
class _Name:
    """A name that Python would import."""

    stands_for: str


@dataclass(eq=False)
class _Dtype:
    """A type code, and the dtype once its byte order is known."""

    code: str
    dtype: np.dtype[Any] | None = None


@dataclass(eq=False)
class _Array:
    """An array, and its values once they are known."""

    values: NDArray[Any] | None = None


class _Machine:
    """The stack machine of pickle, with only the instructions that hold data.

    A list, dict or tuple is on the stack or inside one other container, never in two places.
    """

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stack before each open mark
        self.memo: dict[int, Any] = {}

    def step(self, opcode: str, argument: Any) -> None:
        """Execute one instruction."""
        stack = self.stack
        match opcode:
            case "BININT1" | "BININT2" | "BININT" | "INT" | "LONG" | "LONG1" | "FLOAT" | "BINFLOAT":
                stack.append(argument)
            case "SHORT_BINUNICODE" | "BINUNICODE" | "BINUNICODE8" | "UNICODE":
                stack.append(argument)
            case "SHORT_BINBYTES" | "BINBYTES" | "BINBYTES8" | "BYTEARRAY8":
                stack.append(bytes(argument))
            case "SHORT_BINSTRING" | "BINSTRING" | "STRING":  # Python 2 does not distinguish strings from bytes
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
        """Remove the last `count` values from the stack."""
        if len(self.stack) < count:
            raise IndexError("the stack is empty")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def _since_mark(self) -> list[Any]:
        """Remove the values since the last mark from the stack."""
        items, self.stack = self.stack, self.below.pop()
        return items

    def _top(self, kind: type) -> Any:
        """The last value on the stack, which must have this type."""
        if type(self.stack[-1]) is not kind:
            raise TypeError(f"an instruction for a {kind.__name__} is applied to a {type(self.stack[-1]).__name__}")
        return self.stack[-1]

    def _set(self, items: list[Any]) -> None:
        """Put alternating keys and values into the dict on the stack."""
        into = self._top(dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            name = key.decode("latin1") if type(key) is bytes else key
            if type(name) is not str:  # an attacker could choose numbers that collide, so that lookups take forever
                _refuse(f"a dict has a key of type {type(key).__name__.strip('_')}")
            if name in into:
                _refuse(f"a dict has the key {name!r:.80} twice")
            into[name] = value

    def _name(self, name: str, opcode: str) -> None:
        """Put an allowed name on the stack."""
        if name not in ALLOWED_GLOBALS or opcode == "INST":
            _refuse(f"it imports {name!r:.80}")
        self.stack.append(_Name(ALLOWED_GLOBALS[name]))


def _once(value: Any) -> Any:
    """A value from the memo. Containers are refused: reuse could make a huge or circular result from few bytes."""
    if type(value) in (list, dict, tuple):
        _refuse(f"it refers to the same {type(value).__name__} twice")
    return value


def _make(name: Any, arguments: Any) -> bytes | _Dtype | _Array:
    """The result of one of the function calls in pickled NumPy arrays."""
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
    _refuse("it calls a function that pickled NumPy arrays do not use")


def _fill(target: Any, state: Any) -> None:
    """Set the byte order of a dtype or the values of an array, once."""
    match target, state:
        case _Dtype(dtype=None), (2 | 3, ("<" | ">" | "|" | "=" | b"<" | b">" | b"|" | b"=") as order, *rest):
            # no subtype, fields or flags; the sizes in between follow from the type code
            if rest[:3] != [None, None, None] or any(rest[5:]):
                _refuse(f"it has an array of dtype {target.code!r} with fields")
            sign = order.decode() if isinstance(order, bytes) else order
            target.dtype = np.dtype(sign + target.code)
        case _Array(values=None), (1, tuple(shape), _Dtype() as dtype, bool() | int() as columns_first, bytes(raw)):
            target.values = _values(raw, dtype, shape, "F" if columns_first else "C")
        case _:
            _refuse("it sets a state that pickled NumPy arrays do not have")


def _values(raw: bytes, dtype: _Dtype, shape: Iterable[Any], order: Literal["C", "F"]) -> NDArray[Any]:
    """The array; an error unless the number of bytes fits its shape."""
    sizes = tuple(shape)
    if dtype.dtype is None or len(sizes) > MAX_DIMENSIONS or any(type(n) is not int or n < 0 for n in sizes):
        _refuse(f"it has an array of dtype {dtype.code} without a valid shape or byte order")
    if math.prod(sizes) * dtype.dtype.itemsize != len(raw):
        _refuse(f"it has an array of shape {sizes!s:.80} and dtype {dtype.code} in {len(raw):,} bytes")
    if dtype.dtype == np.bool_:  # NumPy expects only 0 and 1
        return np.asarray(np.ndarray(sizes, np.uint8, raw, order=order) != 0)
    return np.ndarray(sizes, dtype.dtype, raw, order=order)


def _finish(value: Any, depth: int) -> Any:
    """The value without our wrapper classes. Every result passes through this function."""
    if depth > MAX_NESTING_DEPTH:
        _refuse(f"it is nested more than {MAX_NESTING_DEPTH} deep")
    if type(value) is dict:
        return {key: _finish(part, depth + 1) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_finish(part, depth + 1) for part in value)
    if type(value) is _Array and value.values is not None:
        return value.values
    if type(value) not in PLAIN:
        _refuse(f"it contains an unfinished object, {type(value).__name__.strip('_')}")
    return value

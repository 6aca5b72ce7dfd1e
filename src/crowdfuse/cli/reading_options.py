"""The command-line options for reading labels, made from the fields of `Reading`."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import Field, fields
from functools import wraps
from typing import Annotated, Any, TypeVar, get_args, get_origin

import typer

from crowdfuse.checks.choices import check_choice
from crowdfuse.labels.reading import Reading, allowed_values, option_type
from crowdfuse.training.distributed import raise_in_all_processes

R = TypeVar("R")

DEFAULT_READING = Reading()


def with_reading_options(command: Callable[..., R]) -> Callable[..., R]:
    """Replace a command's `Reading` parameter by one option per field, and build the `Reading` from the options."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        parameters += map(_parameter, fields(Reading)) if parameter.annotation is Reading else [parameter]
    target = next(name for name, parameter in signature.parameters.items() if parameter.annotation is Reading)

    @wraps(command)
    def run(**given: Any) -> R:
        with raise_in_all_processes():
            reading = Reading(**{option.name: _parse(option, given.pop(option.name)) for option in fields(Reading)})
        return command(**given, **{target: reading})

    # typer reads both the signature and the annotations
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def option_name(name: str) -> str:
    """Return the command-line option of a field of `Reading`, such as ``--on-bad`` for ``on_bad``."""
    return f"--{name.replace('_', '-')}"


def _parameter(option: Field[Any]) -> inspect.Parameter:
    """Return the command parameter for a field of `Reading`."""
    hint = option_type(option)
    if allowed_values(option):
        hint = str  # `_parse` checks the value; its message lists the allowed values and suggests one
    elif _is_sequence(hint):
        hint = str | None
    return inspect.Parameter(
        option.name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=option.default,
        annotation=Annotated[hint, typer.Option(option_name(option.name), help=option.metadata["help"])],
    )


def _parse(option: Field[Any], value: Any) -> Any:
    """Return the value of an option, parsed from the text of the command line."""
    if choices := allowed_values(option):
        return check_choice(option_name(option.name), value, choices)
    if value is not None and _is_sequence(option_type(option)):
        return _parse_sequence(value, option_name(option.name))
    return value


def _is_sequence(hint: Any) -> bool:
    """Return whether a type is a sequence, optionally with None."""
    parts = get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return any(get_origin(part) is Sequence for part in parts)


def _parse_sequence(text: str, name: str) -> list[Any]:
    """Return distinct names from text such as "a,b"; as integers if all names are integers."""
    import numpy as np

    from crowdfuse.labels.ids import parse_integer_ids, refuse_repeats

    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise ValueError(f"{name} must be names separated by commas, got {text!r}")
    refuse_repeats(np.array(names, dtype=object), name)
    parsed: list[Any] = parse_integer_ids(np.array(names, dtype=object)).tolist()
    return parsed

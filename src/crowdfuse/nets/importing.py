"""What users name as `module:name`: their own code, or anything installed. To import a module is to run its code."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from crowdfuse.checks.choices import did_you_mean


def import_named(name: str, what: str) -> Any:
    """The object that `module:name` names; `what` is what messages call it. The current folder is looked in first.

    >>> import_named("math:sqrt", "root")(9)
    3.0
    >>> import_named("math.sqrt", "root")
    Traceback (most recent call last):
    ...
    ValueError: root 'math.sqrt' is not module:callable, such as mine:resnet50 for resnet50 in mine.py
    """
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        raise ValueError(f"{what} {name!r} is not module:callable, such as mine:resnet50 for resnet50 in mine.py")
    if module_name.endswith(".py") or "/" in module_name or "\\" in module_name:
        as_module = Path(module_name.replace("\\", "/")).with_suffix("")
        raise ValueError(
            f"{what} {name!r}: before the colon stands a module, not a file; write {as_module.name}:{path}, "
            f"and start from the folder that {as_module.name}.py lies in"
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # where people keep a module of their own, as with python -m
    found = _import(module_name, f"{what} {name!r}")
    for part in path.split("."):
        if not hasattr(found, part):
            known = [other for other in dir(found) if not other.startswith("_")]
            raise ValueError(
                f"{what} {name!r}: {module_name} has no {part!r}{did_you_mean(part, known)}".removesuffix(".")
            )
        found = getattr(found, part)
    return found


def format_error(error: Exception) -> str:
    """What went wrong in code that is not ours.

    >>> format_error(KeyError("x"))
    "KeyError: 'x'"
    """
    return f"{type(error).__name__}: {error}"


def _import(module_name: str, said: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise ValueError(
                f"{said}: there is no module {missing!r}; install it, or start from the folder it lies in"
            ) from error
        raise ValueError(f"{said}: {module_name} needs the module {missing!r}, which is not installed") from error
    except Exception as error:  # it runs whatever code it holds
        raise ValueError(f"{said}: importing {module_name} failed: {format_error(error)}") from error

"""Import objects by an import path of the form `module:name`. Importing a module runs its code."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from crowdfuse.checks.choices import did_you_mean


def import_named(name: str, role: str) -> Any:
    """Import the object with the import path `module:name`. The current folder is searched first.

    Parameters
    ----------
    name : str
        Module and object, such as "mynets:resnet50". The object may be an attribute of another object, such as
        "mynets:Nets.small".
    role : str
        What error messages call the object, such as "backbone".

    Returns
    -------
    object : Any

    Raises
    ------
    ValueError
        If the name has another form, or the module or the object cannot be imported.

    Examples
    --------
    >>> import_named("math:sqrt", "root")(9)
    3.0
    >>> import_named("math.pi", "root")
    Traceback (most recent call last):
    ...
    ValueError: root 'math.pi' is not of the form module:callable; for example, 'mynets:net' stands for net in mynets.py
    """
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        raise ValueError(
            f"{role} {name!r} is not of the form module:callable; for example, 'mynets:net' stands for net in mynets.py"
        )
    if module_name.endswith(".py") or "/" in module_name or "\\" in module_name:
        as_module = Path(module_name.replace("\\", "/")).with_suffix("")
        raise ValueError(
            f"{role} {name!r}: the part before the colon must be a module, not a file; "
            f"write '{as_module.name}:{path}', and start Python in the folder that contains {as_module.name}.py"
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as python -m does, for the user's own modules
    imported = _import_module(module_name, f"{role} {name!r}")
    for part in path.split("."):
        if not hasattr(imported, part):
            known = [other for other in dir(imported) if not other.startswith("_")]
            raise ValueError(
                f"{role} {name!r}: {module_name} has no {part!r}{did_you_mean(part, known)}".removesuffix(".")
            )
        imported = getattr(imported, part)
    return imported


def format_error(error: Exception) -> str:
    """Return type and message of an error that was raised in code outside the library.

    >>> format_error(KeyError("x"))
    "KeyError: 'x'"
    """
    return f"{type(error).__name__}: {error}"


def _import_module(module_name: str, subject: str) -> Any:
    """Return the imported module; error messages start with `subject`."""
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise ValueError(
                f"{subject}: there is no module {missing!r}; install it, or start Python in the folder that contains it"
            ) from error
        raise ValueError(f"{subject}: {module_name} needs the module {missing!r}, which is not installed") from error
    except Exception as error:  # importing runs any code
        raise ValueError(f"{subject}: importing {module_name} failed: {format_error(error)}") from error

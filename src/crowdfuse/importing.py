"""What users name as `module:name`: their own code, imported and run."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from crowdfuse.choices import nearest


def import_named(named: str, what: str) -> Any:
    """The object that `module:name` names; the module may lie in the current folder.

    >>> import_named("math:sqrt", "--root")(9)
    3.0
    >>> import_named("math.sqrt", "--root")
    Traceback (most recent call last):
    ...
    ValueError: --root: 'math.sqrt' is not of the form module:name
    """
    module_name, colon, path = named.partition(":")
    if not (module_name and colon and path):
        raise ValueError(f"{what}: {named!r} is not of the form module:name")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does: the current folder comes first
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"{what}: the module {module_name!r} cannot be imported ({error})") from error
    for name in path.split("."):
        if not hasattr(found, name):
            known = [known for known in dir(found) if not known.startswith("_")]
            raise ValueError(f"{what}: {module_name!r} has no {path!r}{nearest(name, known)}")
        found = getattr(found, name)
    return found

"""Backbones from outside the library: anything that Python can import, and trusted `.pt2` files.

Both can run arbitrary code when they are loaded. Users know this for imports but not for `.pt2` files, so loading a
`.pt2` file must be allowed explicitly.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from crowdfuse.nets.importing import format_error, import_named

EXPORTED_SUFFIX = ".pt2"
PICKLE_SUFFIXES = (".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".bin", ".joblib")
WEIGHTS_ONLY_SUFFIXES = (".safetensors",)


def load_backbone(
    name: str, arguments: Mapping[str, Any] | None = None, *, trust_model: bool = False, role: str = "backbone"
) -> nn.Module:
    """Load a network by its import path `module:callable`, or from a `.pt2` file written by `torch.export.save`.

    Importing a module runs its code. Torch is seeded before the import, so that randomly initialized weights are the
    same every time.

    Parameters
    ----------
    name : str
        Either an import path "module:callable" of an `nn.Module` or of a function that returns one, or the path of a
        `.pt2` file.
    arguments : mapping of str to value, optional
        Keyword arguments for the function that `name` imports. Not allowed if `name` imports an `nn.Module` or is the
        path of a `.pt2` file.
    trust_model : bool, default=False
        Whether to allow loading a `.pt2` file. Loading such a file can run code hidden in it.
    role : str, default="backbone"
        Word for the network in error messages.

    Returns
    -------
    backbone : nn.Module

    Raises
    ------
    FileNotFoundError
        If the `.pt2` file does not exist.
    ValueError
        If `name` is neither an import path nor a `.pt2` file, if importing or calling fails, if the result is not an
        `nn.Module`, or if `trust_model` does not fit: a `.pt2` file needs True, and an import path needs False.

    Examples
    --------
    >>> load_backbone("torch.nn:Linear", {"in_features": 3, "out_features": 2})
    Linear(in_features=3, out_features=2, bias=True)
    """
    suffix = Path(name).suffix.lower()
    if suffix == EXPORTED_SUFFIX:
        return _load_exported(Path(name), arguments or {}, trust_model, role)
    if suffix in PICKLE_SUFFIXES:
        raise ValueError(
            f"{role} {name}: {suffix} files are pickles, and opening one can run any code. {_function_hint(name)}"
        )
    if suffix in WEIGHTS_ONLY_SUFFIXES:
        raise ValueError(f"{role} {name}: {suffix} files hold weights but no network. {_function_hint(name)}")
    if trust_model:
        raise ValueError(
            f"--trust-model (trust_model=True) can be used only with {EXPORTED_SUFFIX} files, but {name} is not such a "
            "file; leave out --trust-model"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return _as_module(import_named(name, role), name, dict(arguments or {}), role)


def _function_hint(name: str) -> str:
    """Return the advice to write a function that builds the network and loads the file."""
    return (
        "Write a function that builds the network and loads its weights, and pass the import path of this function. "
        f"For example, pass 'mynets:net' for a function net in mynets.py that returns an nn.Module with the weights of "
        f"{Path(name).name}"
    )


def _load_exported(path: Path, arguments: Mapping[str, Any], trust_model: bool, role: str) -> nn.Module:
    """Return the module in a `.pt2` file."""
    if not path.is_file():
        raise FileNotFoundError(f"{role} {path}: there is no such file; check the path")
    if not trust_model:
        raise ValueError(
            f"{role} {path}: loading a {EXPORTED_SUFFIX} file can run code hidden in it. If you made the file, "
            "or trust its author, pass --trust-model (trust_model=True)"
        )
    if arguments:
        raise ValueError(
            f"{role} {path}: a {EXPORTED_SUFFIX} file takes no arguments; leave out {', '.join(arguments)}"
        )
    if not zipfile.is_zipfile(path):  # otherwise torch prints a traceback of its own first
        raise ValueError(f"{role} {path} was not written by torch.export.save, or is damaged; save it again")
    try:
        return torch.export.load(path).module()
    except Exception as error:  # torch raises many types for bad files
        raise ValueError(f"{role} {path} cannot be loaded: {format_error(error)}") from error


def _as_module(imported: Any, name: str, arguments: dict[str, Any], role: str) -> nn.Module:
    """Return the imported module, or the module that the imported function returns."""
    if isinstance(imported, nn.Module):
        if arguments:
            raise ValueError(
                f"{role} {name!r} is already a network and takes no arguments; leave out {', '.join(arguments)}"
            )
        return imported
    if not callable(imported):
        raise ValueError(
            f"{role} {name!r} must be an nn.Module or a callable that returns one, got {type(imported).__name__}"
        )
    try:
        module = imported(**arguments)
    except Exception as error:  # it is the user's code
        given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise ValueError(f"{role} {name!r}: calling it with ({given}) failed: {format_error(error)}") from error
    if not isinstance(module, nn.Module):
        raise ValueError(f"{role} {name!r} must return an nn.Module, got {type(module).__name__}")
    return module

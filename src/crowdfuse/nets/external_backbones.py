"""Backbones from outside, by name: whatever Python can import, and, where the user trusts it, a `.pt2` file.

Both can run code. Of an import everybody knows that; of a `.pt2` file few do, so that it has to be asked for.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from crowdfuse.nets.importing import format_error, import_named

EXPORTED = ".pt2"
PICKLES = (".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".bin", ".joblib")
WEIGHTS = (".safetensors",)


def load_backbone(name: str, arguments: Mapping[str, Any] | None = None, *, trust_model: bool = False) -> nn.Module:
    """The network that `module:callable` names, or that a `.pt2` file of `torch.export.save` holds.

    The module is imported. What is found in it is an `nn.Module`, or is called with `arguments` and returns one.
    Torch is seeded before that, so that a network without trained weights is at least the same one every time.

    >>> load_backbone("torch.nn:Linear", {"in_features": 3, "out_features": 2})
    Linear(in_features=3, out_features=2, bias=True)
    """
    ending = Path(name).suffix.lower()
    if ending == EXPORTED:
        return _exported(Path(name), arguments or {}, trust_model)
    if ending in PICKLES:
        raise ValueError(
            f"backbone {name}: {ending} files are pickles, and opening one can run any code. {_by_hand(name)}"
        )
    if ending in WEIGHTS:
        raise ValueError(
            f"backbone {name}: {ending} files hold weights, but not the network they are for. {_by_hand(name)}"
        )
    if trust_model:
        raise ValueError(f"--trust-model (trust_model=True) is for {EXPORTED} files, and {name} is none; leave it out")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return _built(import_named(name, "backbone"), name, dict(arguments or {}))


def _by_hand(name: str) -> str:
    return (
        "Write a function that builds the network and loads its weights, and name that: "
        f"net in mynets.py, which returns an nn.Module with the weights of {Path(name).name}, is mynets:net"
    )


def _exported(path: Path, arguments: Mapping[str, Any], trust_model: bool) -> nn.Module:
    if not path.is_file():
        raise FileNotFoundError(f"backbone {path}: no such file")
    if not trust_model:
        raise ValueError(
            f"backbone {path}: loading a {EXPORTED} file can run code that is hidden in it. If it is your own, or from "
            "somebody whose code you would run, say --trust-model (trust_model=True)"
        )
    if arguments:
        raise ValueError(f"backbone {path}: a {EXPORTED} file takes no arguments, got {', '.join(arguments)}")
    if not zipfile.is_zipfile(path):  # torch would print a traceback of its own first
        raise ValueError(f"backbone {path} was not written by torch.export.save, or is damaged")
    try:
        return torch.export.load(path).module()
    except Exception as error:  # whatever torch stumbles over in the file
        raise ValueError(f"backbone {path} cannot be loaded: {format_error(error)}") from error


def _built(found: Any, name: str, arguments: dict[str, Any]) -> nn.Module:
    if isinstance(found, nn.Module):
        if arguments:
            raise ValueError(
                f"backbone {name!r} is a network already and takes no arguments, got {', '.join(arguments)}"
            )
        return found
    if not callable(found):
        raise ValueError(
            f"backbone {name!r} must be an nn.Module or a callable that returns one, got {type(found).__name__}"
        )
    try:
        made = found(**arguments)
    except Exception as error:  # it is the user's own code
        said = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise ValueError(f"backbone {name!r}: calling it with ({said}) failed: {format_error(error)}") from error
    if not isinstance(made, nn.Module):
        raise ValueError(f"backbone {name!r} must return an nn.Module, got {type(made).__name__}")
    return made

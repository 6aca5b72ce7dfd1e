"""Every public name has a complete numpydoc docstring: parameters that exist, with types, and what is returned."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import crowdfuse
from crowdfuse.estimators.docstrings import split_entries, split_sections

PARAMETER_SECTIONS = ("Parameters", "Other Parameters")
FIELD_SECTIONS = (*PARAMETER_SECTIONS, "Attributes")  # the fields of a dataclass or named tuple are either


def public_objects() -> Iterator[tuple[str, Any]]:
    """Yield what crowdfuse and its packages export, each object once."""
    packages = [info.name for info in pkgutil.iter_modules(crowdfuse.__path__, "crowdfuse.") if info.ispkg]
    seen: set[int] = set()
    for module_name in ("crowdfuse", *packages):
        module = importlib.import_module(module_name)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if id(value) not in seen and (inspect.isfunction(value) or inspect.isclass(value)):
                seen.add(id(value))
                yield f"{module_name}.{name}", value


def public_members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class that crowdfuse defines, inherited ones included."""
    for name in dir(cls):
        owner = next((base for base in cls.__mro__ if name in vars(base)), object)
        if name.startswith("_") or not owner.__module__.startswith("crowdfuse"):
            continue
        member = vars(owner)[name]
        member = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if isinstance(member, (types.FunctionType, property)):
            yield name, member


def collect() -> dict[str, Any]:
    """Return every public function, class, method and property by its name; an inherited member only once."""
    found: dict[str, Any] = {}
    for name, value in public_objects():
        if not getattr(value, "__module__", "").startswith("crowdfuse"):
            continue
        found[name] = value
        if inspect.isclass(value):
            known = {id(other) for other in found.values()}
            found |= {f"{name}.{part}": one for part, one in public_members(value) if id(one) not in known}
    return found


def documented_names(sections: dict[str, str], titles: tuple[str, ...]) -> dict[str, str]:
    """Return the first line of each entry, by the names of parameters that it documents."""
    heads: dict[str, str] = {}
    for title in titles:
        for names, text in split_entries(sections.get(title, "")).items():
            heads |= {name.strip().lstrip("*"): text.split("\n")[0] for name in names.split(",")}
    return heads


def parameter_problems(names: set[str], sections: dict[str, str], *, fields: bool) -> list[str]:
    """Return what is wrong with the documented parameters."""
    heads = documented_names(sections, FIELD_SECTIONS if fields else PARAMETER_SECTIONS)
    problems = [f"parameter {name} is not documented" for name in sorted(names - set(heads))]
    strictly = documented_names(sections, PARAMETER_SECTIONS)
    problems += [f"documented parameter {name} does not exist" for name in sorted(set(strictly) - names)]
    return problems + [f"{name} has no type" for name, head in heads.items() if " : " not in head]


def has_result(function: Callable[..., Any]) -> bool:
    """Return whether the annotation says that something is returned."""
    return str(inspect.signature(function).return_annotation) not in ("None", "NoReturn", "Never", str(inspect._empty))


def problems_of(value: Any) -> list[str]:
    """Return what is wrong with the docstring of a function, class or property."""
    docstring = inspect.cleandoc(value.__doc__ or "")
    summary, sections = split_sections(docstring)
    if not summary:
        return ["no docstring"]
    if isinstance(value, property) or (inspect.isclass(value) and issubclass(value, BaseException)):
        return []
    if inspect.isclass(value):
        own_signature = value.__init__ is not object.__init__ or value.__new__ is not object.__new__
        signature = inspect.signature(value) if own_signature else inspect.Signature()
        if is_catch_all(signature):  # the constructor of nn.Module or Protocol
            signature = inspect.Signature()
        return parameter_problems(parameter_names(signature), sections, fields=True)
    found = parameter_problems(parameter_names(inspect.signature(value)) - {"self", "cls"}, sections, fields=False)
    if has_result(value) and not {"Returns", "Yields"} & set(sections):
        found.append("no Returns section")
    return found


def is_catch_all(signature: inspect.Signature) -> bool:
    """Return whether a signature is (*args, **kwargs)."""
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    return kinds == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]


def parameter_names(signature: inspect.Signature) -> set[str]:
    """Return the names of the parameters that a caller can pass."""
    return {name for name in signature.parameters if not name.startswith("_")}


OBJECTS = collect()


@pytest.mark.parametrize("name", OBJECTS)
def test_the_docstring_is_complete(name: str) -> None:
    assert problems_of(OBJECTS[name]) == []


@pytest.mark.parametrize("name", ["FusionClassifier", "GatedClassifier"])
def test_help_shows_every_parameter_with_its_default(name: str) -> None:
    cls = getattr(crowdfuse, name)
    heads = documented_names(split_sections(inspect.getdoc(cls) or "")[1], ("Parameters",))
    signature = inspect.signature(cls)
    assert set(heads) == set(signature.parameters)
    for parameter in signature.parameters.values():
        default = f'"{parameter.default}"' if isinstance(parameter.default, str) else repr(parameter.default)
        assert heads[parameter.name].endswith(f"default={default}")


def undocumented(a: int, b: int) -> int:
    """Add.

    Parameters
    ----------
    a
        First.
    c : int
        Third.
    """
    return a + b


def test_the_check_finds_each_kind_of_problem() -> None:
    assert problems_of(undocumented) == [
        "parameter b is not documented",
        "documented parameter c does not exist",
        "a has no type",
        "no Returns section",
    ]

"""Data flows one way: a module imports only from its own room or from rooms above it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import crowdfuse

ROOMS = [
    [
        "choices",
        "importing",
        "ids",
        "triples",
        "summary",
        "annotations",
        "alignment",
        "held_out",
        "choosing",
        "diagnostics",
    ],
    ["aggregation"],
    ["files", "pools", "inputs", "image_files", "io"],
    ["functional", "nets"],
    ["batches", "methods"],
    [
        "processes",
        "lazy_optimizers",
        "recipes",
        "checkpoints",
        "progress",
        "launching",
        "prediction",
        "training",
        "embedding",
    ],
    ["quality", "next_labels", "inspection", "classifier", "estimators", "registry", "persistence"],
    ["synthesis", "datasets", "experiments"],
    ["plots", "report"],
    ["runs", "review", "cli", "__main__"],
]
FLOOR = {name: floor for floor, room in enumerate(ROOMS) for name in room}
SOURCE = Path(crowdfuse.__file__).parent


def rooms_imported(path: Path) -> set[str]:
    """The rooms a file imports when it is loaded: not inside functions, nor for type checking alone."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "crowdfuse":
            parts = (node.module or "").split(".")
            names |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return names - {"__version__", "Annotations"}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_up(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room == "__init__":
        return
    assert room in FLOOR, f"{room} has no room: give it one here and in CONTRIBUTING.md"
    below = {name for name in rooms_imported(path) if FLOOR[name] > FLOOR[room]}
    assert not below, f"{path.name} imports from below: {below}"


def test_every_room_exists() -> None:
    assert [name for name in FLOOR if not (SOURCE / name).is_dir() and not (SOURCE / f"{name}.py").exists()] == []

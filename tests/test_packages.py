"""A module imports only from its own package or from packages above it in the table of CONTRIBUTING.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import crowdfuse

SOURCE = Path(crowdfuse.__file__).parent
CONTRIBUTING = Path(__file__).parent.parent / "CONTRIBUTING.md"

ALLOWED = {
    ("labels/annotations.py", "io"): "people look for `Annotations.read` on the class; the readers are in io",
    ("estimators/inspection.py", "report"): "people look for `clf.report()` on the classifier; the report is in report",
}
"""Imports from a package below, each with the reason."""


def packages_in_table() -> list[str]:
    """The packages in the order of the table under "Packages" in CONTRIBUTING.md."""
    section = CONTRIBUTING.read_text(encoding="utf-8").split("## Packages")[1].split("\n## ")[0]
    first_cells = re.findall(r"^\| (`[^|]*`) \|", section, flags=re.MULTILINE)
    return [name.rstrip("/").removesuffix(".py") for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)]


PACKAGES = packages_in_table()


def imported_packages(path: Path) -> set[str]:
    """The packages of crowdfuse that a file imports, anywhere in it; imports for type checking alone do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "crowdfuse":
            parts = (node.module or "").split(".")
            names |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("crowdfuse.")}
    return names - {"__version__"}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_packages_above(path: Path) -> None:
    place = path.relative_to(SOURCE).as_posix()
    package = place.split("/")[0].removesuffix(".py")
    if package in ("__init__", "__main__"):
        return
    assert package in PACKAGES, f"{package} is not in the table of CONTRIBUTING.md"
    imported = imported_packages(path)
    assert imported <= set(PACKAGES), f"{place} imports {imported - set(PACKAGES)}, which is not a package"
    below = {name for name in imported if PACKAGES.index(name) > PACKAGES.index(package)}
    allowed = {name for where, name in ALLOWED if where == place}
    assert below == allowed, f"{place} imports from below: {below}; allowed: {allowed}"


def test_the_table_lists_exactly_the_packages_there_are() -> None:
    found = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    found |= {path.stem for path in SOURCE.glob("*.py") if path.stem not in ("__init__", "__main__")}
    assert found == set(PACKAGES)
    assert len(PACKAGES) == len(set(PACKAGES))


def test_every_exception_names_a_file_that_exists() -> None:
    assert [where for where, _ in ALLOWED if not (SOURCE / where).exists()] == []

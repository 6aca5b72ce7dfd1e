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
    ("labels/annotations.py", "io"): "`Annotations.read` is a method for convenience; the readers are in io",
    ("estimators/inspection.py", "report"): "`clf.report()` is a method for convenience; the report is in report",
}
"""Allowed imports from a package below: (file, imported package) and the reason."""


def packages_in_table() -> list[str]:
    """Return the packages in the order of the table under "Packages" in CONTRIBUTING.md."""
    section = CONTRIBUTING.read_text(encoding="utf-8").split("## Packages")[1].split("\n## ")[0]
    first_cells = re.findall(r"^\| (`[^|]*`) \|", section, flags=re.MULTILINE)
    return [name.rstrip("/").removesuffix(".py") for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)]


PACKAGES = packages_in_table()


def imported_packages(path: Path) -> set[str]:
    """Return the packages of crowdfuse that a file imports, lazily or not, except under `TYPE_CHECKING`."""
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
    allowed = {name for file, name in ALLOWED if file == place}
    assert below == allowed, f"{place} imports from packages below: {below}; allowed: {allowed}"


def test_the_table_lists_exactly_the_existing_packages() -> None:
    existing = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    existing |= {path.stem for path in SOURCE.glob("*.py") if path.stem not in ("__init__", "__main__")}
    assert existing == set(PACKAGES)
    assert len(PACKAGES) == len(set(PACKAGES))


def test_every_exception_names_a_file_that_exists() -> None:
    assert [file for file, _ in ALLOWED if not (SOURCE / file).exists()] == []

"""Class names that differ only by case or spaces."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.io.column_encoding import Column
from crowdfuse.io.tables import TableError
from crowdfuse.labels.ids import format_count, format_names, similar_names, without_case_and_spaces

MAX_SHOWN_GROUPS = 5


def merge_similar_classes(
    label: Column, classes: NDArray[Any] | None, merge: bool, where: str
) -> tuple[Column, list[str]]:
    """Give classes that differ only by case or spaces one spelling, and return a note; without `merge`, raise an error.

    The spelling is taken from the given classes. If there are none, it is the most frequent spelling. Classes that the
    user lists are never an error, however similar they are.
    """
    if label.names.dtype.kind != "O" or (classes is not None and (not merge or classes.dtype.kind != "O")):
        return label, []
    counts = dict(zip(label.names, np.bincount(label.codes[label.codes >= 0], minlength=len(label.names)), strict=True))
    groups = similar_names(label.names)
    if groups and not merge:
        shown = [
            " and ".join(f"{format_names([name])} ({format_count(int(counts[name]), 'label')})" for name in group)
            for group in groups[:MAX_SHOWN_GROUPS]
        ]
        raise TableError(
            f"{where}: classes that differ only by case or spaces: {'; '.join(shown)}. If they are the same class, "
            "use merge_similar=True (--merge-similar on the command line). If not, list all classes with classes= "
            "(--classes)"
        )
    spelling = {name: max(group, key=lambda one: (counts[one], one)) for group in groups for name in group}
    if classes is not None:
        ambiguous = {name for group in similar_names(classes) for name in group}
        by_key = {without_case_and_spaces(name): name for name in classes if name not in ambiguous}
        spelling = {name: by_key.get(without_case_and_spaces(name), name) for name in label.names}
    changed = {name: new for name, new in spelling.items() if name != new}
    if not changed:
        return label, []
    listed = ", ".join(f"{old!r} as {new!r}" for old, new in list(changed.items())[:MAX_SHOWN_GROUPS])
    more = "" if len(changed) <= MAX_SHOWN_GROUPS else f" ({len(changed):,} spellings in all)"
    renamed = np.array([changed.get(name, name) for name in label.names], object)
    return label.renamed(renamed), [f"classes that differ only by case or spaces were merged: {listed}{more}"]

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
    """The label column with one spelling for classes that differ only by case or spaces, and a note; else an error.

    The spelling is that of the given classes or, without them, the most frequent one. Without `merge`, such classes are
    an error, except that given classes may be as similar as the user likes.
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
            f"{where}: classes that differ only by case or spaces: {'; '.join(shown)}. If they are the same class, use "
            "merge_similar=True (--merge-similar on the command line). If not, name all classes with classes= "
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

"""Labels as people write them: words for a missing label, and class names that differ only by case or spaces."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.io.column_encoding import Column
from crowdfuse.io.tables import TableError
from crowdfuse.labels.ids import format_count, format_names, ids_to_strings, similar_names, without_case_and_spaces

MISSING_LABELS = frozenset(("NA", "N/A", "n/a", "nan", "NaN", "#N/A", "<NA>"))
MAX_SHOWN_GROUPS = 5


def drop_missing_labels(label: Column, classes: NDArray[Any] | None) -> tuple[Column, list[str]]:
    """The label column without words for a missing label that are not among the given classes, and a note on them.

    >>> column, notes = drop_missing_labels(Column(np.array(["cat", "NA"], object), np.array([0, 1, 1])), None)
    >>> column.names.tolist(), column.codes.tolist()
    (['cat'], [0, -1, -1])
    >>> notes
    ["2 labels count as missing: 'NA' (2); if this is a class, name all classes with classes= (--classes)"]
    """
    if label.names.dtype.kind != "O":
        return label, []
    given = frozenset() if classes is None else frozenset(ids_to_strings(classes))
    is_missing = np.array([name.strip() in MISSING_LABELS and name not in given for name in label.names], bool)
    if not is_missing.any():
        return label, []
    counts = np.bincount(label.codes[label.codes >= 0], minlength=len(label.names))
    listed = ", ".join(f"{format_names([label.names[at]])} ({counts[at]:,})" for at in np.flatnonzero(is_missing))
    n_missing = int(counts[is_missing].sum())
    note = (
        f"{format_count(n_missing, 'label')} {'counts' if n_missing == 1 else 'count'} as missing: {listed}; if this "
        "is a class, name all classes with classes= (--classes)"
    )
    position = np.append(np.where(is_missing, -1, np.cumsum(~is_missing) - 1), -1).astype(np.int32)
    return Column(label.names[~is_missing], position[label.codes]), [note]


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

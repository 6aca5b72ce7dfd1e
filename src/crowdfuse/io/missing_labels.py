"""Words that mean "no label was given", such as "N/A", in files of labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.io.column_encoding import Column
from crowdfuse.labels.ids import format_count, format_names, ids_to_strings

MISSING_LABELS = frozenset(("NA", "N/A", "n/a", "nan", "NaN", "#N/A", "<NA>"))


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

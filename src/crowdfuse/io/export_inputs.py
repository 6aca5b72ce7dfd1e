"""Read the inputs (texts or images of the items) from the file that holds the labels."""

from __future__ import annotations

from pathlib import Path

from crowdfuse.io.item_fields import ExportInputs, choose_inputs
from crowdfuse.io.labels import read_label_file
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.reading import Reading


def read_export_inputs(path: Path, reading: Reading) -> ExportInputs | None:
    """Read the texts or image paths of the items from a file of labels.

    Parameters
    ----------
    path : Path
        A file of labels in any format that `crowdfuse.io.read_labels` reads.
    reading : Reading
        The options for reading labels. `reading.text` is the name of the field that holds the inputs; if it is None,
        the field is detected.

    Returns
    -------
    inputs : ExportInputs or None
        The item ids, the kind of the inputs ("text" or "image"), the texts or image paths, and the name of the field
        that holds them. None if the file contains neither texts nor image paths.

    Raises
    ------
    TableError
        If the labels cannot be read, if the field of the inputs cannot be detected because several fields may hold
        them, or if an item has two different inputs.

    See Also
    --------
    read_labels_and_inputs : Also reads the labels.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "labels.csv"
    >>> _ = path.write_text("item,text,annotator,label\\n7,so good,ada,pos\\n7,so good,bob,neg\\n")
    >>> read_export_inputs(path, Reading())
    ExportInputs(items=array([7]), kind='text', values=['so good'], field='text')
    """
    return read_labels_and_inputs(path, reading)[1]


def read_labels_and_inputs(path: Path, reading: Reading) -> tuple[Annotations, ExportInputs | None]:
    """Read labels and, in the same pass over the file, the texts or image paths of the items.

    Parameters
    ----------
    path : Path
        A file of labels in any format that `crowdfuse.io.read_labels` reads.
    reading : Reading
        The options for reading labels. `reading.text` is the name of the field that holds the inputs; if it is None,
        the field is detected.

    Returns
    -------
    annotations : Annotations
        The labels, as returned by `crowdfuse.io.read_labels`.
    inputs : ExportInputs or None
        The inputs, as returned by `read_export_inputs`.

    Raises
    ------
    TableError
        If the labels cannot be read, if the field of the inputs cannot be detected because several fields may hold
        them, or if an item has two different inputs.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "labels.csv"
    >>> _ = path.write_text("image,annotator,label\\ncats/1.png,ada,cat\\n")
    >>> annotations, inputs = read_labels_and_inputs(path, Reading())
    >>> annotations.n_labels, inputs.kind, inputs.values
    (1, 'image', ['cats/1.png'])
    """
    found = read_label_file(path, reading, with_fields=True)
    return found.annotations, choose_inputs(found.fields, found.annotations.items, reading.text)

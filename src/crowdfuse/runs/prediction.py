"""Predict the classes of new inputs with the model of a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from crowdfuse.encoders.images import DEFAULT_IMAGE_SIZE
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.persistence import load
from crowdfuse.io.features import LoadedInputs, read_features, read_image_files, read_texts
from crowdfuse.io.files import refuse_existing, write_csv
from crowdfuse.labels.ids import ids_to_strings
from crowdfuse.quality.consensus_file import load_consensus
from crowdfuse.runs.folder import POSTERIOR_FILE, RUN_SETTINGS_FILE


def predict_file(
    run: Path,
    inputs: Path,
    out: Path,
    *,
    proba: bool,
    item: str | None,
    image_size: int | None,
    force: bool,
    text: str | None = None,
) -> int:
    """Predict the class of every item in a file or folder of inputs, and write the predictions to a CSV file.

    An item that the run knows has the same id as in the tables of the run, so that they can be joined: the id as it is
    written in the labels. Any other image has its path relative to the folder as id.

    Parameters
    ----------
    run : Path
        A run folder, or the `model` folder in it.
    inputs : Path
        Features (`.npy`, `.npz`, `.csv`, `.tsv`, `.parquet`), a table of texts or a folder of images.
    out : Path
        The CSV file to write, with columns `item`, `label` and `confidence`.
    proba : bool
        Whether to add a column `p_<class>` for each class, with its probability.
    item : str or None
        Name of the column with the item ids. None uses a column with a usual name.
    image_size : int or None
        Images are resized to this many pixels per side. None uses the size used in training.
    force : bool
        Whether to replace `out` if it exists.
    text : str or None, default=None
        Name of the column of texts. None finds it by its name or content.

    Returns
    -------
    n_items : int
        The number of predictions.

    Raises
    ------
    FileNotFoundError
        If the run folder or its model does not exist.
    FileExistsError
        If `out` exists and `force` is false.
    ValueError
        If `out` and `inputs` are the same file, or if the inputs do not have the shape that the model was trained on.
    """
    refuse_existing(out, force=force)
    if out.exists() and out.resolve() == inputs.resolve():
        raise ValueError(f"{out} is the file of the inputs; choose another name for --out")
    if out.is_dir():
        raise IsADirectoryError(f"{out} is a folder; name a file to write")
    if not run.exists():
        raise FileNotFoundError(f"{run}: no such run folder; crowdfuse fit makes one")
    model = run / "model" if (run / "model").is_dir() else run
    if model == run and (run / RUN_SETTINGS_FILE).exists():
        raise FileNotFoundError(f"{run} has no model yet; finish it with crowdfuse fit --resume {run}")
    classifier = load(model)
    columns = getattr(classifier, "feature_names_in_", None)
    if classifier.encoder_ is not None and classifier.encoder_.reads == "texts":
        loaded = read_texts(inputs, item=item, text=text, needs_items=False)
    elif classifier.encoder_ is not None:
        loaded = read_model_images(classifier, inputs)
    else:
        loaded = read_features(
            inputs, item=item, image_size=image_size, image_shape=classifier.input_shape_, columns=columns
        )
    if columns is not None:
        # the columns have already been selected by name, so scikit-learn need not warn that the array has no names
        del classifier.feature_names_in_
    probabilities = classifier.predict_proba(loaded.inputs)
    best = probabilities.argmax(1)
    header = ["item", "label", "confidence"]
    if proba:
        header += [f"p_{name}" for name in classifier.classes_]
    write_csv(
        out,
        header,
        (
            (name, classifier.classes_[k], f"{row[k]:.6f}", *(f"{p:.6f}" for p in (row if proba else ())))
            for name, k, row in zip(_item_ids(loaded, model.parent), best, probabilities, strict=True)
        ),
    )
    return len(best)


def read_model_images(classifier: CrowdClassifier, folder: Path) -> LoadedInputs:
    """Read a folder of images as a fitted classifier expects them.

    Parameters
    ----------
    classifier : CrowdClassifier
        A classifier that was trained on images, with or without an encoder.
    folder : Path
        The folder.

    Returns
    -------
    loaded : LoadedInputs
    """
    if classifier.encoder_ is None:
        return read_features(folder, image_shape=classifier.input_shape_)
    return read_image_files(folder, DEFAULT_IMAGE_SIZE)  # the encoder changes the size


def _item_ids(loaded: LoadedInputs, run: Path) -> NDArray[Any]:
    """Return the id of each row as in the tables of the run, which may write the id of an image without its ending."""
    if loaded.short_names is None or not (run / POSTERIOR_FILE).exists():
        return loaded.items
    known = set(ids_to_strings(load_consensus(run / POSTERIOR_FILE).items).tolist())
    count = Counter(loaded.short_names.tolist())
    ids = loaded.items.copy()
    for row, (name, short) in enumerate(zip(loaded.items, loaded.short_names, strict=True)):
        if name not in known and short in known and count[short] == 1:
            ids[row] = short
    return ids

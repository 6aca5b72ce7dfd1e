"""Predict the classes of new inputs with the model of a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from crowdfuse.encoders.images import DEFAULT_IMAGE_SIZE
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.persistence import load
from crowdfuse.io.export_loading import load_export_inputs
from crowdfuse.io.features import LoadedInputs, read_features, read_image_files, read_texts
from crowdfuse.io.file_content import file_ending
from crowdfuse.io.files import refuse_existing, write_csv
from crowdfuse.io.gold import column_beside
from crowdfuse.io.new_items import holds_records, read_new_items
from crowdfuse.io.tables import TABLE_ENDINGS
from crowdfuse.io.texts import Texts
from crowdfuse.labels.ids import ids_to_strings
from crowdfuse.labels.reading import Reading
from crowdfuse.quality.consensus_file import POSTERIOR_FILE, load_consensus
from crowdfuse.quality.prediction_limits import prediction_limitations
from crowdfuse.runs.encoded_inputs import are_encoded_texts
from crowdfuse.runs.folder import RUN_SETTINGS_FILE, read_job


class WrittenPredictions(NamedTuple):
    """What `predict_file` has written.

    Attributes
    ----------
    n_items : int
        The number of predictions.
    limitations : tuple of str
        Known reasons not to rely on the predictions or on their confidence, one sentence each.
    """

    n_items: int
    limitations: tuple[str, ...]


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
) -> WrittenPredictions:
    """Predict the class of every item in a file or folder of inputs, and write the predictions to a CSV file.

    The column `item` holds the ids as they are written in the labels of the run, so that the predictions can be joined
    with the tables of the run, such as `consensus.csv`. If an image is not among the items of the run, its id is its
    path relative to the folder. If a file of texts has no ids, the row numbers are the ids. There is one exception: if
    the ids in the run are the texts themselves, the new texts are the ids.

    Parameters
    ----------
    run : Path
        A run folder, or the `model` folder in it.
    inputs : Path
        One of these:

        - a file of features (`.npy`, `.npz`, `.csv`, `.tsv`, `.xlsx`, `.parquet`);
        - a table of texts;
        - a folder of images;
        - an export of a labelling tool, or a table, with the texts or image paths of the items. Labels in it are
          ignored.
    out : Path
        The CSV file to write, with columns `item`, `label` and `confidence`.
    proba : bool
        Whether to add a column `p_<class>` for each class, with its probability.
    item : str or None
        Name of the column with the item ids. If None, the name that was given for the labels of the run (if any) is
        tried first. If the inputs have no column with this name, a column with a usual name is used, such as item.
    image_size : int or None
        Images are resized to this many pixels per side. If None, the size used in training.
    force : bool
        Whether to replace `out` if it exists.
    text : str or None, default=None
        Name of the column of texts. If None, the name that was given for training (if any) is tried first. If the
        inputs have no column with this name, the column is detected by its name or content.

    Returns
    -------
    written : WrittenPredictions
        The number of predictions, and their limitations.

    Raises
    ------
    FileNotFoundError
        If the run folder or its model does not exist.
    FileExistsError
        If `out` exists and `force` is false.
    ValueError
        If `out` and `inputs` are the same file, or if the inputs do not have the shape of the training inputs.
    """
    refuse_existing(out, force=force)
    if out.exists() and out.resolve() == inputs.resolve():
        raise ValueError(f"{out} is the file of the inputs; choose another name for --out")
    if out.is_dir():
        raise IsADirectoryError(f"{out} is a folder; give the name of a file")
    if not run.exists():
        raise FileNotFoundError(f"{run}: no such run folder; create a run folder with 'crowdfuse fit'")
    model = run / "model" if (run / "model").is_dir() else run
    if model == run and (run / RUN_SETTINGS_FILE).exists():
        raise FileNotFoundError(f"{run} has no model yet; finish the run with: crowdfuse fit --resume {run}")
    classifier = load(model)
    columns = getattr(classifier, "feature_names_in_", None)
    reading = read_job(model.parent)[0].reading if (model.parent / RUN_SETTINGS_FILE).exists() else Reading()
    item, text = item or _field_beside(inputs, reading.item), text or _field_beside(inputs, reading.text)
    loaded = _read_inputs(classifier, inputs, item, text, image_size, columns)
    if columns is not None:
        # the columns have already been selected by name, so scikit-learn's warning about missing names is not needed
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
    return WrittenPredictions(len(best), _limitations(classifier, model.parent))


def _limitations(classifier: CrowdClassifier, run: Path) -> tuple[str, ...]:
    """Return what speaks against the predictions: what the run measured, if it is there, and what the model knows."""
    of_run = prediction_limitations(load_consensus(run)) if (run / POSTERIOR_FILE).exists() else ()
    return (*of_run, *classifier.training_limitations())


def _read_inputs(
    classifier: CrowdClassifier, path: Path, item: str | None, text: str | None, image_size: int | None, columns: Any
) -> LoadedInputs:
    """Return the inputs of a file or folder as the classifier expects them."""
    encoder, shape = classifier.encoder_, classifier.input_shape_
    reads_texts = encoder is not None and encoder.reads == "texts"
    reads_images = len(shape) > 1 if encoder is None else encoder.reads == "images"
    is_image_table = reads_images and path.is_file() and file_ending(path) in TABLE_ENDINGS
    if (reads_texts or reads_images) and path.exists() and (holds_records(path) or is_image_table):
        found = read_new_items(path, item=item, text=text)
        files_of_size = None if encoder is None else DEFAULT_IMAGE_SIZE
        return load_export_inputs(found, path, image_size=image_size, image_shape=shape, files_of_size=files_of_size)
    if reads_texts:
        return read_texts(path, item=item, text=text, needs_items=False)
    if encoder is not None:
        return read_model_images(classifier, path)
    return read_features(path, item=item, image_size=image_size, image_shape=shape, columns=columns)


def _field_beside(path: Path, name: str | None) -> str | None:
    """Return the field name that was given for the labels of the run, if the file of inputs has this field."""
    return column_beside(path, name) if path.is_file() else None


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
    """Return the id of each row as in the tables of the run.

    The tables may have the id of an image without its ending, or the texts themselves as ids.
    """
    if not (run / POSTERIOR_FILE).exists() or (loaded.has_ids and loaded.short_names is None):
        return loaded.items
    items = load_consensus(run).items
    if loaded.short_names is None:
        is_text = isinstance(loaded.inputs, Texts) and are_encoded_texts(items, run)
        return loaded.inputs.values if is_text else loaded.items
    known = set(ids_to_strings(items).tolist())
    count = Counter(loaded.short_names.tolist())
    ids = loaded.items.copy()
    for row, (name, short) in enumerate(zip(loaded.items, loaded.short_names, strict=True)):
        if name not in known and short in known and count[short] == 1:
            ids[row] = short
    return ids

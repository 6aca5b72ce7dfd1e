"""Predictions of a run's model for new inputs."""

from __future__ import annotations

from pathlib import Path

from crowdfuse.estimators.persistence import load
from crowdfuse.io.features import read_features
from crowdfuse.io.files import refuse_existing, write_csv
from crowdfuse.runs.folder import SETTINGS_FILE


def predict_file(
    run: Path, inputs: Path, out: Path, *, proba: bool, item: str | None, image_size: int | None, force: bool
) -> int:
    """Predict every item of `inputs` with the model of a run, into a CSV; returns how many."""
    refuse_existing(out, force=force)
    if out.exists() and out.resolve() == inputs.resolve():
        raise ValueError(f"{out} is what is to be predicted; choose another name for --out")
    if out.is_dir():
        raise IsADirectoryError(f"{out} is a folder; name a file to write")
    if not run.exists():
        raise FileNotFoundError(f"{run}: no such run folder")
    model = run / "model" if (run / "model").is_dir() else run
    if model == run and (run / SETTINGS_FILE).exists():
        raise FileNotFoundError(f"{run} has no model yet; finish it with crowdfuse fit --resume {run}")
    classifier = load(model)
    columns = getattr(classifier, "feature_names_in_", None)
    loaded = read_features(
        inputs, item=item, image_size=image_size, image_shape=classifier.input_shape_, columns=columns
    )
    if columns is not None:
        del classifier.feature_names_in_  # the columns were taken by name; scikit-learn need not warn of an array
    probabilities = classifier.predict_proba(loaded.inputs.values)
    best = probabilities.argmax(1)
    header = ["item", "label", "confidence"]
    if proba:
        header += [f"p_{name}" for name in classifier.classes_]
    write_csv(
        out,
        header,
        (
            (name, classifier.classes_[k], f"{row[k]:.6f}", *(f"{p:.6f}" for p in (row if proba else ())))
            for name, k, row in zip(loaded.items, best, probabilities, strict=True)
        ),
    )
    return len(best)

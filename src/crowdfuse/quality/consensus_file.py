"""Write a consensus to one file and read it again, without pickle: a safetensors file with JSON in its header."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from crowdfuse.io.files import atomic_file
from crowdfuse.labels.annotations import Annotations
from crowdfuse.quality.consensus import Consensus
from crowdfuse.quality.findings import Finding

FORMAT_VERSION = 2
POSTERIOR_FILE = "posterior.safetensors"  # the consensus in a run folder; all tables and pages are made from it
ARRAYS = ("class_probabilities", "consensus_codes", "annotator_accuracy", "annotator_accuracy_interval")
OPTIONAL_ARRAYS = (
    "confusion_matrices",
    "predicted_probabilities",
    "out_of_fold_probabilities",
    "gold_codes",
    "label_weights",
)


class DamagedConsensusError(ValueError):
    """Error: the file of a consensus is missing, damaged or of another format. The message contains the file name."""


def save_consensus(result: Consensus, path: Path) -> None:
    """Write a consensus to a file, with its labels.

    Parameters
    ----------
    result : Consensus
        The consensus.
    path : Path
        File to write or replace.
    """
    ann = result.annotations
    arrays: dict[str, Any] = {name: getattr(result, name) for name in ARRAYS}
    arrays |= {name: getattr(result, name) for name in OPTIONAL_ARRAYS if getattr(result, name) is not None}
    arrays |= {f"parameter_{name}": value for name, value in result.parameters.items()}
    arrays |= {"label_indptr": ann.indptr, "label_annotator": ann.annotator, "label_class": ann.label}
    header = {
        "format_version": FORMAT_VERSION,
        "items": ann.items.tolist(),
        "classes": ann.classes.tolist(),
        "annotators": ann.annotators.tolist(),
        "log_likelihood": list(result.log_likelihood),
        "converged": result.converged,
        "n_folds": result.n_folds,
        "limitations": list(result.limitations),
        "findings": [asdict(finding) for finding in result.findings],
    }
    with atomic_file(path) as temporary:
        save_file(
            {name: np.array(value, order="C") for name, value in arrays.items()},
            temporary,
            metadata={"consensus": json.dumps(header)},
        )


def load_consensus(path: str | Path) -> Consensus:
    """Read the consensus of a run folder.

    Parameters
    ----------
    path : str or Path
        Folder that `crowdfuse fit` wrote, or the file `posterior.safetensors` in it.

    Returns
    -------
    result : Consensus
        The consensus that the run computed, with exactly the same numbers. It has arrays such as `result.consensus`,
        `result.confidence`, `result.annotator_accuracy` and `result.suspicion`, and methods that return the tables of
        the run's CSV files.

    Raises
    ------
    DamagedConsensusError
        If the file is missing, damaged or of another format. A subclass of ValueError.

    See Also
    --------
    crowdfuse.load : Reads the classifier of a run folder.

    Examples
    --------
    Here `save_consensus` writes the file, instead of `crowdfuse fit`:

    >>> import crowdfuse, tempfile
    >>> ann = Annotations.from_matrix([["cat", "cat", "dog"], ["dog", "dog", "dog"]], items=["a", "b"])
    >>> run = Path(tempfile.mkdtemp())
    >>> save_consensus(crowdfuse.consensus(ann), run / "posterior.safetensors")
    >>> result = crowdfuse.load_consensus(run)
    >>> dict(zip(result.items.tolist(), result.consensus.tolist()))
    {'a': 'cat', 'b': 'dog'}
    >>> result.confidence.shape, result.annotator_accuracy.shape, result.suspicion.shape
    ((2,), (3,), (6,))
    >>> result.to_table().column_names[:3]
    ['item', 'label', 'confidence']
    """
    path = Path(path)
    if path.is_dir():
        path = path / POSTERIOR_FILE
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {})["consensus"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise DamagedConsensusError(
            f"{path} does not exist; pass the folder of a finished run, or run 'crowdfuse fit' again"
        ) from None
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise DamagedConsensusError(f"{path} is damaged ({error!r}); run 'crowdfuse fit' again") from error
    if header.get("format_version") != FORMAT_VERSION:
        raise DamagedConsensusError(
            f"{path} was written by another version of crowdfuse (format {header.get('format_version')}; this version "
            f"reads format {FORMAT_VERSION}); run 'crowdfuse fit' again"
        )
    try:
        return _consensus(header, arrays)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DamagedConsensusError(f"{path} is damaged ({error!r}); run 'crowdfuse fit' again") from error


def _consensus(header: dict[str, Any], arrays: dict[str, Any]) -> Consensus:
    """Return the consensus with this header and these arrays."""
    names = {name: _names(header[name]) for name in ("items", "classes", "annotators")}
    ann = Annotations(
        indptr=arrays["label_indptr"],
        annotator=arrays["label_annotator"],
        label=arrays["label_class"],
        by_row=True,
        **names,
    )
    probabilities = arrays["class_probabilities"]
    return Consensus(
        method="consensus",
        **names,
        class_probabilities=probabilities,
        consensus_codes=arrays["consensus_codes"],
        annotator_accuracy=arrays["annotator_accuracy"],
        annotator_accuracy_interval=arrays["annotator_accuracy_interval"],
        labels_per_item=np.diff(ann.indptr),
        labels_per_annotator=np.bincount(ann.annotator, minlength=ann.n_annotators),
        confusion_matrices=arrays.get("confusion_matrices"),
        parameters={
            name.removeprefix("parameter_"): value for name, value in arrays.items() if name.startswith("parameter_")
        },
        log_likelihood=tuple(header["log_likelihood"]),
        converged=bool(header["converged"]),
        annotations=ann,
        label_confidence=probabilities[ann.item, ann.label].astype(np.float64),
        predicted_probabilities=arrays.get("predicted_probabilities"),
        out_of_fold_probabilities=arrays.get("out_of_fold_probabilities"),
        gold_codes=arrays.get("gold_codes"),
        n_folds=header["n_folds"],
        label_weights=arrays.get("label_weights"),
        limitations=tuple(header["limitations"]),
        findings=tuple(Finding(**finding) for finding in header["findings"]),
    )


def _names(values: list[Any]) -> Any:
    """Return names as an array: whole numbers as int64, strings as objects."""
    return np.array(values, dtype=np.int64 if values and isinstance(values[0], int) else object)

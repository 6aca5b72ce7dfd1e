"""Sentences on a training: the loss of each phase, which epoch was kept, and by which rule."""

from __future__ import annotations

from itertools import groupby
from typing import Any


def loss_sentence(training: dict[str, Any]) -> str:
    """Return the first and last loss of each phase; empty without a history.

    >>> history = [{"epoch": 1, "loss": 2.0, "phase": "start"}, {"epoch": 2, "loss": 1.0, "phase": "start"}]
    >>> loss_sentence({"history": [*history, {"epoch": 3, "loss": 5.0, "phase": "gates"}]})
    'Loss in phase start (epochs 1 to 2): 2 to 1; gates (epoch 3): 5. Compare losses only within a phase.'
    """
    parts = []
    for phase, group in groupby(training["history"], key=lambda record: record.get("phase", "")):
        records = list(group)
        first, last = records[0], records[-1]
        epochs = f"epoch {first['epoch']}" if first is last else f"epochs {first['epoch']} to {last['epoch']}"
        losses = f"{first['loss']:.4g}" if first is last else f"{first['loss']:.4g} to {last['loss']:.4g}"
        parts.append(f"{phase} ({epochs}): {losses}" if phase else f"{losses} ({epochs})")
    several = " Compare losses only within a phase." if len(parts) > 1 else ""
    named = "Loss in phase " if training["history"] and training["history"][0].get("phase") else "Loss: "
    return f"{named}{'; '.join(parts)}.{several}" if parts else ""


def kept_epoch_sentence(training: dict[str, Any]) -> str:
    """Return which epoch was kept, its score, and the rule of the choice; empty if epochs were not compared.

    >>> history = [{"epoch": 1, "held_out_log_likelihood": -0.9, "candidate": False}]
    >>> history.append({"epoch": 2, "held_out_log_likelihood": -1.0, "candidate": True})
    >>> kept_epoch_sentence({"best_epoch": 2, "history": history})[:63]
    'Epoch 2 was kept (mean log-likelihood of held-out labels -1.000'
    """
    best = training["best_epoch"]
    record = next((record for record in training["history"] if record["epoch"] == best), None)
    if record is None:
        return ""
    candidates = [other["epoch"] for other in training["history"] if other.get("candidate")]
    choice = (
        f"Epochs before {candidates[0]} only prepare the model and cannot be kept. " if candidates[:1] > [1] else ""
    )
    if "held_out_log_likelihood" in record:
        return (
            f"Epoch {best} was kept (mean log-likelihood of held-out labels {record['held_out_log_likelihood']:.3f}). "
            f"{choice}A later epoch replaces an earlier one only if its log-likelihood is higher by more than one "
            "standard error and it passes the same sanity checks. The kept epoch is therefore not always the highest "
            "point of the chart."
        )
    if "validation_accuracy" in record:
        accuracy = 100 * record["validation_accuracy"]
        return f"Epoch {best} was kept: it has the highest validation accuracy ({accuracy:.1f} %). {choice}".strip()
    return f"Epoch {best} was kept."

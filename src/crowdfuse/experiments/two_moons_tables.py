"""Tables and figures of the two-moons experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from crowdfuse.datasets.two_moons import Split
from crowdfuse.experiments.two_moons import (
    VARIANTS,
    TwoMoonsRun,
    count_fusion_wins,
    region_names,
    said_label_probabilities,
    summarize_runs,
)
from crowdfuse.io.files import atomic_folder, write_json, write_text
from crowdfuse.report import plots
from crowdfuse.report.markdown import markdown_table
from crowdfuse.synthesis import two_moon_annotators


def write_twomoon_report(
    runs: list[TwoMoonsRun], folder: Path, *, split: Split, epochs: int, force: bool
) -> dict[str, Any]:
    """Write `twomoon.md`, `twomoon.json` and figures of fusion at the first seed, and return the numbers."""
    numbers = {
        "split": split,
        "n_steps": epochs,
        "summary": summarize_runs(runs),
        "fusion_wins": dict(zip(("n_wins", "n_seeds"), count_fusion_wins(runs), strict=True)),
        "runs": [{"variant": one.variant, "seed": one.seed, **one.metrics} for one in runs],
    }
    with atomic_folder(folder, force=force) as place:
        save_figures(next(one for one in runs if one.variant == "fusion"), place)
        write_text(place / "twomoon.md", render_markdown(runs, split, epochs))
        write_json(place / "twomoon.json", numbers)
    return numbers


def save_figures(fusion: TwoMoonsRun, place: Path) -> None:
    """Save the paper's two figures."""
    X, y = fusion.data.X_test, fusion.data.y_test
    where = region_names(X, y)
    plots.save_figure(plots.two_moon_setup(X, y, two_moon_annotators(X).to_matrix(), where), place / "setup.png")
    across, up = np.meshgrid(np.linspace(-2.4, 2.4, 240), np.linspace(-2.1, 2.1, 210))
    grid = np.column_stack([across.ravel(), up.ravel()])
    diagonals = said_label_probabilities(fusion.classifier, grid, two_moon_annotators(grid))
    plots.save_figure(
        plots.two_moon_heatmaps(
            (across, up),
            fusion.classifier.predict_proba(grid)[:, 1].reshape(across.shape),
            fusion.classifier.annotator_weights(grid)[:, 0].reshape(across.shape),
            [diagonals[:, r].reshape(across.shape) for r in range(2)],
            {name: X[where == name].mean(0) for name in "ABCD" if (where == name).any()},
        ),
        place / "heatmaps.png",
    )


def render_markdown(runs: list[TwoMoonsRun], split: Split, epochs: int) -> str:
    """Return the report as Markdown."""
    wins, seeds = count_fusion_wins(runs)
    rows = [
        [
            row["variant"],
            row["runs"],
            f"{row['mean']:.2f}",
            "-" if row["std"] is None else f"{row['std']:.2f}",
            f"{row['min']:.2f} to {row['max']:.2f}",
            "-" if row["paper_accuracy"] is None else f"{row['paper_accuracy']:.2f}",
        ]
        for row in summarize_runs(runs)
    ]
    accuracy = markdown_table(
        ["variant", "runs", "mean accuracy", "standard deviation", "range", "paper (one run)"], rows
    )
    fusions = sorted({one.variant for one in runs if "regions" in one.metrics}, key=list(VARIANTS).index)
    measures = {
        "weight_annotator_1": "weight of annotator 1",
        "diagonal_annotator_1": "diagonal of annotator 1",
        "diagonal_annotator_2": "diagonal of annotator 2",
    }
    region_rows = [
        [
            variant,
            title,
            *(
                f"{np.mean([one.metrics['regions'][name][measure] for one in runs if one.variant == variant]):.3f}"
                for name in "ABCD"
            ),
        ]
        for variant in fusions
        for measure, title in measures.items()
    ]
    regions = markdown_table(
        ["variant", "mean over seeds", "A (1 right)", "B (2 right)", "C (2 right)", "D (1 right)"], region_rows
    )
    collapse = markdown_table(
        ["variant", "predicted as class 1, by seed (%)", "mean diagonal, by seed"],
        [
            [
                variant,
                ", ".join(f"{one.metrics['predicted_class_1_percent']:.0f}" for one in runs if one.variant == variant),
                ", ".join(f"{one.metrics['mean_diagonal']:.2f}" for one in runs if one.variant == variant),
            ]
            for variant in fusions
        ],
    )
    return f"""# Two moons

Split as in the paper's {split}, {epochs} steps of full-batch SGD. The last step is evaluated. Neither training nor any
choice uses gold. The standard deviation is over seeds.

{accuracy}

Fusion is better than both annotators on {wins} of {seeds} seeds.

## Where exactly one annotator is right

A is the left end of the upper moon, B its right half, C the left half of the lower moon, D its right end. A diagonal is
the entry P[said, said]: the probability that the annotator's label is right, as the model estimates it.

{regions}

## What the penalty and the basis prevent

{collapse}
"""

"""The two-moons experiment as a folder: table, numbers and the paper's two figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from crowdfuse.datasets.two_moons import Split
from crowdfuse.experiments.two_moons import VARIANTS, TwoMoonsRun, fusion_wins, region, said_diagonals, summarise
from crowdfuse.io.files import atomic_folder, write_json, write_text
from crowdfuse.report import plots
from crowdfuse.report.markdown import markdown_table
from crowdfuse.synthesis import two_moon_annotators


def write_twomoon_report(
    runs: list[TwoMoonsRun], folder: Path, *, split: Split, epochs: int, force: bool
) -> dict[str, Any]:
    """`twomoon.md`, `twomoon.json`, and the figures, drawn of the first seed's fusion; returns the numbers."""
    figures = {
        "split": split,
        "steps": epochs,
        "summary": summarise(runs),
        "fusion above both": dict(zip(("seeds", "of"), fusion_wins(runs), strict=True)),
        "runs": [{"variant": one.variant, "seed": one.seed, **one.figures} for one in runs],
    }
    with atomic_folder(folder, force=force) as place:
        save_figures(next(one for one in runs if one.variant == "fusion"), place)
        write_text(place / "twomoon.md", render_markdown(runs, split, epochs))
        write_json(place / "twomoon.json", figures)
    return figures


def save_figures(fusion: TwoMoonsRun, place: Path) -> None:
    """The paper's two figures."""
    X, y = fusion.data.X_test, fusion.data.y_test
    where = region(X, y)
    plots.save_figure(plots.two_moon_setup(X, y, two_moon_annotators(X).to_matrix(), where), place / "setup.png")
    across, up = np.meshgrid(np.linspace(-2.4, 2.4, 240), np.linspace(-2.1, 2.1, 210))
    grid = np.column_stack([across.ravel(), up.ravel()])
    diagonals = said_diagonals(fusion.classifier, grid, two_moon_annotators(grid))
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
    """Accuracy beside the paper's, the four regions, and what penalty and basis prevent."""
    wins, seeds = fusion_wins(runs)
    rows = [
        [
            row["variant"],
            row["runs"],
            f"{row['mean']:.2f}",
            "-" if row["spread"] is None else f"{row['spread']:.2f}",
            f"{row['least']:.2f} to {row['most']:.2f}",
            "-" if row["paper"] is None else f"{row['paper']:.2f}",
        ]
        for row in summarise(runs)
    ]
    accuracy = markdown_table(["variant", "runs", "mean accuracy", "spread", "range", "paper (one run)"], rows)
    fusions = sorted({one.variant for one in runs if "regions" in one.figures}, key=list(VARIANTS).index)
    measures = ("weight of annotator 1", "diagonal of annotator 1", "diagonal of annotator 2")
    region_rows = [
        [
            variant,
            measure,
            *(
                f"{np.mean([one.figures['regions'][name][measure] for one in runs if one.variant == variant]):.3f}"
                for name in "ABCD"
            ),
        ]
        for variant in fusions
        for measure in measures
    ]
    regions = markdown_table(
        ["variant", "mean over seeds", "A (1 right)", "B (2 right)", "C (2 right)", "D (1 right)"], region_rows
    )
    collapse = markdown_table(
        ["variant", "predicted as class 1, by seed (%)", "mean diagonal, by seed"],
        [
            [
                variant,
                ", ".join(f"{one.figures['predicted as class 1']:.0f}" for one in runs if one.variant == variant),
                ", ".join(f"{one.figures['mean diagonal']:.2f}" for one in runs if one.variant == variant),
            ]
            for variant in fusions
        ],
    )
    return f"""# Two moons

Split as in the paper's {split}, {epochs} steps of full-batch SGD, last step kept, no gold in training or in choosing.
Spread is the standard deviation over seeds.

{accuracy}

Fusion is above both annotators on {wins} of {seeds} seeds.

## Where exactly one annotator is right

A is the left end of the upper moon, B its right half, C the left half of the lower moon, D its right end. A diagonal is
the entry P[said, said]: how likely the annotator's label is right, to the model.

{regions}

## What the penalty and the basis prevent

{collapse}
"""

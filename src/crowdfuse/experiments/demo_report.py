"""The report of the demo: a folder with Markdown, figures and numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crowdfuse.experiments.demo import DemoResult
from crowdfuse.io.files import atomic_folder, write_json, write_text
from crowdfuse.report import plots
from crowdfuse.report.markdown import markdown_table


def write_demo_report(result: DemoResult, folder: Path, *, force: bool) -> None:
    """Write `report.md`, its figures, and `figures.json` with the numbers."""
    with atomic_folder(folder, force=force) as place:
        names = [row["annotator"] for row in result.annotators]
        pictures = {
            "reliability": plots.annotator_accuracy(
                names,
                [row["estimated_accuracy"] for row in result.annotators],
                [row["true_accuracy"] for row in result.annotators],
            ),
            "weights": plots.weights_by_correctness(
                names,
                [row["mean_weight_when_wrong"] for row in result.annotators],
                [row["mean_weight_when_right"] for row in result.annotators],
            ),
            "disputed": plots.disputed_images(result.images, [_caption(item) for item in result.disputed]),
            "learning": plots.learning_curves(result.histories),
        }
        for name, figure in pictures.items():
            plots.save_figure(figure, place / f"{name}.png")
        write_json(place / "figures.json", result.to_dict())
        write_text(place / "report.md", _demo_text(result))


def _demo_text(result: DemoResult) -> str:
    """Return the report as Markdown."""
    accuracy = markdown_table(
        ["method", "held-out accuracy"], [[name, f"{100 * value:.1f} %"] for name, value in result.accuracy.items()]
    )
    annotators = markdown_table(
        ["annotator", "labels", "estimated accuracy", "true accuracy", "weight when wrong", "weight when right"],
        [
            [
                row["annotator"],
                row["n_labels"],
                *(
                    f"{row[name]:.3f}"
                    for name in (
                        "estimated_accuracy",
                        "true_accuracy",
                        "mean_weight_when_wrong",
                        "mean_weight_when_right",
                    )
                ),
            ]
            for row in result.annotators
        ],
    )
    return f"""# crowdfuse demo: digits and five annotators who disagree

{result.n_train:,} handwritten digits (scikit-learn's) were labelled by five simulated annotators. Each of
them gives random wrong labels to items that resemble one particular image. A third of the labels is missing.

```
{result.summary}
```

## Is the model good?

The accuracy is measured on {result.n_test} held-out digits. Gold was used only for this table and by the upper bound.

{accuracy}

## How accurate are the annotators?

The classifier, trained without gold, estimates the accuracy of each annotator.

{annotators}

![Estimated and true accuracy](reliability.png)

## On which items?

An annotator has a larger weight on items where they are right than where they are wrong. The weights are learned per
item, from the labels alone.

![Weights where an annotator is wrong and where right](weights.png)

## Which items are disputed?

The fused label of an item combines its labels by the weights and confusion matrices of the annotators. Shown are the
items with at least three labels whose fused label has the lowest confidence.

![Disputed items](disputed.png)

## Training

![Loss over epochs](learning.png)
"""


def _caption(item: dict[str, Any]) -> str:
    """Return the caption of a disputed item."""
    said = "\n".join(f"{name:5} {told['label']}  weight {told['weight']:.2f}" for name, told in item["said"].items())
    return f"fused {item['fused']} ({item['confidence']:.2f}), gold {item['gold']}\n{said}"

"""The demo's report: a folder with Markdown, figures and numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crowdfuse.experiments.demo import DemoResult
from crowdfuse.io.files import atomic_folder, write_json, write_text
from crowdfuse.report import plots
from crowdfuse.report.markdown import markdown_table


def write_demo_report(result: DemoResult, folder: Path, *, force: bool) -> None:
    """`report.md`, its figures, and the numbers as `figures.json`."""
    with atomic_folder(folder, force=force) as place:
        names = [row["annotator"] for row in result.annotators]
        pictures = {
            "reliability": plots.annotator_accuracy(
                names, [row["estimated"] for row in result.annotators], [row["true"] for row in result.annotators]
            ),
            "weights": plots.weights_by_correctness(
                names,
                [row["weight where weak"] for row in result.annotators],
                [row["weight where good"] for row in result.annotators],
            ),
            "disputed": plots.disputed_images(result.images, [_caption(item) for item in result.disputed]),
            "learning": plots.learning_curves(result.histories),
        }
        for name, figure in pictures.items():
            plots.save_figure(figure, place / f"{name}.png")
        write_json(place / "figures.json", result.to_dict())
        write_text(place / "report.md", _demo_text(result))


def _demo_text(result: DemoResult) -> str:
    accuracy = markdown_table(
        ["method", "held-out accuracy"], [[name, f"{100 * value:.1f} %"] for name, value in result.accuracy.items()]
    )
    annotators = markdown_table(
        ["annotator", "labels", "estimated reliability", "true", "weight where weak", "weight where good"],
        [
            [
                row["annotator"],
                row["labels"],
                *(f"{row[name]:.3f}" for name in ("estimated", "true", "weight where weak", "weight where good")),
            ]
            for row in result.annotators
        ],
    )
    return f"""# crowdfuse demo: digits and five annotators who disagree

{result.n_train:,} handwritten digits (scikit-learn's) were labelled by five made-up annotators. Each of them cannot
read what looks like one particular image; there, the label is a random wrong one. A third of the labels is missing.

```
{result.summary}
```

## Is the model good?

On {result.n_test} held-out digits. Gold was used for this table and by the upper bound, nowhere else.

{accuracy}

## Whom to believe?

The estimate is what the classifier, trained without gold, takes each annotator's share of right labels to be.

{annotators}

![Estimated and true reliability](reliability.png)

## On which item?

The same annotator counts for more where they are good and for less where they are weak: the weights are learned per
item, from the labels alone.

![Weights where an annotator is weak and where not](weights.png)

## What is in dispute?

The items with at least three labels whose fused label is least sure.

![Disputed items](disputed.png)

## How training went

![Loss over epochs](learning.png)
"""


def _caption(item: dict[str, Any]) -> str:
    said = "\n".join(f"{name:5} {told['label']}  weight {told['weight']:.2f}" for name, told in item["said"].items())
    return f"fused {item['fused']} ({item['confidence']:.2f}), gold {item['gold']}\n{said}"

"""`crowdfuse demo`: train on built-in data, estimate the accuracy of the annotators, and write a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from crowdfuse.cli.options import Force, Json, Quiet, Seed, Threads, print_errors, refuse_outputs, use_threads


@print_errors
def demo(
    folder: Annotated[Path, typer.Option("--out", help="Folder for the report.")] = Path("demo-report"),
    seed: Seed = 0,
    epochs: Annotated[int, typer.Option(help="Number of passes over the data, per method.", min=1)] = 40,
    threads: Threads = 1,
    json_file: Json = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Try crowdfuse on scikit-learn's digits with five synthetic annotators. A third of their labels is missing."""
    from crowdfuse.experiments.demo import run_demo
    from crowdfuse.experiments.demo_report import write_demo_report
    from crowdfuse.io.files import write_json

    use_threads(threads)
    refuse_outputs(folder, "report.md", json_file, force)
    result = run_demo(seed=seed, epochs=epochs, verbose=0 if quiet else 1)
    console = Console(highlight=False)
    table = Table("method", "held-out accuracy", title=f"Digits, {result.n_test} held-out items")
    for method, accuracy in result.accuracy.items():
        table.add_row(method, f"{100 * accuracy:.1f} %")
    console.print(table)
    table = Table("annotator", "labels", "estimated accuracy", "true accuracy", title="Whom to believe")
    for row in result.annotators:
        table.add_row(
            row["annotator"], str(row["n_labels"]), f"{row['estimated_accuracy']:.3f}", f"{row['true_accuracy']:.3f}"
        )
    console.print(table)
    write_demo_report(result, folder, force=force)
    if json_file is not None:
        write_json(json_file, result.to_dict())
    typer.echo(f"report: {folder / 'report.md'}")

"""`crowdfuse compare`: compare several methods on a user's own data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from crowdfuse.checks.choices import check_choice
from crowdfuse.cli.grids import (
    Cluster,
    Jobs,
    Methods,
    Plan,
    Show,
    exit_with_status,
    finished_before,
    open_store,
    print_plan,
    refuse_own,
    run_cells,
)
from crowdfuse.cli.options import (
    INPUTS_HELP,
    LABELS_HELP,
    Encoder,
    Force,
    ImageSize,
    Json,
    OnMissing,
    Quiet,
    parse_integers,
    parse_names,
    parse_settings,
    print_errors,
    refuse_json,
    refuse_same,
)
from crowdfuse.cli.reading_options import DEFAULT_READING, with_reading_options
from crowdfuse.labels.ids import format_count
from crowdfuse.labels.reading import Reading


@print_errors
@with_reading_options
def compare(
    labels: Annotated[Path, typer.Argument(help=LABELS_HELP)],
    inputs: Annotated[Path | None, typer.Option(help=INPUTS_HELP)] = None,
    gold: Annotated[
        Path | None,
        typer.Option(help="File of gold (trusted) labels used to score the methods, with the columns item and label."),
    ] = None,
    methods: Methods = None,
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0,1,2",
    test_share: Annotated[
        float,
        typer.Option(
            help="Share of the labelled items to hold out for testing. If --gold is given, only labelled items that "
            "have gold are held out. If at least 100 items have gold but no annotator labels, these are the test "
            "items, and this option is ignored.",
            min=0.01,
            max=0.99,
        ),
    ] = 0.3,
    epochs: Annotated[
        int | None, typer.Option(help="Number of passes over the data. Default: as many as the method needs.", min=1)
    ] = None,
    max_time: Annotated[
        str | None,
        typer.Option(
            help="Time limit of all runs together, such as 10m or 2h. Each run (one method with one seed) gets an "
            "equal share of the time, and fewer epochs if it would take longer. Default: no limit."
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Number of items per training step. Default: 64.", min=1)
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="Network that turns inputs into features: auto (mlp for tables, lenet for images), mlp, "
            "lenet, or identity (use the inputs as they are)."
        ),
    ] = None,
    encoder: Encoder = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Set a parameter of the classifiers, as name=value. All compared methods must have this parameter. "
            "May be repeated.",
        ),
    ] = None,
    reading: Reading = DEFAULT_READING,
    on_missing: OnMissing = "error",
    image_size: ImageSize = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    folder: Annotated[Path, typer.Option("--out", help="Folder for the finished runs and the table.")] = Path(
        "comparison"
    ),
    plan: Plan = False,
    show: Show = False,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Also show the differences between all pairs of methods.")
    ] = False,
    json_file: Json = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods on your labels and inputs.

    Gold labels are used only to score the methods, and to train the method true-label.
    """
    from crowdfuse.experiments.result_table import make_table
    from crowdfuse.io.files import write_json
    from crowdfuse.runs import Job
    from crowdfuse.runs.comparison import applicable_methods, make_comparison
    from crowdfuse.runs.comparison_tables import conclusions, render_pairs, render_text, write_comparison
    from crowdfuse.runs.time_limits import with_time_limit

    refuse_json(json_file, force)
    for given in (labels, inputs, gold):
        refuse_same(json_file, given)
    refuse_own(json_file, folder)
    store = open_store(folder)
    chosen = {
        "epochs": epochs,
        "max_time": max_time,
        "batch_size": batch_size,
        "backbone": backbone,
        "encoder": encoder,
    }
    given_settings = parse_settings(
        {name: value for name, value in chosen.items() if value is not None}, settings or []
    )
    job = Job(
        labels=str(labels),
        inputs=None if inputs is None else str(inputs),
        settings=given_settings,
        gold=None if gold is None else str(gold),
        reading=reading,
        on_missing=check_choice("--on-missing", on_missing, ("error", "drop")),
        image_size=image_size,
    )
    comparison = make_comparison(job, test_share)
    fitting, remarks = applicable_methods(comparison)
    if methods:
        fitting, remarks = parse_names(methods, "--methods"), []
    seed_numbers = parse_integers(seeds, "--seeds")
    cells = comparison.cells(fitting, seed_numbers)
    if max_time is not None:
        comparison = replace(comparison, job=with_time_limit(job, max_time, len(cells)))
        cells = comparison.cells(fitting, seed_numbers)
    if plan:
        print_plan("comparison", store, cells)
        return
    if show:
        finished = finished_before(store, cells)
    else:
        cells, left_out = comparison.check_cells(cells)
        remarks += left_out
        finished = run_cells(cells, comparison, store, jobs=jobs, cluster=cluster, title="compare", quiet=quiet)
    table = make_table(cells, finished.records, comparison.metric, {})
    notes = [*comparison.notes(fitting), *remarks]
    n_cut_short = sum(record.result.get("cut_short", False) for record in finished.records)
    if n_cut_short:
        notes.append(
            f"the time limit cut {n_cut_short} of {format_count(len(finished.records), 'training run')} short, so "
            "methods that need more time look worse than they are; raise --max-time"
        )
    if table.entries:
        baselines = comparison.baselines(seed_numbers)
        figures = write_comparison(table, comparison.metric, notes, baselines, folder)
        typer.echo(render_text(table, comparison.metric, baselines) + "\n")
        for sentence in conclusions(table, comparison.metric, baselines):
            typer.echo(sentence)
        for note in notes:
            typer.echo(f"note: {note}")
        if pairs:
            typer.echo("\n" + render_pairs(table) + "\n")
        if json_file is not None:
            write_json(json_file, figures)
        typer.echo(f"table: {folder / 'table.md'}")
    elif show:
        typer.echo(f"{folder} contains no finished run of this comparison; run the command without --show to start it")
    exit_with_status(finished)

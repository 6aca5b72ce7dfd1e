"""`crowdfuse reproduce`: the paper's experiments, with its numbers beside ours."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

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
    format_command,
    missing_cells,
    open_store,
    print_plan,
    refuse_own,
    run_cells,
)
from crowdfuse.cli.options import (
    Data,
    Download,
    Force,
    Json,
    Quiet,
    Threads,
    parse_integers,
    parse_names,
    print_errors,
    refuse_json,
    refuse_outputs,
    use_threads,
)
from crowdfuse.labels.ids import format_count, format_names

if TYPE_CHECKING:
    from crowdfuse.datasets.two_moons import Split
    from crowdfuse.experiments.grid import Experiment

Seeds = Annotated[
    str, typer.Option(help="Random seeds of the annotators and of training, separated by commas. One run per seed.")
]
Epochs = Annotated[
    int | None, typer.Option(help="Number of passes over the data. Default: as in Gao et al. (2022).", min=1)
]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for the finished runs, the table and the figures.")]
Items = Annotated[int | None, typer.Option(help="Train on this many items only. Use it for a short trial.", min=1)]
Scale = Annotated[
    str | None,
    typer.Option(
        help="paper: train the networks of Gao et al. (2022) on images; this is fast only on a GPU. desk: train small "
        "networks on features from a frozen network. Default: paper if there is a GPU, else desk. Experiments on MNIST "
        "have no --scale."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Run with --scale paper even without a GPU. This takes very long.")]
Annotator = Annotated[
    list[str] | None,
    typer.Option(
        help="supp3 only: use your own network as an annotator, given as NAME=FOLDER (the folder of a saved model) "
        "or NAME=MODULE:CALLABLE (your own code, which is imported and run). May be repeated."
    ),
]
Skip = Annotated[bool, typer.Option("--skip-unreadable", help="table3 only: leave out images that cannot be decoded.")]
Bf16 = Annotated[
    bool,
    typer.Option(
        "--bf16",
        help="Train with mixed bfloat16 precision and channels-last layout. This is faster on GPUs and new CPUs, but "
        "less precise.",
    ),
]
Values = Annotated[
    str | None,
    typer.Option(
        help="Values of the parameter that the experiment varies, separated by commas. Default: all values of the "
        "experiment."
    ),
]

GRIDS = {
    "table1": "Gao et al. (2022), Table 1: MNIST, three annotators who err on images closer than epsilon to their "
    "weakness image, for several values of epsilon. --methods also accepts fusion-shared-heads and mbem-any-epoch.",
    "supp1": "Gao et al. (2022), Supplement A: MNIST, five annotators, each correct on 3 classes and wrong on the "
    "others (hammer-spammer).",
    "crowd": "Not in Gao et al. (2022): MNIST as in table1, at epsilon 30, with one to eight annotators.",
    "missing": "Not in Gao et al. (2022): MNIST as in table1, at epsilon 30, with a share of the labels missing at "
    "random.",
    "uniform": "Not in Gao et al. (2022): as table1, but also with the method gated, with the same training recipe for "
    "all methods, and without gold labels for choosing the epoch.",
    "kinds": "Not in Gao et al. (2022): six kinds of wrong labels on MNIST, at epsilon 28, 30 and 32. --values takes "
    "kinds with an epsilon, such as 'looks 30'. --methods also accepts 'gated 50 gold' and 'majority-vote 50 gold', "
    "which train with 50 gold labels; 10 and 200 are also possible.",
    "hammer": "Not in Gao et al. (2022): hammer-spammer annotators, with the same training recipe for all methods, and "
    "without gold labels for choosing the epoch.",
    "triples": "Not in Gao et al. (2022): MNIST as in table1, with other weakness images for the three annotators.",
    "half-missing": "Not in Gao et al. (2022): MNIST as in table1, at epsilon 32, with half of the labels missing.",
    "features": "Not in Gao et al. (2022): as table2, but on frozen features of CIFAR-100, and without gold labels for "
    "choosing the epoch.",
    "odd-even": "Not in Gao et al. (2022): MNIST with two classes. --methods also accepts 'gated 50 gold', as in "
    "kinds.",
    "rare": "Not in Gao et al. (2022): two classes, one with 5 % of the items. --methods also accepts 'gated "
    "50 gold', as in kinds.",
    "table2": "Gao et al. (2022), Table 2: CIFAR-100, three annotators with a weakness, several values of epsilon. "
    "--methods also accepts fusion-latin.",
    "table3": "Gao et al. (2022), Table 3: ImageNet-100, three annotators with a weakness, several values of epsilon.",
    "supp2": "Gao et al. (2022), Supplement B: fusion with weights only, with confusion matrices only, and with both.",
    "supp3": "Gao et al. (2022), Supplement B: the annotators are networks, which label items that they were trained "
    "on, or unseen items.",
    "ablation-lambda": "Gao et al. (2022), Supplement B: different values of the penalty lambda.",
    "ablation-bases": "Gao et al. (2022), Supplement B: different numbers M of basis permutations.",
}


def grid_command(name: str) -> Callable[..., None]:
    """Return the command of a grid. The command runs the missing cells and prints the table of all finished cells."""

    @print_errors
    def command(
        values: Values = None,
        methods: Methods = None,
        seeds: Seeds = "0",
        epochs: Epochs = None,
        items: Items = None,
        bf16: Bf16 = False,
        scale: Scale = None,
        annotator: Annotator = None,
        skip_unreadable: Skip = False,
        yes: Yes = False,
        jobs: Jobs = None,
        cluster: Cluster = None,
        data: Data = None,
        download: Download = False,
        folder: Out = None,
        plan: Plan = False,
        show: Show = False,
        json_file: Json = None,
        force: Force = False,
        quiet: Quiet = False,
    ) -> None:
        from crowdfuse.experiments.catalog import find_experiment, has_gpu, scale_of
        from crowdfuse.experiments.grid_tables import render_markdown, write_grid_report
        from crowdfuse.experiments.result_table import make_table
        from crowdfuse.io.files import write_json

        experiment = find_experiment(name, scale)
        size = scale_of(name, experiment)
        if annotator:
            experiment = _with_models(experiment, annotator)
        if skip_unreadable and "on_unreadable" not in experiment.scale.data:
            raise ValueError(
                f"--skip-unreadable applies only to experiments that read folders of images; "
                f"leave out this option for {name}"
            )
        changes: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
        if bf16:
            changes |= {"precision": "bf16-mixed", "channels_last": True}
        of_data = {"n_train": items} if items else {}
        cells = experiment.cells(
            values=parse_names(values, "--values") if values else (),
            methods=parse_names(methods, "--methods") if methods else (),
            seeds=parse_integers(seeds, "--seeds"),
            data=of_data | ({"on_unreadable": "skip"} if skip_unreadable else {}),
            **changes,
        )
        folder = folder or Path(name)
        refuse_json(json_file, force)
        refuse_own(json_file, folder)
        store = open_store(folder)
        if plan:
            print_plan(experiment.title, store, cells)
            return
        if show:
            finished = finished_before(store, cells)
        else:
            work = experiment.scale.executor(data)
            left = [cell.run for cell in missing_cells(store, cells)]
            work.check(left, download=download)
            if left and size == "paper" and not (yes or has_gpu()):
                raise ValueError(_too_long(work.estimate_seconds(left) / (jobs or 1), len(left), jobs or 1))
            finished = run_cells(cells, work, store, jobs=jobs, cluster=cluster, title=name, quiet=quiet)
        table = make_table(cells, finished.records, "test_accuracy", experiment.paper_numbers())
        if table.entries:
            typed = _as_typed(name, size, values, methods, seeds, epochs, items, bf16, annotator, skip_unreadable)
            figures = write_grid_report(experiment, table, folder, typed)
            typer.echo(render_markdown(experiment, table, typed))
            if json_file is not None:
                write_json(json_file, figures)
            typer.echo(f"table and figures: {folder}")
        elif show:
            typer.echo(
                f"{folder} contains no finished run of this grid; run the command without --show to start the grid"
            )
        exit_with_status(finished)

    command.__doc__ = f"{GRIDS[name]} Finished runs are kept and not repeated."
    return command


def _with_models(experiment: Experiment, pairs: list[str]) -> Experiment:
    """Return the experiment with the user's networks as annotators."""
    from crowdfuse.experiments.networks import with_models

    if experiment.name != "supp3":
        raise ValueError(
            f"--annotator applies to supp3 only; leave out this option for {experiment.name}, whose "
            "annotators are synthetic"
        )
    named = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    if len(named) < len(pairs) or not all(name and source for name, source in named.items()):
        raise ValueError(
            f"--annotator must be NAME=FOLDER or NAME=MODULE:CALLABLE, with distinct names, got {format_names(pairs)}"
        )
    return with_models(experiment, named)


def _too_long(seconds: float, n_runs: int, jobs: int) -> str:
    """Return the message that runs with --scale paper take long without a GPU."""
    from crowdfuse.checks.durations import format_duration

    return (
        f"there is no GPU, and {format_count(n_runs, 'run')} with --scale paper would take about "
        f"{format_duration(seconds)} (--jobs {jobs}, estimated from a few steps). Add --yes to run anyway, reduce the "
        "work (--values, --methods, --epochs, --items), or use --scale desk"
    )


def _as_typed(
    name: str,
    size: str | None,
    values: str | None,
    methods: str | None,
    seeds: str,
    epochs: int | None,
    items: int | None,
    bf16: bool,
    annotator: list[str] | None,
    skip_unreadable: bool,
) -> str:
    """Return the command that produces this table."""
    options = {"--scale": size, "--values": values, "--methods": methods, "--seeds": seeds, "--epochs": epochs}
    given = ["--bf16"] * bf16
    given += [f"--annotator {shlex.quote(pair)}" for pair in annotator or []] + ["--skip-unreadable"] * skip_unreadable
    return " ".join([format_command(name, options | {"--items": items}), *given])


@print_errors
def twomoon(
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0,1,2,3,4",
    folder: Annotated[Path, typer.Option("--out", help="Folder for the figures and the table.")] = Path("twomoon"),
    split: Annotated[
        str,
        typer.Option(
            help="Share of the points that are used for training. text: four fifths, as in the text of Gao et al. "
            "(2022). code: one fifth, as in their code."
        ),
    ] = "text",
    epochs: Annotated[int, typer.Option(help="Number of steps of full-batch SGD.", min=1)] = 400,
    threads: Threads = 1,
    json_file: Json = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Two-moons data of Gao et al. (2022): train on the labels of each of two annotators alone, and fusion on both.

    Fusion is trained with and without its penalty, and with two kinds of confusion matrices.
    """
    from crowdfuse.experiments.two_moons import train_all_variants
    from crowdfuse.experiments.two_moons_tables import render_markdown, write_twomoon_report
    from crowdfuse.io.files import write_json

    chosen = cast("Split", check_choice("--split", split, ("text", "code")))
    use_threads(threads)
    refuse_outputs(folder, "twomoon.json", json_file, force)
    runs = train_all_variants(parse_integers(seeds, "--seeds"), chosen, epochs, verbose=0 if quiet else 1)
    figures = write_twomoon_report(runs, folder, split=chosen, epochs=epochs, force=force)
    typer.echo(render_markdown(runs, chosen, epochs))
    if json_file is not None:
        write_json(json_file, figures)
    typer.echo(f"figures: {folder}")

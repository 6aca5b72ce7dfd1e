"""The `crowdfuse` command and its subcommands. Torch is imported only by commands that need it."""

from __future__ import annotations

from typing import Annotated

import typer

from crowdfuse.cli.aggregate import aggregate
from crowdfuse.cli.compare import compare
from crowdfuse.cli.crowds import crowds
from crowdfuse.cli.demo import demo
from crowdfuse.cli.embed import embed
from crowdfuse.cli.fit import fit, predict
from crowdfuse.cli.method_comparison import mnist_kinds
from crowdfuse.cli.methods import methods
from crowdfuse.cli.published import published
from crowdfuse.cli.report import report
from crowdfuse.cli.reproduce import GRIDS, grid_command, twomoon
from crowdfuse.cli.review import review
from crowdfuse.cli.synthesize import synthesize

app = typer.Typer(
    help="Train a classifier from annotators who disagree, and see whom to believe, on which item, and why.",
    epilog="Example: crowdfuse demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
reproduce = typer.Typer(
    help="Repeat the experiments of Gao et al. (2022), show their numbers beside ours, and compare methods on labels "
    "of real crowds.",
    epilog="Example: crowdfuse reproduce table1 --values 30,34 --methods fusion,majority-vote --seeds 0,1",
    no_args_is_help=True,
)
app.add_typer(reproduce, name="reproduce")

app.command(epilog="Example: crowdfuse demo --out demo-report")(demo)
app.command(
    epilog="Example: crowdfuse fit labels.csv --inputs features.npz --out run/ "
    "--test gold.csv --on-missing drop   |   crowdfuse fit --resume run/"
)(fit)
app.command(epilog="Example: crowdfuse predict run/ images/ --out predictions.csv --proba")(predict)
app.command(epilog="Example: crowdfuse report run/ --gold gold.csv")(report)
app.command(epilog="Example: crowdfuse review run/   |   crowdfuse review run/ --export gold.csv")(review)
app.command(epilog="Example: crowdfuse embed images/ --backbone mynets:resnet50 --out features.npz --workers 2")(embed)
app.command(
    epilog="Example: crowdfuse compare labels.csv --inputs features.npz --gold gold.csv --on-missing drop --jobs 2"
)(compare)
app.command(epilog="Example: crowdfuse methods   |   crowdfuse methods gated madl --json methods.json")(methods)
app.command(epilog="Example: crowdfuse aggregate labels.csv --method dawid-skene --out consensus.csv --gold gold.csv")(
    aggregate
)
app.command(epilog="Example: crowdfuse synthesize mnist --rule weakness --epsilon 30 --out labels.csv")(synthesize)
reproduce.command(epilog="Example: crowdfuse reproduce twomoon --seeds 0,1,2,3,4 --json out.json")(twomoon)
for name in GRIDS:
    reproduce.command(name, epilog=f"Example: crowdfuse reproduce {name} --methods fusion,mbem --seeds 0,1 --jobs 2")(
        grid_command(name)
    )
reproduce.command(epilog="Example: crowdfuse reproduce crowds --values labelme,dog --seeds 0,1,2 --jobs 2")(crowds)
reproduce.command(epilog="Example: crowdfuse reproduce published --values music --methods madl,annot-mix --jobs 2")(
    published
)
reproduce.command("mnist-kinds", epilog="Example: crowdfuse reproduce mnist-kinds --tune 10 --jobs 2")(mnist_kinds)


def _print_version(value: bool) -> None:
    """Print the version and exit."""
    if value:
        from crowdfuse import __version__

        typer.echo(f"crowdfuse {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train a classifier from annotators who disagree, and see whom to believe, on which item, and why."""

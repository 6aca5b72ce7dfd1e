"""The commands in the docs exist, and those of the tutorial run, except the browser part."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner, Result

from crowdfuse.cli import app
from crowdfuse.review import ItemFilter, ItemInputs, ReviewSession, read_run

ROOT = Path(__file__).parent.parent
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


def commands(page: str) -> list[str]:
    """Return the lines of a page's code blocks that call crowdfuse, without comments."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    shown = [line for _, block in blocks for line in block.splitlines() if line.startswith("crowdfuse ")]
    return [line.partition(" #")[0] for line in shown]


SHOWN = [
    pytest.param(command, id=f"{page.name}: {command}")
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for command in commands(page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("command", SHOWN)
def test_documented_command_exists_with_its_options(command: str) -> None:
    name, *arguments = shlex.split(command)[1:]
    group = typer.main.get_command(app)
    known = group.commands[name]  # type: ignore[attr-defined]  # a group has commands
    known.make_context(name, arguments)  # parses the options without running the command


def test_wrong_option_is_detected() -> None:
    known = typer.main.get_command(app).commands["fit"]  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="No such option"):
        known.make_context("fit", ["labels.csv", "--input", "images/"])


def test_documented_table_equals_the_synthesized_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(commands(TUTORIAL)[0]).exit_code == 0
    (shown,) = re.findall(r"```text\n(.*?)```", TUTORIAL, re.DOTALL)
    assert Path("labels.csv").read_text(encoding="utf-8").startswith(shown)


def test_tutorial_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = TUTORIAL.replace("300", "60")
    (made,) = re.findall(r"```python\n(.*?)```", small, re.DOTALL)
    exec(made, {})
    settled = {}
    for command in commands(small):
        if command == "crowdfuse review run/":  # done in the browser
            settled = settle_two(Path("run"))
            continue
        result = run(command + (" --epochs 2 --folds 2" if command.startswith("crowdfuse fit") else ""))
        assert result.exit_code == 0, f"{command}: {result.output}"
    assert read_labels(Path("reviewed.csv")) == settled
    assert settled.items() <= read_labels(Path("run-2/consensus.csv")).items()


def run(command: str) -> Result:
    return CliRunner().invoke(app, shlex.split(command)[1:])


def settle_two(run: Path) -> dict[str, str]:
    """Settle the first two items, each as the last class."""
    folder = read_run(run)
    session = ReviewSession(folder, ItemInputs(folder), "you")
    settled = {}
    for _ in range(2):
        item = session.view(ItemFilter())["item"]
        last = len(folder.classes) - 1
        shown = {"facts_hash": item["facts_hash"], "version": item["version"]}
        session.settle(item["index"], last, **shown, item_filter=ItemFilter())
        settled[item["item"]] = folder.classes[-1]
    return settled


def read_labels(table: Path) -> dict[str, str]:
    """Return the second column of a table, by the first."""
    rows = [line.split(",") for line in table.read_text(encoding="utf-8").splitlines()[1:]]
    return {row[0]: row[1] for row in rows}


def test_tutorial_pictures_have_the_documented_width_and_are_small() -> None:
    shown = re.findall(r"\((images/tutorial-\w+\.png)\)", TUTORIAL)
    assert len(shown) == len(list((ROOT / "docs" / "images").glob("tutorial-*.png")))
    for name in shown:
        file = ROOT / "docs" / name
        assert Image.open(file).width == 1180
        assert file.stat().st_size < 150_000


def test_pictures_in_the_docs_exist_and_main_pages_open_with_one() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for name in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / name).is_file(), f"{page}: {name}"
    for name in ("README.md", "docs/results/README.md", "docs/review.md"):
        opening = (ROOT / name).read_text(encoding="utf-8").partition("\n## ")[0]
        assert "![" in opening, name

"""Make every stored table and figure of `crowdfuse reproduce` again from its stored runs; nothing is trained.

    python benchmarks/stored_tables.py
    python benchmarks/stored_tables.py hammer kinds

A folder below docs/results with runs.jsonl and table.md has a stored table, whose first lines name its command. The
command is repeated with `--show` on a copy of the runs, read as runs of the installed version. The other results have
scripts of their own: benchmarks/default_method.py makes docs/results/methods.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import shlex
import shutil
import tempfile
from pathlib import Path

from crowdfuse.cli import app
from crowdfuse.experiments.store import VERSIONS

RESULTS_PATH = Path(__file__).parents[1] / "docs" / "results"
COMMAND_LINE = re.compile(r"^Made by `crowdfuse (.*)`\.$", re.MULTILINE)


def stored_folders() -> list[str]:
    """Return the names of the folders with a table that `crowdfuse reproduce` has made."""
    tables = sorted(RESULTS_PATH.glob("*/table.md"))
    return [path.parent.name for path in tables if COMMAND_LINE.search(path.read_text(encoding="utf-8"))]


def read_command(name: str) -> list[str]:
    """Return the arguments of the command that has made a stored table."""
    found = COMMAND_LINE.search((RESULTS_PATH / name / "table.md").read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"docs/results/{name}/table.md has no line 'Made by `crowdfuse ...`'; add its command")
    return shlex.split(found[1])


def remake_table(name: str, folder: Path) -> None:
    """Write the table, its numbers and its figures into a folder, from the stored runs."""
    folder.mkdir(parents=True, exist_ok=True)
    with (RESULTS_PATH / name / "runs.jsonl").open(encoding="utf-8") as stored:
        lines = [json.dumps(json.loads(line) | {"versions": VERSIONS}) for line in stored]
    (folder / "runs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()):
        app([*read_command(name), "--show", "--out", str(folder)], standalone_mode=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="folders below docs/results; default: all")
    given = parser.parse_args()
    for name in given.names or stored_folders():
        with tempfile.TemporaryDirectory() as made:
            remake_table(name, Path(made))
            for path in sorted(Path(made).glob("*.*")):
                if path.suffix in (".md", ".json", ".png"):
                    shutil.copy(path, RESULTS_PATH / name)
        print(name, flush=True)


if __name__ == "__main__":
    main()

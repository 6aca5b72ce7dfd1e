"""The model fitted anew with the decisions as gold, in a process of its own, into a folder beside the run.

`python -m crowdfuse.review.refit` is that process: it reads a job from its standard input.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from crowdfuse import runs
from crowdfuse.io.files import sha256, write_text
from crowdfuse.io.labels import read_gold_beside_labels
from crowdfuse.labels.ids import ids_to_strings
from crowdfuse.review.changes import compare_run_folders
from crowdfuse.review.folder import RunFolder
from crowdfuse.review.session import gold_csv, read_gold_rows
from crowdfuse.runs.job import Job, resolve_job_path

EPOCH = re.compile(r"epoch (\d+)/(\d+)")


class Refit:
    """Fitting a run anew: one at a time. What an earlier one changed is found again after a restart."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self._process: subprocess.Popen[bytes] | None = None
        self._out: Path | None = None
        self._said: Any = None  # a file, not a pipe: the process goes on should this one be killed
        self._one_thread = threading.Lock()
        self._compared: tuple[Path, dict[str, Any]] | None = None

    def start(self) -> None:
        """Begin, unless one is running."""
        with self._one_thread:
            if self._process is not None and self._process.poll() is None:
                raise ValueError(f"a refit is running already, into {self._out}; wait for it")
            self._refuse_changed()
            rows, _ = read_gold_rows(self.run.path)
            if not rows:
                raise ValueError("nothing is settled yet, so there is nothing to fit anew with")
            out = next_folder(self.run.path)
            job = job_with_gold(self.run, rows, out)
            self._said = tempfile.NamedTemporaryFile(prefix="crowdfuse-refit-")  # noqa: SIM115  # read until the next
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "crowdfuse.review.refit"],  # -P: no module of the folder it starts in
                stdin=subprocess.PIPE,
                stdout=self._said,
                stderr=self._said,
                env=os.environ | {"COLUMNS": "300"},
            )
            self._out = out
            assert self._process.stdin is not None
            with self._process.stdin as pipe:
                pipe.write(json.dumps({"job": asdict(job), "out": str(out)}).encode())

    def _refuse_changed(self) -> None:
        """What changed is to be the decisions alone."""
        for name, given in self.run.job.files().items():
            path = resolve_job_path(self.run.path, str(given))
            if not path.exists() or sha256(path) != self.run.hashes.get(name):
                raise ValueError(
                    f"{path} ({name}) is gone, or has changed since the run, so that a refit would compare two things "
                    "at once; bring it back, or export the decisions and start a new run: crowdfuse fit --gold"
                )

    def status(self) -> dict[str, Any]:
        """{"state": "none", "running", "failed" or "done", ...}: what it says, how far it is, what changed."""
        with self._one_thread:
            if self._process is not None and self._out is not None:
                lines = self._lines()
                if self._process.poll() is None:
                    found = [match for line in lines for match in EPOCH.findall(line)]
                    done, of = (int(part) for part in found[-1]) if found else (0, 0)
                    said = lines[-1] if lines else "reading the files"
                    return {"state": "running", "out": _from_here(self._out), "said": said, "done": done, "of": of}
                if not runs.is_finished(self._out):
                    said = lines[-1] if lines else f"it ended with {self._process.returncode}"
                    return {"state": "failed", "out": _from_here(self._out), "said": said.removeprefix("error: ")}
            finished = [out for out in refits_of(self.run.path) if runs.is_finished(out)]
            if not finished:
                return {"state": "none"}
            if self._compared is None or self._compared[0] != finished[-1]:
                self._compared = finished[-1], compare_run_folders(self.run.path, finished[-1])
            return {"state": "done", "out": _from_here(finished[-1]), "changes": self._compared[1]}

    def stop(self) -> Path | None:
        """End what is running; returns its folder, with which `crowdfuse fit --resume` goes on."""
        if self._process is None or self._process.poll() is not None:
            return None
        self._process.terminate()
        self._process.wait()
        return self._out

    def _lines(self) -> list[str]:
        text = Path(self._said.name).read_text(encoding="utf-8", errors="replace")
        return [line.strip() for line in text.splitlines() if line.strip()]


def refits_of(run: Path) -> list[Path]:
    """The folders of a run's refits, the last one last."""
    run = run.resolve()
    found = [(match, path) for path in run.parent.iterdir() if (match := _number(run, path)) and path.is_dir()]
    return [path for _, path in sorted(found)]


def next_folder(run: Path) -> Path:
    """A folder beside the run for its next refit: run-refit-1, run-refit-2, ..."""
    run = run.resolve()
    taken = [_number(run, path) for path in run.parent.iterdir()]
    return run.parent / f"{run.name}-refit-{max([0, *taken]) + 1}"


def _number(run: Path, path: Path) -> int:
    match = re.fullmatch(re.escape(run.name) + r"-refit-([1-9]\d*)(-gold\.csv)?", path.name)
    return int(match[1]) if match else 0


def _from_here(path: Path) -> str:
    """As somebody would type it who is where the page was started."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def job_with_gold(run: RunFolder, rows: list[tuple[str, str]], out: Path) -> Job:
    """The job of a run, with these decisions as gold to train on, beside what it had; writes that gold beside `out`.

    A decision counts for more than the gold that was given before.
    """
    job = run.job
    given = {name: str(resolve_job_path(run.path, str(path)).resolve()) for name, path in job.files().items()}
    gold: dict[str, str] = {}
    if job.gold is not None:
        path = Path(given["gold"])
        ids, truth = read_gold_beside_labels(path, job.reading)
        gold = dict(zip(ids_to_strings(ids).tolist(), ids_to_strings(truth).tolist(), strict=True))
    gold |= dict(rows)
    file = out.with_name(f"{out.name}-gold.csv")
    write_text(file, gold_csv(list(gold.items())))
    inputs = str(resolve_job_path(run.path, job.inputs).resolve())
    return replace(job, **given | {"inputs": inputs, "gold": str(file)})  # type: ignore[arg-type]  # all are names


def main() -> int:
    """Fit what standard input asks for; what is wrong is said in the last line."""
    asked = json.load(sys.stdin)
    try:
        runs.start(Job.from_json(asked["job"]), Path(asked["out"]), force=False, verbose=1)
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

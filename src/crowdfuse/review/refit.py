"""Refit: train a run again with the reviewers' decisions as gold labels, in a separate process and a new folder."""

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
from crowdfuse.labels.ids import ids_to_strings
from crowdfuse.review.changes import compare_run_folders
from crowdfuse.review.run_folder import RunFolder
from crowdfuse.review.session import gold_csv, read_gold_rows
from crowdfuse.runs.job import Job, resolve_job_path

PROGRESS_PATTERN = re.compile(r"^training (\d+) of (\d+) finished")


class Refit:
    """Starts, stops and watches the refits of a run, one at a time.

    A refit trains the run again, with the decisions of reviewers as gold labels. Each refit has its own folder
    beside the run, so that a restarted review server finds the results of earlier refits.

    Parameters
    ----------
    run : RunFolder
        The run that is reviewed.
    """

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self._process: subprocess.Popen[bytes] | None = None
        self._out: Path | None = None
        self._output: Any = None  # a file, not a pipe, so that the refit continues if this process is killed
        self._lock = threading.Lock()
        self._compared: tuple[Path, dict[str, Any]] | None = None

    def start(self) -> None:
        """Start a refit in a separate process. The method returns at once; `status` tells when the refit is done.

        Raises
        ------
        ValueError
            If a refit is already running, if the reviewers have not decided the class of any item yet, or if a file of
            the original run (its labels or gold labels) is missing or has changed.
        """
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                raise ValueError(f"a refit is already running and writes to {self._out}; wait until it ends")
            self._refuse_changed()
            rows, _ = read_gold_rows(self.run.path)
            if not rows:
                raise ValueError("nothing is settled yet; decide the class of at least one item, then start the refit")
            out = next_refit_folder(self.run.path)
            job = job_with_gold(self.run, rows, out)
            self._output = tempfile.NamedTemporaryFile(prefix="crowdfuse-refit-")  # noqa: SIM115  # open until the next refit
            self._process = subprocess.Popen(
                # -P: import no module from the current folder
                [sys.executable, "-P", "-m", "crowdfuse.review.refit_process"],
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=self._output,
                env=os.environ | {"COLUMNS": "300"},
            )
            self._out = out
            assert self._process.stdin is not None
            with self._process.stdin as pipe:
                pipe.write(json.dumps({"job": asdict(job), "out": str(out)}).encode())

    def _refuse_changed(self) -> None:
        """Raise an error if a file of the run is missing or has changed: only the decisions may differ."""
        for name, file in self.run.job.files().items():
            path = resolve_job_path(self.run.path, str(file))
            if not path.exists() or sha256(path) != self.run.hashes.get(name):
                raise ValueError(
                    f"a refit needs the unchanged files of the run, but {path} ({name}) is missing or has changed. "
                    "Restore this file. Or export the decisions with "
                    f"'crowdfuse review {self.run.path} --export gold.csv', and pass them to a new run with "
                    "'crowdfuse fit --gold gold.csv'"
                )

    def status(self) -> dict[str, Any]:
        """Return the state of the refit.

        Returns
        -------
        status : dict of str to Any
            The key `state` is "none", "running", "failed" or "done". The other keys depend on `state`:

            - "none" (there was no refit so far): no other keys.
            - "running": `out` (the folder of the refit), `message` (a text about the progress) and `progress`. A refit
              trains several models: the model itself, and one for each fold of the consensus. `progress` is the share
              of these models that are trained; None before the first is trained.
            - "failed": `out` and `message` (the error message).
            - "done": `out` (the folder of the newest finished refit) and `changes` (the result of
              `compare_run_folders` for this refit).
        """
        with self._lock:
            if self._process is not None and self._out is not None:
                lines = self._lines()
                if self._process.poll() is None:
                    return {"state": "running", "out": _relative(self._out)} | read_progress(lines)
                if not runs.is_finished(self._out):
                    message = lines[-1] if lines else f"the refit ended with exit code {self._process.returncode}"
                    return {
                        "state": "failed",
                        "out": _relative(self._out),
                        "message": message.removeprefix("error: "),
                    }
            finished = [out for out in list_refits(self.run.path) if runs.is_finished(out)]
            if not finished:
                return {"state": "none"}
            if self._compared is None or self._compared[0] != finished[-1]:
                self._compared = finished[-1], compare_run_folders(self.run.path, finished[-1])
            return {"state": "done", "out": _relative(finished[-1]), "changes": self._compared[1]}

    def stop(self) -> Path | None:
        """Stop the refit that is running.

        Returns
        -------
        out : Path or None
            The folder of the stopped refit, which `crowdfuse fit --resume` can continue; None if no refit was running.
        """
        if self._process is None or self._process.poll() is not None:
            return None
        self._process.terminate()
        self._process.wait()
        return self._out

    def _lines(self) -> list[str]:
        """Return what the process has printed."""
        text = Path(self._output.name).read_text(encoding="utf-8", errors="replace")
        return [line.strip() for line in text.splitlines() if line.strip()]


def read_progress(lines: list[str]) -> dict[str, Any]:
    """Return `message` and `progress` of a refit from what it has printed.

    The model is trained first, then one more model per fold of the cross-fitting.

    >>> read_progress(["network: mlp", "training 2 of 5 finished: gated, fold 1 of 4, 40 epochs, loss 0.5, 3 s"])
    {'message': '2 of 5 training runs are finished', 'progress': 0.4}
    >>> read_progress([])
    {'message': 'reading the files', 'progress': None}
    """
    matches = [match for line in lines if (match := PROGRESS_PATTERN.search(line))]
    if not matches:
        return {"message": lines[-1] if lines else "reading the files", "progress": None}
    n_done, n_trainings = map(int, matches[-1].groups())
    return {
        "message": f"{n_done} of {n_trainings} training runs are finished",
        "progress": round(n_done / n_trainings, 4),
    }


def list_refits(run: Path) -> list[Path]:
    """Return the folders of the refits of a run, the newest last."""
    run = run.resolve()
    numbered = [
        (number, path) for path in run.parent.iterdir() if (number := _refit_number(run, path)) and path.is_dir()
    ]
    return [path for _, path in sorted(numbered)]


def next_refit_folder(run: Path) -> Path:
    """Return the folder of the next refit, beside the run: run-refit-1, run-refit-2, ..."""
    run = run.resolve()
    taken = [_refit_number(run, path) for path in run.parent.iterdir()]
    return run.parent / f"{run.name}-refit-{max([0, *taken]) + 1}"


def _refit_number(run: Path, path: Path) -> int:
    """Return the number of the refit to which a folder or gold file belongs; 0 for other files."""
    match = re.fullmatch(re.escape(run.name) + r"-refit-([1-9]\d*)(-gold\.csv)?", path.name)
    return int(match[1]) if match else 0


def _relative(path: Path) -> str:
    """Return the path relative to the current folder, if it is inside this folder."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def job_with_gold(run: RunFolder, rows: list[tuple[str, str]], out: Path) -> Job:
    """Return the job of a refit, and write its gold labels (the decisions) to a file beside `out`.

    Gold labels that were already used for training are kept, unless a decision replaces them.
    """
    job = run.job
    paths = {name: str(resolve_job_path(run.path, str(path)).resolve()) for name, path in job.files().items()}
    result = run.consensus
    gold: dict[str, str] = {}
    if result.gold_codes is not None:
        known = result.gold_codes >= 0
        items, classes = ids_to_strings(result.items[known]), ids_to_strings(result.classes[result.gold_codes[known]])
        gold = dict(zip(items.tolist(), classes.tolist(), strict=True))
    gold |= dict(rows)
    file = out.with_name(f"{out.name}-gold.csv")
    write_text(file, gold_csv(list(gold.items())))
    if job.inputs is not None:
        paths["inputs"] = str(resolve_job_path(run.path, job.inputs).resolve())
    return replace(job, **paths | {"gold": str(file)})  # type: ignore[arg-type]  # all are str

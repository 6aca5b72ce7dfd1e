"""The command line of crowdfuse, which waits forever at a moment that a test chooses.

A test that kills or interrupts a process in the middle of its work must not depend on being faster than the process.
The variable `CROWDFUSE_TEST_PAUSE` says when to wait:

- `checkpoint:N`: after the N-th checkpoint that a process saves;
- `stored:N`: when the store of a grid holds N runs, in the process that stores them;
- `ray:N`: when N runs have come back from Ray, in the wait for the next one.

Without the variable, importing this module changes nothing.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

PAUSE_VARIABLE = "CROWDFUSE_TEST_PAUSE"
PATCH = pytest.MonkeyPatch()  # for the life of the process


def wait_forever() -> None:
    while True:
        signal.pause()  # returns after a signal that has a handler


def pause_at_checkpoint(limit: int) -> None:
    from crowdfuse.training.checkpoints import save_checkpoint

    n_saved = 0

    def save_then_pause(*given: Any) -> None:
        nonlocal n_saved
        save_checkpoint(*given)
        n_saved += 1
        if n_saved == limit:
            wait_forever()

    PATCH.setattr("crowdfuse.training.loop.save_checkpoint", save_then_pause)


def pause_when_stored(limit: int) -> None:
    from crowdfuse.experiments.store import Record, Store

    add = Store.add

    def add_then_pause(store: Store, record: Record) -> None:
        add(store, record)
        if store.path.read_bytes().count(b"\n") >= limit:
            wait_forever()

    PATCH.setattr(Store, "add", add_then_pause)


def pause_in_ray(limit: int) -> None:
    import ray

    wait, n_waits = ray.wait, 0

    def wait_for_limited(runs: list[Any]) -> Any:
        nonlocal n_waits
        n_waits += 1
        return wait(runs if n_waits <= limit else [ray.remote(num_cpus=0)(wait_forever).remote()])

    PATCH.setattr(ray, "wait", wait_for_limited)


if PAUSE_VARIABLE in os.environ:  # also in processes that are started by spawn, which import this module again
    moment, _, number = os.environ[PAUSE_VARIABLE].partition(":")
    {"checkpoint": pause_at_checkpoint, "stored": pause_when_stored, "ray": pause_in_ray}[moment](int(number))

if __name__ == "__main__":
    from crowdfuse.cli import app

    app()

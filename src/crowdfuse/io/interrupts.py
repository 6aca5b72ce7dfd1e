"""Ctrl-C and worker processes: only the parent reacts to Ctrl-C, and workers end when the parent ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import wait
from typing import Any


@contextmanager
def sigint_handler(action: Any) -> Iterator[None]:
    """Handle Ctrl-C with `action` inside the context. Processes that are started while it is ignored also ignore it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals and may set handlers
        return
    before = signal.signal(signal.SIGINT, action)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def ignore_sigint() -> AbstractContextManager[None]:
    """Ignore Ctrl-C inside the context."""
    return sigint_handler(signal.SIG_IGN)


def init_worker_process() -> None:
    """Initialise a worker process: ignore Ctrl-C, and exit if the parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # in case the handler was not inherited from the parent
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """Wait for the end of the parent process, then exit."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)

"""Processes of a pool: Ctrl-C is for the one that started them, and they end when it ends."""

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
    """What Ctrl-C does meanwhile; processes that start while it is ignored never hear of it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change what signals do, and only it gets them
        return
    before = signal.signal(signal.SIGINT, action)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def ignore_sigint() -> AbstractContextManager[None]:
    """Ctrl-C does nothing meanwhile."""
    return sigint_handler(signal.SIG_IGN)


def init_worker_process() -> None:
    """In a process of a pool, first thing: leave Ctrl-C to the parent, and end should the parent be killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it was not inherited
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)

"""Run folders to review, a server that can be killed, and a real browser."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from PIL import Image

from crowdfuse.labels.reading import Reading
from crowdfuse.review.item_inputs import ItemInputs
from crowdfuse.review.refit import Refit
from crowdfuse.review.run_folder import read_run
from crowdfuse.review.server import _listening, make_app
from crowdfuse.review.session import ReviewSession
from crowdfuse.runs import Job, start
from tests.browser import TIMEOUT_MS

N = 24
TRUTH = ["cat", "dog", "owl"]
HOSTILE = {
    "class": ["<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "\u202eevil\u202c שבת عربي", "w" * 300],
    "annotator": ["<script>alert(3)</script>", "'\"><img src=x onerror=alert(4)>", "\u202eשבת\u202c", "a" * 300],
    "item": [
        "<img src=x onerror=alert(5)>.png",
        '"><svg onload=alert(6)>.png',
        "\u202eשבת\u202c.png",
        f"{'i' * 200}.png",
    ],
}


def write_rows(path: Path, header: tuple[str, ...], rows: Any) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def read_rows(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def said(n: int, r: int, classes: list[str]) -> str:
    """Annotators 0 and 1 are mostly right, 2 rarely: every item is disputed."""
    wrong = n % 7 == r or r >= 2
    return classes[(n + (1 + r % 2 if wrong else 0)) % len(classes)]


def make_run(
    folder: Path, *, items: list[str], classes: list[str], annotators: list[str], kind: str, **job: Any
) -> Path:
    """Fit in `folder`: inputs of this kind, labels.csv, and the run folder, which is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(3)
    colours = generator.integers(0, 255, (len(classes), 3))
    code = np.arange(len(items)) % len(classes)
    if kind == "images":
        for name, k in zip(items, code, strict=True):
            pixels = np.clip(colours[k] + generator.integers(-40, 40, (20, 20, 3)), 0, 255).astype(np.uint8)
            (folder / "inputs" / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / "inputs" / name)
        inputs = folder / "inputs"
    else:
        inputs = folder / "inputs.csv"
        X = colours[code][:, :3] / 100 + generator.normal(size=(len(items), 3))
        rows = [(name, *(f"{value:.3f}" for value in row)) for name, row in zip(items, X, strict=True)]
        write_rows(inputs, ("item", "height", "<b>width</b>", "depth"), rows)
    triples = [(item, who, said(n, r, classes)) for n, item in enumerate(items) for r, who in enumerate(annotators)]
    write_rows(folder / "labels.csv", ("item", "annotator", "label"), triples)
    asked = Job(
        labels=str(folder / "labels.csv"),
        inputs=str(inputs),
        method="gated",
        settings={"epochs": 2, "random_state": 0},
        reading=Reading(classes=classes),
        folds=0,
    )
    start(Job(**vars(asked) | job), folder / "run", force=False, verbose=0)
    return folder / "run"


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a folder of images; do not change it."""
    items, annotators = [f"photo-{n:02}.png" for n in range(N)], ["ada", "bob", "cy"]
    folder = tmp_path_factory.mktemp("fitted")
    return make_run(folder, items=items, classes=TRUTH, annotators=annotators, kind="images", folds=2)


@pytest.fixture
def run(fitted: Path, tmp_path: Path) -> Path:
    """A run of one's own, inputs and all; its job names them by a relative path."""
    shutil.copytree(fitted.parent, tmp_path / "own")
    settings = tmp_path / "own" / "run" / "settings.json"
    settings.write_text(settings.read_text().replace(f"{fitted.parent}{os.sep}", ""))
    return tmp_path / "own" / "run"


@dataclass
class Served:
    """A server in a process of its own."""

    url: str
    process: subprocess.Popen[str]
    said: list[str]

    def kill(self) -> None:
        """As by kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def choose_port() -> int:
    """A port that was free and that the system does not hand out again soon; the server takes the next if need be."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(run: Path, port: int | None = None) -> Iterator[Served]:
    """`crowdfuse review`, from its first word to its end. Pages of other tests may still ask at the ports of these."""
    port = port or choose_port()
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "crowdfuse", "review", str(run), "--port", str(port), "--reviewer", "rita"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=run.parent
    )
    try:
        heard: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            heard.append(line.strip())
            found = re.search(r"open (http://\S+)", line)
            if found:
                break
        else:
            raise AssertionError(f"the server ended: {heard}")
        yield Served(found[1], process, heard)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def serving_here(run: Path) -> Iterator[str]:
    """The same server in a thread: no process has to start. Its address."""
    folder = read_run(run)
    session, refit = ReviewSession(folder, ItemInputs(folder), "rita"), Refit(folder)
    with _listening(0) as listener:  # the system chooses a port
        port = listener.getsockname()[1]
        config = uvicorn.Config(make_app(session, refit, port, "token"), log_level="warning", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.should_exit = True
            thread.join()
            refit.stop()


EXPECTED_ERRORS = ("ERR_CONNECTION_REFUSED", "409 (Conflict)")
"""Servers end before pages do; a decision that another tab made first is refused, which the page tells."""


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages; at the end nothing may have gone wrong in any, and none may have asked elsewhere."""
    contexts, wrong = [], []

    def note(message: Any) -> None:
        if message.type == "error" and not any(text in message.text for text in EXPECTED_ERRORS):
            wrong.append(message.text)

    def executed(dialog: Any) -> None:
        wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def opened(url: str, **settings: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 860}} | settings)
        contexts.append(context)
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", executed)
        page.on("request", lambda request: None if request.url.startswith(url) else wrong.append(request.url))
        page.goto(url)
        ready(page)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def until(page: Any, expression: str) -> None:
    """Wait for something to become true. Playwright's own wait polls by eval, which the page's policy forbids."""
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while time.monotonic() < deadline:
        if page.evaluate(expression):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"never came true: {expression}; the page says {page.locator('body').inner_text()}")


def intercept(page: Any, pattern: str, handler: Callable[[Any], None]) -> None:
    """Handle the page's requests to addresses like `pattern`, from now on.

    `page.route` returns before the page knows that its requests are intercepted. A key that is pressed then can
    overtake this message in the browser, and the request that it causes goes to the server.
    """
    page.route(pattern, handler)
    page.route("**/api/about", lambda route: route.fulfill(body="intercepted"))
    until(page, "fetch('api/about').then((answer) => answer.text()).then((text) => text === 'intercepted')")
    page.unroute("**/api/about")


def ready(page: Any) -> None:
    """Wait until an item can be decided on, or all are settled."""
    until(page, "view !== null && !isBusy()")


def press(page: Any, key: str) -> None:
    """Press a key and wait until what it does is done."""
    head = page.evaluate("view.n_ledger_lines")
    page.keyboard.press(key)
    until(page, f"view.n_ledger_lines > {head} && !isBusy()")


def choose_annotator(page: Any, name: str) -> None:
    """Select the items that an annotator labelled."""
    option = page.locator("#annotator option", has_text=name)
    page.select_option("#annotator", value=option.get_attribute("value"))


def shown(page: Any) -> str:
    """The name of the item that is shown."""
    text: str = page.locator("#name").inner_text()
    return text


def announced(page: Any, text: str) -> None:
    """Wait until assistive technology is told. The page does it in the frame after the one that shows the view."""
    until(page, f"document.getElementById('live').textContent.includes({json.dumps(text)})")

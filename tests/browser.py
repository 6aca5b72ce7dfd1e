"""A real Chromium for tests of pages; pages may load their own file and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, Page, Route, sync_playwright

TIMEOUT_MS = 300_000  # on a busy machine a browser may take long; only a failure takes all of it
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.fail("these tests need Chromium, which was not found; install it with: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=OPTIONS, timeout=TIMEOUT_MS)
        yield chromium
        chromium.close()


@contextmanager
def opened(browser: Browser, path: Path, *, width: int = 1180, dark: bool = False) -> Iterator[Page]:
    """Open a file as a page; fail at the end if it requested anything else, wrote to the console or opened a dialog."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", offline=True
    )
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    wrong: list[str] = []

    def only_this(route: Route) -> None:
        if route.request.url.partition("#")[0] == path.as_uri() or route.request.url.startswith("data:"):
            route.continue_()
        else:
            wrong.append(f"a request to {route.request.url[:200]}")
            route.abort()

    def refuse(dialog: Dialog) -> None:
        wrong.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    page.route("**/*", only_this)
    page.on("console", lambda message: wrong.append(f"in the console: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"an error: {error}"))
    page.on("dialog", refuse)
    page.goto(path.as_uri())
    yield page
    context.close()
    assert not wrong, wrong


def serious_problems(page: Page) -> list[str]:
    """Return the serious and critical accessibility violations that axe-core finds."""
    found = Axe().run(page).response["violations"]
    return [
        f"{problem['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for problem in found
        if problem["impact"] in ("serious", "critical")
        for node in problem["nodes"][:3]
    ]


def scrolls_sideways(page: Page) -> bool:
    """Return whether the page is wider than the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))

"""Run the commands of tutorial.md in order, and make its pictures in a real Chromium.

After `pip install -c constraints.txt -e '.[dev]'` and `apt-get install chromium`: `python docs/tutorial.py`.
"""

from __future__ import annotations

import csv
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, FloatRect, Page, sync_playwright

HERE = Path(__file__).parent
TEXT = (HERE / "tutorial.md").read_text(encoding="utf-8")
WIDTH = 1180
DECISIONS = 30
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]


def main() -> None:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        sys.exit("error: the pictures need Chromium, which was not found; install it with: apt-get install chromium")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        browser = playwright.chromium.launch(executable_path=program, args=OPTIONS)
        for kind, code in re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE):
            if kind == "python":
                subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
            for command in re.findall(r"^crowdfuse .*", code, re.MULTILINE):
                run_command(command, folder, browser)
        browser.close()


def run_command(command: str, folder: Path, browser: Browser) -> None:
    """Run one command and take pictures of its pages."""
    print(f"$ {command}", flush=True)
    if command == "crowdfuse review run/":
        review(command, folder, browser)
        return
    subprocess.run(command_line(command), cwd=folder, check=True)
    if command == "crowdfuse report run/":
        page = opened(browser, (folder / "run" / "report.html").as_uri())
        take_picture(page, "report", "header", "#data .tiles")
        take_picture(page, "annotators", "#annotators")
        page.locator("#annotator-table tbody tr").last.locator("a").click()
        take_picture(page, "annotator", "#details details[open]", "#details details[open] figure")
        take_picture(page, "disputed", "#disputed", "#disputed .item:nth-child(6)")
    elif "judged.html" in command:
        take_picture(opened(browser, (folder / "judged.html").as_uri()), "accuracy", "#accuracy")


def review(command: str, folder: Path, browser: Browser) -> None:
    """Settle the first items with their true classes, then refit."""
    with (folder / "truth.csv").open(newline="", encoding="utf-8") as file:
        truth = {row["item"]: row["label"] for row in csv.DictReader(file)}
    # the picture must not show a login name
    arguments = [*command_line(command), "--reviewer", "you"]
    with subprocess.Popen(arguments, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            address = next(line for line in server.stdout if "http://" in line)
            page = opened(browser, re.findall(r"http://\S+", address)[0])
            wait_until(page, "view !== null && !isBusy()")
            for number in range(DECISIONS):
                if number == DECISIONS // 2:
                    take_picture(page, "review", "header", "main")
                decided = page.evaluate("view.n_ledger_lines")
                page.keyboard.press(truth[page.evaluate("view.item.item")])
                wait_until(page, f"view.n_ledger_lines > {decided} && !isBusy()")
            page.click("#refit")
            page.wait_for_selector("#changes .cards", timeout=600_000)
            take_picture(page, "refit", "#refitted")
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate()


def command_line(command: str) -> list[str]:
    """Return the arguments that run a crowdfuse command with this Python."""
    return [sys.executable, "-u", "-m", "crowdfuse", *shlex.split(command)[1:]]


def opened(browser: Browser, address: str) -> Page:
    page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
    page.goto(address)
    return page


def wait_until(page: Page, expression: str) -> None:
    """Wait until an expression is true; Playwright's own wait uses eval, which the page's policy forbids."""
    for _ in range(3000):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(20)
    raise TimeoutError(f"{page.url}: waited in vain for {expression}")


def take_picture(page: Page, name: str, first: str, last: str | None = None) -> None:
    """Save a picture from the top of one element to the bottom of another, in 128 colours to keep it small."""
    page.locator(first).first.scroll_into_view_if_needed()  # the browser does not draw what is off screen
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    start, end = (page.locator(selector).first.bounding_box() for selector in (first, last or first))
    assert start is not None
    assert end is not None
    scrolled = page.evaluate("scrollY")
    top = max(0, start["y"] + scrolled - 8)
    area: FloatRect = {"x": 0, "y": top, "width": WIDTH, "height": end["y"] + end["height"] + scrolled + 8 - top}
    file = HERE / "images" / f"tutorial-{name}.png"
    page.screenshot(path=file, full_page=True, clip=area)
    Image.open(file).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)


if __name__ == "__main__":
    main()

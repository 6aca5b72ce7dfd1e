"""The walk of tutorial.md: what it shows is run, in order, and its pictures are made in a real Chromium.

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
        sys.exit("error: the pictures are made in a real Chromium, and there is none: apt-get install chromium")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        browser = playwright.chromium.launch(executable_path=program, args=OPTIONS)
        for kind, code in re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE):
            if kind == "python":
                subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
            for command in re.findall(r"^crowdfuse .*", code, re.MULTILINE):
                walk(command, folder, browser)
        browser.close()


def walk(command: str, folder: Path, browser: Browser) -> None:
    """Run one command, and take the pictures of what it makes."""
    print(f"$ {command}", flush=True)
    if command == "crowdfuse review run/":
        review(command, folder, browser)
        return
    subprocess.run(words(command), cwd=folder, check=True)
    if command == "crowdfuse report run/":
        page = opened(browser, (folder / "run" / "report.html").as_uri())
        picture(page, "report", "header", "#data .tiles")
        picture(page, "annotators", "#annotators")
        page.locator("#annotator-table tbody tr").last.locator("a").click()
        picture(page, "annotator", "#details details[open]", "#details details[open] figure")
        picture(page, "disputed", "#disputed", "#disputed .item:nth-child(6)")
    elif "judged.html" in command:
        picture(opened(browser, (folder / "judged.html").as_uri()), "accuracy", "#accuracy")


def review(command: str, folder: Path, browser: Browser) -> None:
    """Settle the first items as somebody would who sees well, and refit."""
    with (folder / "truth.csv").open(newline="", encoding="utf-8") as file:
        truth = {row["item"]: row["label"] for row in csv.DictReader(file)}
    # a login is nobody's business
    asked = [*words(command), "--reviewer", "you"]
    with subprocess.Popen(asked, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            said = next(line for line in server.stdout if "http://" in line)
            page = opened(browser, re.findall(r"http://\S+", said)[0])
            until(page, "view !== null && !isBusy()")
            for number in range(DECISIONS):
                if number == DECISIONS // 2:
                    picture(page, "review", "header", "main")
                decided = page.evaluate("view.head")
                page.keyboard.press(truth[page.evaluate("view.item.item")])
                until(page, f"view.head > {decided} && !isBusy()")
            page.click("#refit")
            page.wait_for_selector("#changes .cards", timeout=600_000)
            picture(page, "refit", "#refitted")
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate()


def words(command: str) -> list[str]:
    return [sys.executable, "-u", "-m", "crowdfuse", *shlex.split(command)[1:]]


def opened(browser: Browser, address: str) -> Page:
    page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
    page.goto(address)
    return page


def until(page: Page, expression: str) -> None:
    """Wait for something to become true. Playwright's own wait polls by eval, which the page's policy forbids."""
    for _ in range(3000):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(20)
    raise TimeoutError(f"never came true on {page.url}: {expression}")


def picture(page: Page, name: str, first: str, last: str | None = None) -> None:
    """From the top of one element to the bottom of another, in few colours: small files."""
    page.locator(first).first.scroll_into_view_if_needed()  # what is out of sight is not drawn
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

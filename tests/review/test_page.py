"""The page in a real browser: keys, undo, kill -9, two tabs, hostile names, phones, accessibility."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from typer.testing import CliRunner

from crowdfuse.cli import app
from crowdfuse.labels.number_format import format_confidence, format_percent
from crowdfuse.review.run_folder import read_run
from tests.review.conftest import (
    HOSTILE,
    TRUTH,
    announced,
    choose_annotator,
    make_run,
    press,
    read_rows,
    ready,
    serving,
    serving_here,
    shown,
    until,
)

OpenPage = Callable[..., Any]
PHONE = {"width": 375, "height": 700}


def problems(page: Any) -> list[str]:
    """Return the serious and critical violations that axe-core finds."""
    found = Axe().run(page).response["violations"]
    return [
        f"{rule['id']}: {node['html'][:200]}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def overflow(page: Any) -> int:
    """Return by how many pixels the page is wider than the window."""
    pixels: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return pixels


@contextmanager
def listening() -> Iterator[int]:
    """Yield a port that is in use."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_nine_decisions_survive_ten_decisions_one_undo_and_kill_9(
    run: Path, open_page: OpenPage, tmp_path: Path
) -> None:
    with serving(run) as server:
        page = open_page(server.url)
        made = []
        for n in range(10):
            made.append((shown(page), TRUTH[n % 3]))
            press(page, "123"[n % 3])
        undone = made.pop()
        press(page, "u")
        assert shown(page) == undone[0]
        assert "9 of 24 settled" in page.locator("#progress").inner_text()
        server.kill()
        page.keyboard.press("2")
        page.wait_for_selector("#error:not([hidden])")
        assert "does not answer" in page.locator("#error").inner_text()
        assert shown(page) == undone[0]
    with listening() as taken, serving(run, taken) as server:
        assert f"port {taken} is in use; using port {server.url.split(':')[2].strip('/')} instead" in server.said
        page = open_page(server.url)
        assert "9 of 24 settled" in page.locator("#progress").inner_text()
        assert shown(page) == undone[0]
        with page.expect_download() as download:
            page.click("#export")
        assert [tuple(row) for row in read_rows(Path(download.value.path()))[1:]] == made
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait() == 0
    assert CliRunner().invoke(app, ["review", str(run), "--export", str(tmp_path / "gold.csv")]).exit_code == 0
    assert [tuple(row) for row in read_rows(tmp_path / "gold.csv")[1:]] == made
    lines = [json.loads(line) for line in (run / "decisions.jsonl").read_text().splitlines()]
    assert [line["action"] for line in lines] == ["settle"] * 10 + ["undo"]
    assert {line["who"] for line in lines} == {"rita"}


def test_tabs_filters_skips_and_announcements_for_assistive_technology(run: Path, open_page: OpenPage) -> None:
    with serving_here(run) as url:
        one, two = open_page(url), open_page(url)
        first = shown(one)
        assert shown(two) == first
        press(one, "1")
        until(two, "view.n_ledger_lines === 1")
        ready(two)
        assert shown(two) == shown(one)
        assert "1 of 24 settled" in two.locator("#progress").inner_text()
        announced(two, "settled in another tab")
        second = shown(two)
        press(two, "2")
        until(one, "view.n_ledger_lines === 2")
        ready(one)
        press(one, "u")  # undoes the decision of this tab, not the later one of the other tab
        assert shown(one) == first
        announced(one, "Undone.")
        press(one, "s")
        assert "1 skipped" in one.locator("#progress").inner_text()
        assert shown(one) not in (first, second)

        choose_annotator(one, "bob (24 labels")
        one.select_option("#class", label="owl")
        ready(one)
        said = [(row[1], row[2]) for row in read_rows(run.parent / "labels.csv") if row[0] == shown(one)]
        assert "bob" in [who for who, _ in said]
        assert "owl" in one.locator("main").inner_text()
        one.keyboard.press("?")
        assert one.locator("#help-box").is_visible()
        one.keyboard.press("1")  # decides nothing meanwhile
        one.keyboard.press("Escape")
        assert not one.locator("#help-box").is_visible()
        assert len((run / "decisions.jsonl").read_text().splitlines()) == 4


def n_lines(page: Any, selector: str) -> set[int]:
    """Return how many lines the text of these elements takes."""
    count = "range => { range[0].selectNodeContents(range[1]); return range[0].getClientRects().length; }"
    lines: list[int] = page.evaluate(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((element) => "
        f"({count})([document.createRange(), element]))"
    )
    return set(lines)


@pytest.mark.parametrize("width", [1280, 920, 375, 320])
def test_estimates_and_accuracies_are_shown_and_no_word_is_broken(run: Path, open_page: OpenPage, width: int) -> None:
    with serving_here(run) as url:
        page = open_page(url, viewport={"width": width, "height": 860})
        facts = page.evaluate("view.item.facts")
        estimates = page.locator("#estimates dd.clamp")
        assert [estimates.nth(place).inner_text() for place in range(2)] == [facts["consensus"], facts["predicted"]]
        assert page.locator("#explanation").is_visible() == (facts["explanation"] is not None)
        assert page.locator("#explanation").text_content() == (facts["explanation"] or "")
        assert len(facts["labels"]) == page.locator(".person").count() == 3
        for line, person in zip(facts["labels"], page.locator(".person").all(), strict=True):
            low, high = (format_percent(line[name]).removesuffix(" %") for name in ("accuracy_low", "accuracy_high"))
            text = " ".join(person.inner_text().split())
            assert line["annotator"] in text
            assert f"accuracy {format_percent(line['accuracy'])} ({low} to {high})" in text
        assert n_lines(page, ".figure span, .figure b") == {1}
        assert overflow(page) == 0


def test_page_and_report_round_probabilities_in_the_same_way(run: Path, open_page: OpenPage) -> None:
    near_certain = [0, 1e-9, 0.0049999, 0.005, 0.994999, 0.995, 0.99949, 0.9995, 1 - 1e-9, 1]
    shares = [*near_certain, *(k / 8 for k in range(9)), *(k / 200 for k in range(201)), *np.geomspace(1e-4, 1, 50)]
    with serving_here(run) as url:
        shown_texts = open_page(url).evaluate("shares => shares.map(formatPercent)", list(map(float, shares)))
    assert shown_texts == [format_confidence(share) for share in shares]


def test_hostile_names_are_shown_as_text_without_overflow(tmp_path: Path, open_page: OpenPage) -> None:
    items = [f"{n}{name}" for n in range(2) for name in HOSTILE["item"]]
    run = make_run(tmp_path, items=items, classes=HOSTILE["class"], annotators=HOSTILE["annotator"], kind="images")
    with serving_here(run) as url:
        seen = set()
        page = open_page(url, viewport=PHONE)
        for n in range(len(items)):
            seen.add(page.evaluate("view.item.item"))
            assert page.locator("#name").text_content() == page.evaluate("view.item.item")
            buttons = page.locator("#classes button bdi")
            assert [buttons.nth(k).text_content() for k in range(4)] == HOSTILE["class"]
            people = page.locator(".nameof bdi")
            assert {people.nth(r).text_content() for r in range(4)} == set(HOSTILE["annotator"])
            assert page.locator("script").count() == 1
            assert page.locator("main img").count() == 1  # the item's own
            assert overflow(page) == 0
            if n == 1:
                assert problems(page) == []
            press(page, "1234"[n % 4])
        assert seen == set(items)
        assert page.locator("#done-title").inner_text() == "All settled."
        assert overflow(page) == 0
        with page.expect_download() as download:
            page.click("#export")
        exported = dict(read_rows(Path(download.value.path()))[1:])
        assert set(exported) == set(items)
        assert set(exported.values()) == set(HOSTILE["class"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_and_phones_do_not_scroll_sideways(
    run: Path, open_page: OpenPage, scheme: str
) -> None:
    folder = read_run(run)
    second = [item for item, disputed in zip(folder.items, folder.disputed, strict=True) if disputed][1]
    (run.parent / "inputs" / second).unlink()
    with serving_here(run) as url:
        page = open_page(url, color_scheme=scheme)
        assert problems(page) == []
        press(page, "1")
        assert "does not exist any more" in page.locator("#input").inner_text()
        assert second in page.locator("#input").inner_text()
        assert problems(page) == []
        page.keyboard.press("?")
        assert problems(page) == []
        page.keyboard.press("Escape")
        page.set_viewport_size(PHONE)
        assert overflow(page) == 0
        assert problems(page) == []


def test_many_classes_are_found_by_typing(tmp_path: Path, open_page: OpenPage) -> None:
    classes = [f"class {n:02}" for n in range(40)]
    items = [f"i{n}" for n in range(80)]
    run = make_run(tmp_path, items=items, classes=classes, annotators=["ada", "bob", "cy"], kind="table")
    with serving_here(run) as url:
        page = open_page(url)
        assert page.locator("#input dl").is_visible()
        name = shown(page)
        page.keyboard.type("ss 3")
        assert page.locator("#classes button:visible").count() == 10
        page.keyboard.press("ArrowDown")
        press(page, "Enter")
        assert shown(page) != name
        assert problems(page) == []
        page.keyboard.press("Escape")
        press(page, "u")
        assert shown(page) == name
    settled = json.loads((run / "decisions.jsonl").read_text().splitlines()[0])
    assert (settled["item"], settled["label"][:7]) == (name, "class 3")


def test_digit_classes_have_their_own_keys_and_fit_on_the_screen(tmp_path: Path, open_page: OpenPage) -> None:
    digits = [str(digit) for digit in range(10)]
    items = [f"{n}.png" for n in range(20)]
    run = make_run(tmp_path, items=items, classes=digits, annotators=["ada", "bob", "cy"], kind="images")
    with serving_here(run) as url:
        page = open_page(url, viewport={"width": 1180, "height": 900})
        for button in page.locator("#classes button").all():
            place = button.bounding_box()
            assert place["y"] + place["height"] <= 900
        for key in "70":
            name = shown(page)
            press(page, key)
            assert page.locator("#last").inner_text() == f"Last: {name} is {key}"


def test_refit_shows_what_changed(run: Path, open_page: OpenPage) -> None:
    with serving_here(run) as url:
        page = open_page(url)
        for key in "123":
            press(page, key)
        page.click("#refit")
        page.wait_for_selector("#changes .cards")
        assert "run-refit-1" in page.locator("#refit-state").inner_text()
        assert "Consensus labels that changed" in page.locator("#changes").inner_text()
        assert problems(page) == []
        page.set_viewport_size(PHONE)
        assert overflow(page) == 0

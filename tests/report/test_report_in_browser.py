"""The report page in a real browser, opened from disk, without a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from crowdfuse.report import Report
from crowdfuse.runs.reporting import report_run
from tests.browser import opened, scrolls_sideways, serious_problems
from tests.report.crowd import HOSTILE, HOSTILE_CLASSES, Crowd


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a report in which every name is hostile, with gold."""
    crowd = Crowd(
        tmp_path_factory.mktemp("hostile"),
        annotators=HOSTILE,
        classes=HOSTILE_CLASSES,
        items="<svg onload=alert({})> '\"" + "y" * 200,
    )
    run = crowd.fit(crowd.features(), settings={"epochs": 3})
    report = report_run(run, gold=crowd.gold("gold.csv", slice(30)), n_items=8)
    return report.save(run / "report.html")


@pytest.fixture(scope="module")
def image_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a report on images, one of which was deleted after the fit."""
    crowd = Crowd(tmp_path_factory.mktemp("images"), n=30)
    folder = crowd.images()
    run = crowd.fit(folder, settings={"epochs": 2})
    report = report_run(run, n_items=30)
    gone = report.facts["disputed"]["items"][0]["item"]
    (folder / f"{gone}.png").unlink()
    return report_run(run, n_items=30).save(run / "report.html")


def first_cells(page: Page) -> list[str]:
    """Return the names in the visible rows as text: rows off screen have no layout before the next frame."""
    return page.locator("#annotator-table tbody tr:not([hidden]) td:first-child").all_text_contents()


def test_annotator_table_sorts_by_mouse_and_keyboard(browser: Browser, page_file: Path) -> None:
    with opened(browser, page_file) as page:
        head = page.locator("#annotator-table th", has_text="Labels")
        head.locator("button").click()
        labels = [int(text) for text in page.locator("#annotator-table tbody td:nth-child(2)").all_text_contents()]
        assert head.get_attribute("aria-sort") == "descending"
        assert labels == sorted(labels, reverse=True)
        head.locator("button").press("Enter")
        assert head.get_attribute("aria-sort") == "ascending"
        assert [int(x) for x in page.locator("#annotator-table tbody td:nth-child(2)").all_text_contents()] == labels[
            ::-1
        ]
        assert (
            page.locator("#annotator-table th[aria-sort=ascending], #annotator-table th[aria-sort=descending]").count()
            == 1
        )


def test_annotator_table_can_be_searched(browser: Browser, page_file: Path) -> None:
    with opened(browser, page_file) as page:
        assert len(first_cells(page)) == len(HOSTILE)
        page.get_by_label("Search annotators").fill("ONERROR")
        assert first_cells(page) == [HOSTILE[1]]
        assert page.locator("#annotator-count").inner_text() == "1 of 5 shown"
        page.get_by_label("Search annotators").fill("")
        assert len(first_cells(page)) == len(HOSTILE)


def test_annotator_details_open_from_the_table_and_by_keyboard(browser: Browser, page_file: Path) -> None:
    with opened(browser, page_file) as page:
        page.locator("#annotator-table a", has_text="onerror").click()
        part = page.locator("#details details[open]")
        assert part.count() == 1
        assert HOSTILE[1] in part.locator("summary").inner_text()
        assert part.locator("svg.map").is_visible()
        assert part.locator("table.matrix").first.is_visible()
        part.locator("summary").press("Space")
        assert page.locator("#details details[open]").count() == 0


def test_hostile_names_are_shown_as_text(browser: Browser, page_file: Path) -> None:
    with opened(browser, page_file) as page:
        for name in (*HOSTILE[:3], *HOSTILE_CLASSES):
            assert page.get_by_text(name, exact=True).count() > 0, name
        assert page.locator("script").count() == 1
        assert page.locator("main img").count() == 0  # the items are rows of numbers, not images


@pytest.mark.parametrize(("width", "dark"), [(1180, False), (375, True)])
def test_page_is_accessible(browser: Browser, page_file: Path, width: int, dark: bool) -> None:
    with opened(browser, page_file, width=width, dark=dark) as page:
        for summary in page.locator("#details summary").all():
            summary.click()
        assert serious_problems(page) == []
        assert not scrolls_sideways(page)


OVERLAPS = """() => [...document.querySelectorAll('svg.chart')].flatMap(chart => {
  const texts = [...chart.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
  return texts.flatMap(([one, a], index) => texts.slice(index + 1)
    .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)
    .map(([other]) => `${chart.getAttribute('aria-label')}: ${one} / ${other}`));
})"""


@pytest.mark.parametrize("width", [1180, 375])
def test_texts_of_a_chart_do_not_overlap(browser: Browser, page_file: Path, width: int) -> None:
    with opened(browser, page_file, width=width) as page:
        assert page.locator("svg.chart").count() > 3  # among them charts whose axes both begin at 0 %
        assert page.evaluate(OVERLAPS) == []
        size = "parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a"
        smallest = f"Math.min(...[...document.querySelectorAll('svg.chart text.mid:not(.axis)')].map(text => {size}))"
        assert page.evaluate(smallest) > 10  # large enough to read on a phone


def test_short_names_stay_on_one_line(browser: Browser, image_page: Path, tmp_path: Path) -> None:
    facts = json.loads(image_page.with_suffix(".json").read_text(encoding="utf-8"))
    for number, row in enumerate(facts["annotators"]["rows"]):
        row["annotator"] = f"annotator-{number}"
        row["strongest"], row["weakest"] = ({"class": name, "share": 1} for name in ("tall building", "open country"))
        row["accuracy_on_gold"] = {"value": 1, "low": 0.9, "high": 1, "n": 2600}
        row["mean_weight"] = 1.17
    shown = [item for name in ("disputed", "ambiguous", "mislabelled") for item in facts[name]["items"]]
    report = Report(facts, {item["row"]: {} for item in [*shown, *facts["suspicious"]["rows"]]})
    with opened(browser, report.save(tmp_path / "report.html")) as page:
        cells = page.locator("#annotator-table tbody tr:first-child td")
        lines = cells.evaluate_all(
            "cells => cells.flatMap(c => [...c.querySelectorAll('bdi, small')]).map(e => e.getClientRects().length > 1 "
            "|| e.getBoundingClientRect().height > 30 ? e.textContent : '')"
        )
        assert set(lines) == {""}
        assert page.locator("#annotators .box").evaluate("box => box.scrollWidth <= box.clientWidth")


def test_images_are_shown_and_a_missing_one_is_named(browser: Browser, image_page: Path) -> None:
    with opened(browser, image_page, width=375) as page:
        assert "images/i" in page.locator("#disputed .gone").inner_text()
        assert page.locator("#disputed img").count() > 3
        assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
        assert not scrolls_sideways(page)
        assert serious_problems(page) == []


def test_notebook_shows_the_whole_page(browser: Browser, page_file: Path, tmp_path: Path) -> None:
    facts = json.loads(page_file.with_suffix(".json").read_text(encoding="utf-8"))
    shown = [item for name in ("disputed", "ambiguous", "mislabelled") for item in facts[name]["items"]]
    report = Report(facts, {item["row"]: {} for item in [*shown, *facts["suspicious"]["rows"]]})
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><p>a cell</p>{report._repr_html_()}", encoding="utf-8")
    with opened(browser, notebook) as page:
        inside = page.frame_locator("iframe")
        inside.locator("#annotator-table a", has_text="onerror").click()
        assert inside.locator("#details details[open]").count() == 1
        inside.get_by_label("Search annotators").fill("onerror")
        assert inside.locator("#annotator-table tbody tr:not([hidden])").count() == 1


def test_print_opens_all_details_and_fits_on_paper(browser: Browser, page_file: Path) -> None:
    with opened(browser, page_file, width=794, dark=True) as page:
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("#details details:not([open])").count() == 0
        assert not scrolls_sideways(page)
        assert serious_problems(page) == []
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("#details details[open]").count() == 0

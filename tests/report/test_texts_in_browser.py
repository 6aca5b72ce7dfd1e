"""Texts and pictures on the report page, in a real browser, with the keyboard alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page

from crowdfuse.runs.reporting import report_run
from tests.browser import opened, scrolls_sideways, serious_problems
from tests.report.crowd import Crowd
from tests.text_pages import HOSTILE_TEXT, LONG_TEXT, RIGHT_TO_LEFT_TEXT, SPECIAL_TEXTS, make_text_run


@pytest.fixture(scope="module")
def text_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run, _ = make_text_run(tmp_path_factory.mktemp("texts"))
    return report_run(run, n_items=40).save(run / "report.html")


@pytest.fixture(scope="module")
def image_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    crowd = Crowd(tmp_path_factory.mktemp("images"), n=30)
    run = crowd.fit(crowd.images(), settings={"epochs": 2})
    return report_run(run, n_items=30).save(run / "report.html")


def card(page: Page, item: str) -> Locator:
    """Return the card of an item among the disputed items."""
    return page.locator("#disputed .item").filter(has=page.get_by_role("heading", name=item, exact=True))


def tab_to(page: Page, target: Locator) -> None:
    """Press Tab until the target has the focus."""
    for _ in range(300):
        page.keyboard.press("Tab")
        if target.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError("Tab does not reach the element")


def test_texts_are_shown_as_text_with_their_words_highlighted(browser: Browser, text_page: Path) -> None:
    with opened(browser, text_page) as page:
        for item, text in SPECIAL_TEXTS.items():
            shown = card(page, item).locator(".text")
            if item == "empty":
                assert shown.count() == 0 or shown.text_content() == ""
            elif item not in ("long", "unbroken"):
                assert shown.text_content() == text
        assert page.locator("script").count() == 1
        assert page.locator("main img").count() == 0
        excerpts = page.locator("#labels .excerpt").all_inner_texts()
        assert excerpts
        assert all(0 < len(excerpt) <= 100 for excerpt in excerpts)
        words = card(page, "hostile").locator(".text mark")
        assert {"for", "against"} >= {
            kind.split()[0] for kind in words.evaluate_all("marks => marks.map(m => m.className)")
        }
        assert words.count() > 0
        legend = card(page, "hostile").locator(".words").inner_text()
        assert "the prediction" in legend
        assert "(gradient times input)" in legend
        direction = "element => getComputedStyle(element).direction"
        assert card(page, "right-to-left").locator(".text").evaluate(direction) == "rtl"
        assert card(page, "hostile").locator(".text").evaluate(direction) == "ltr"
        assert RIGHT_TO_LEFT_TEXT.split()[0] in card(page, "right-to-left").inner_text()


@pytest.mark.parametrize(("width", "dark"), [(1180, False), (375, True)])
def test_long_texts_open_with_the_keyboard_on_an_accessible_page(
    browser: Browser, text_page: Path, width: int, dark: bool
) -> None:
    with opened(browser, text_page, width=width, dark=dark) as page:
        long = card(page, "long")
        summary = long.locator("summary")
        rest = "details => details.open && details.getBoundingClientRect().height > 100"
        tab_to(page, summary)
        page.keyboard.press("Enter")
        assert long.locator("details").evaluate(rest)
        words = long.locator(".text").evaluate("element => element.textContent.replace('more', '')")
        assert " ".join(LONG_TEXT.split()).startswith(words.removesuffix(" ..."))
        assert len(words) > 3_900
        assert serious_problems(page) == []
        assert not scrolls_sideways(page)
        page.keyboard.press("Space")
        assert not long.locator("details").evaluate("details => details.open")


@pytest.mark.parametrize(("width", "dark"), [(1180, False), (375, True)])
def test_pictures_are_enlarged_with_the_keyboard(browser: Browser, image_page: Path, width: int, dark: bool) -> None:
    with opened(browser, image_page, width=width, dark=dark) as page:
        button = page.locator("#disputed .zoom").first
        small = button.locator("img").evaluate("image => image.getBoundingClientRect().width")
        tab_to(page, button)
        page.keyboard.press("Enter")
        large = page.locator("#picture img")
        assert large.is_visible()
        assert large.evaluate("image => image.getBoundingClientRect().width") > 2 * small
        assert large.get_attribute("src") == button.locator("img").get_attribute("src")
        item = page.locator("#disputed .item h3").first.inner_text()
        assert page.get_by_role("dialog", name=f"The picture of {item}").count() == 1
        assert serious_problems(page) == []
        assert not scrolls_sideways(page)
        page.keyboard.press("Escape")
        assert not large.is_visible()
        assert button.evaluate("element => element === document.activeElement")


def test_hostile_texts_are_escaped_in_the_file(text_page: Path) -> None:
    page = text_page.read_text(encoding="utf-8")
    assert HOSTILE_TEXT not in page
    assert "<script>alert" not in page
    assert "<img src=x" not in page

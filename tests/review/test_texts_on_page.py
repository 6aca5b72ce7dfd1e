"""Texts and enlarged pictures on the review page, in a real browser, with the keyboard alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser import serious_problems
from tests.review.conftest import press, ready, serving_here, shown, until
from tests.text_pages import LONG_TEXT, SPECIAL_TEXTS, make_text_run

OpenPage = Callable[..., Any]
WINDOWS = [
    {"viewport": {"width": 1280, "height": 860}},
    {"viewport": {"width": 375, "height": 700}, "color_scheme": "dark"},
]


def overflow(page: Any) -> int:
    """Return by how many pixels the page is wider than the window."""
    pixels: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return pixels


def is_focused(page: Any, selector: str) -> bool:
    """Return whether an element has the focus."""
    return bool(page.evaluate(f"document.activeElement === document.querySelector('{selector}')"))


@pytest.mark.parametrize("window", WINDOWS)
def test_every_text_is_shown_whole_and_settled_with_the_keyboard(
    tmp_path: Path, open_page: OpenPage, window: dict[str, Any]
) -> None:
    run, texts = make_text_run(tmp_path)
    with serving_here(run) as url:
        page = open_page(url, **window)
        seen = {}
        for number in range(len(texts)):
            item = shown(page)
            seen[item] = page.locator("#input").text_content()
            input_facts = page.evaluate("view.item.facts.input")
            marks = page.locator("#input mark").all_text_contents()
            assert marks == [text for text, strength in input_facts["parts"] if strength]
            assert page.locator("#input mark.m3").count() >= bool(marks)  # the strongest word
            assert ("(gradient times input)" in page.locator("#words").inner_text()) == bool(marks)
            assert page.evaluate("document.getElementById('input').scrollTop") == 0
            assert overflow(page) == 0
            if item in SPECIAL_TEXTS:
                assert serious_problems(page) == []
            if item == "right-to-left":
                assert page.locator("#input p").evaluate("text => getComputedStyle(text).direction") == "rtl"
            if item == "long":
                while not is_focused(page, "#input"):
                    page.keyboard.press("Shift+Tab" if number else "Tab")
                page.keyboard.press("End")
                until(page, "document.getElementById('input').scrollTop > 100")
            press(page, "12"[number % 2])
        assert seen == texts
        assert page.locator("script").count() == 1
        assert page.locator("#done-title").inner_text() == "All settled."
    assert LONG_TEXT in seen.values()


@pytest.mark.parametrize("window", WINDOWS)
def test_pictures_are_enlarged_with_the_keyboard(run: Path, open_page: OpenPage, window: dict[str, Any]) -> None:
    with serving_here(run) as url:
        page = open_page(url, **window)
        item, lines = shown(page), page.evaluate("view.n_ledger_lines")
        page.keyboard.press("+")
        assert page.get_by_role("dialog", name=item).count() == 1
        until(page, "document.getElementById('large').naturalWidth > 0")
        stage, large = (
            page.evaluate(f"(({{ width, height }}) => Math.min(width, height))({element}.getBoundingClientRect())")
            for element in ("document.querySelector('#input img')", "document.getElementById('large')")
        )
        assert large > 1.3 * stage
        assert serious_problems(page) == []
        assert overflow(page) == 0
        page.keyboard.press("1")  # decides nothing meanwhile
        page.keyboard.press("Escape")
        assert not page.locator("#large-box").is_visible()
        assert page.evaluate("view.n_ledger_lines") == lines
        press(page, "1")
        ready(page)
        assert shown(page) != item

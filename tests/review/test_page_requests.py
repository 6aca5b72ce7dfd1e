"""Requests of the review page that overlap: answers that arrive late or out of order, in a real browser."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crowdfuse.review.item_inputs import ItemInputs
from crowdfuse.review.review_order import ItemFilter
from crowdfuse.review.run_folder import read_run
from crowdfuse.review.session import ReviewSession
from tests.browser import TIMEOUT_MS
from tests.review.conftest import (
    TRUTH,
    announced,
    choose_annotator,
    intercept,
    press,
    ready,
    serving_here,
    shown,
    until,
)

OpenPage = Callable[..., Any]
EVERYTHING = ItemFilter(disputed=False)
OWL = ItemFilter(label=TRUTH.index("owl"))
POLLING = "**/api/view?*n_ledger_lines=*"


def open_session(run: Path) -> ReviewSession:
    """Return the session of a second reviewer, as if in another process."""
    folder = read_run(run)
    return ReviewSession(folder, ItemInputs(folder), "sam")


def settle_position(session: ReviewSession, index: int) -> None:
    item = session.view(EVERYTHING, at=index)["item"]
    session.settle(index, 0, facts_hash=item["facts_hash"], version=item["version"], item_filter=EVERYTHING)


def total_of(run: Path, item_filter: ItemFilter) -> int:
    """Return how many items pass a filter; the default filter must have another number."""
    totals = [open_session(run).view(one)["n_items"] for one in (item_filter, ItemFilter())]
    assert totals[0] != totals[1]
    return int(totals[0])


class Held:
    """Requests of a page to addresses like `pattern`, none of which is answered before `release`."""

    def __init__(self, page: Any, pattern: str) -> None:
        self.page = page
        self.routes: list[Any] = []
        self.lets_pass = False
        intercept(page, pattern, lambda route: route.fallback() if self.lets_pass else self.routes.append(route))

    def wait(self) -> None:
        """Wait until there is a request."""
        deadline = time.monotonic() + TIMEOUT_MS / 1000
        while not self.routes:
            assert time.monotonic() < deadline, "no such request was intercepted"
            self.page.wait_for_timeout(10)

    def release(self, answer: Any = None) -> None:
        """Send these requests to the server now, or answer them by `answer`, and let later ones pass."""
        self.lets_pass = True
        for route in self.routes:
            route.fulfill(response=route.fetch() if answer is None else answer)


class LateRoutes:
    """A page that intercepts requests late: only after it has evaluated something."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.late: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)

    def route(self, *route: Any) -> None:
        self.late.append(route)

    def evaluate(self, expression: str) -> Any:
        found = self.page.evaluate(expression)
        while self.late:
            self.page.route(*self.late.pop(0))
        return found


def test_a_request_is_held_even_if_the_browser_starts_to_intercept_late(run: Path, open_page: OpenPage) -> None:
    with serving_here(run) as url:
        page = open_page(url)
        held = Held(LateRoutes(page), "**/api/settle?*")
        page.keyboard.press("1")
        held.wait()
        assert page.evaluate("view.n_ledger_lines") == 0
        held.release()
        until(page, "view.n_ledger_lines === 1")


def poll(page: Any, held: Held) -> None:
    """Start a poll; the promise `polled` resolves when the page has dealt with the answer."""
    page.evaluate("() => { window.polled = pollView(); }")
    held.wait()


def test_an_answer_from_before_an_undo_does_not_replace_the_view_after_it(run: Path, open_page: OpenPage) -> None:
    with serving_here(run) as url:
        page = open_page(url)
        first = shown(page)
        press(page, "1")
        held = Held(page, POLLING)
        poll(page, held)
        before = held.routes[0].fetch()
        press(page, "u")
        announced(page, "Undone.")
        held.release(before)
        page.evaluate("polled")
        assert page.evaluate("view.n_ledger_lines") == 2
        assert shown(page) == first
        assert "Undone." in page.locator("#live").inner_text()
        assert "0 of 24 settled" in page.locator("#progress").inner_text()


def test_of_two_polls_the_answer_with_fewer_lines_is_dropped(run: Path, open_page: OpenPage) -> None:
    with serving_here(run) as url:
        page, sam = open_page(url), open_session(run)
        others = [index for index in range(len(sam.run.items)) if index != page.evaluate("view.item.index")]
        held = Held(page, POLLING)
        poll(page, held)
        settle_position(sam, others[0])
        one_line = held.routes[0].fetch()
        settle_position(sam, others[1])
        held.lets_pass = True
        page.evaluate("pollView()")
        until(page, "view.n_ledger_lines === 2")
        held.release(one_line)
        page.evaluate("polled")
        assert page.evaluate("view.n_ledger_lines") == 2
        assert page.evaluate("view.n_decisions") == 2


def test_a_poll_from_before_a_skip_does_not_bring_the_item_back(run: Path, open_page: OpenPage) -> None:
    with serving_here(run) as url:
        page, sam = open_page(url), open_session(run)
        held = Held(page, POLLING)
        poll(page, held)
        press(page, "s")
        second = shown(page)
        position = page.evaluate("view.item.index")
        settle_position(sam, next(index for index in range(len(sam.run.items)) if index > position + 1))
        held.release()  # this answer has more lines than the view
        page.evaluate("polled")
        assert shown(page) == second
        page.evaluate("pollView()")
        until(page, "view.n_ledger_lines === 2")
        assert shown(page) == second


def test_a_view_of_the_same_item_is_announced_only_if_the_item_changed(run: Path, open_page: OpenPage) -> None:
    with serving_here(run) as url:
        page, sam = open_page(url), open_session(run)
        first, position = shown(page), page.evaluate("view.item.index")
        announced(page, f"Item {first}.")
        others = [index for index in range(len(sam.run.items)) if index != position]
        settle_position(sam, others[0])
        page.evaluate("pollView()")
        until(page, "view.n_ledger_lines === 1")
        assert f"Item {first}." in page.locator("#live").inner_text()
        (run.parent / "inputs" / first).unlink()
        settle_position(sam, others[1])
        page.evaluate("pollView()")
        announced(page, "changed in another tab")
        assert shown(page) == first
        assert "does not exist any more" in page.locator("#input").inner_text()


def test_a_filter_chosen_during_a_decision_is_shown_after_it(run: Path, open_page: OpenPage) -> None:
    with serving_here(run) as url:
        page = open_page(url)
        first, total = shown(page), total_of(run, OWL)
        held = Held(page, "**/api/settle?*")
        page.keyboard.press("1")
        held.wait()
        page.select_option("#class", label="owl")
        held.release()
        until(page, f"view.n_ledger_lines === 1 && view.n_items === {total}")
        ready(page)
        assert shown(page) != first
    assert len((run / "decisions.jsonl").read_text().splitlines()) == 1


def test_a_refusal_stays_visible_if_the_filter_changes_before_it_arrives(run: Path, open_page: OpenPage) -> None:
    with serving_here(run) as url:
        page = open_page(url)
        held = Held(page, "**/api/settle?*")
        page.keyboard.press("1")
        held.wait()
        settle_position(open_session(run), page.evaluate("view.item.index"))
        page.select_option("#class", label="owl")
        held.release()
        until(page, f"view.n_ledger_lines === 1 && view.n_items === {total_of(run, OWL)}")
        ready(page)
        assert "meanwhile, sam settled" in page.locator("#error").inner_text()


def test_of_two_filters_the_last_is_shown(run: Path, open_page: OpenPage) -> None:
    with serving_here(run) as url:
        page = open_page(url)
        held = Held(page, "**/api/view?*")
        choose_annotator(page, "bob (24 labels")
        held.wait()
        page.select_option("#annotator", label="any annotator")
        page.select_option("#class", label="owl")
        held.release()
        until(page, f"view.n_items === {total_of(run, OWL)}")


def test_an_image_that_arrives_during_a_change_of_filter_allows_no_decision(run: Path, open_page: OpenPage) -> None:
    with serving_here(run) as url:
        page = open_page(url)
        settle_position(open_session(run), page.evaluate("view.next_image"))  # whose image the browser has already
        images, views = Held(page, "**/image/*"), Held(page, "**/api/view?*")
        page.keyboard.press("1")
        until(page, "view.n_ledger_lines === 2")
        images.wait()
        image = "document.querySelector('#input img')"
        page.evaluate(f"() => {{ window.loaded = new Promise((done) => {image}.addEventListener('load', done)); }}")
        page.select_option("#class", label="owl")
        views.wait()
        images.release()
        page.evaluate("loaded.then(() => null)")
        assert page.evaluate("isBusy()")
        views.release()
        until(page, f"view.n_items === {total_of(run, OWL)}")
        ready(page)


def test_a_filter_whose_view_did_not_arrive_is_requested_again(run: Path, open_page: OpenPage) -> None:
    with serving_here(run) as url:
        page = open_page(url)
        page.route("**/api/view?*", lambda route: route.abort("connectionrefused"))
        page.select_option("#class", label="owl")
        page.wait_for_selector("#error:not([hidden])")
        page.unroute("**/api/view?*")
        until(page, f"view.n_items === {total_of(run, OWL)}")
        assert page.locator("#error").is_hidden()


def test_the_state_of_the_refit_from_before_its_start_is_dropped(run: Path, open_page: OpenPage) -> None:
    running = json.dumps({"state": "running", "out": "run-refit-1", "message": "epoch 1 of 2", "progress": 0.25})
    with serving_here(run) as url:
        page = open_page(url)
        press(page, "1")
        held = Held(page, "**/api/refit-status")
        page.evaluate("() => { window.polled = pollRefit(); }")
        held.wait()
        before = held.routes[0].fetch()
        page.route("**/api/refit", lambda route: route.fulfill(body=running, content_type="application/json"))
        page.click("#refit")
        announced(page, "The refit has started.")
        page.route("**/api/refit-status", lambda route: route.fulfill(body=running, content_type="application/json"))
        held.release(before)
        page.evaluate("polled")
        assert page.locator("#refitted").is_visible()
        assert "epoch 1 of 2" in page.locator("#refit-state").inner_text()
        assert page.evaluate("document.querySelector('#refit-state progress').value") == 0.25


def test_a_poll_carries_the_token_of_this_start(run: Path, open_page: OpenPage) -> None:
    with serving_here(run) as url:
        page = open_page(url)
        with page.expect_request(POLLING) as request:
            page.evaluate("pollView()")
        assert request.value.headers["x-crowdfuse-token"] == page.evaluate("token")

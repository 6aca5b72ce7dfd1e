"""Valid decisions and the next items, compared with a simple replay."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from crowdfuse.review.decision_state import DecisionState, replay
from crowdfuse.review.review_order import next_open_items

NAMES = ["a", "b", "c", "d"]


def entry(line: int, action: str, item: str, **more: Any) -> dict[str, Any]:
    return {"line": line, "action": action, "item": item, "who": "rita", **more}


def test_the_last_line_that_was_not_undone_is_valid() -> None:
    lines = [
        entry(1, "skip", "a"),
        entry(2, "settle", "a", label="cat"),
        entry(3, "settle", "b", label="dog"),
        entry(4, "undo", "a", undoes=2),
    ]
    state = replay(lines)
    assert {item: line["label"] for item, line in state.settled().items()} == {"b": "dog"}
    skipped = state.decision_on("a")
    assert skipped is not None
    assert skipped["action"] == "skip"
    assert state.version == {"a": 4, "b": 3}
    last = state.last_of("rita")
    assert last is not None
    assert last["line"] == 3
    assert state.last_of("somebody else") is None


def test_untouched_items_come_first_then_skipped_ones_by_age() -> None:
    state = replay([entry(1, "skip", "c"), entry(2, "skip", "a"), entry(3, "settle", "d", label="cat")])
    assert next_open_items([0, 1, 2, 3], NAMES, state, 9) == [1, 2, 0]
    assert next_open_items([0, 1, 2, 3], NAMES, state, 2) == [1, 2]
    assert next_open_items([3], NAMES, state, 2) == []
    again = replay([entry(1, "skip", "c"), entry(2, "skip", "a"), entry(3, "skip", "c")])
    assert next_open_items([0, 2], NAMES, again, 9) == [0, 2]  # skipped again, c goes behind a


@given(st.lists(st.tuples(st.sampled_from(["settle", "skip", "undo"]), st.sampled_from(NAMES), st.integers(1, 12))))
def test_the_state_equals_removing_all_undone_lines(moves: list[tuple[str, str, int]]) -> None:
    lines: list[dict[str, Any]] = []
    for action, item, undone in moves:
        if action == "undo":
            target = next((line for line in lines if line["line"] == undone and line["action"] != "undo"), None)
            if target is None:
                continue
            lines.append(entry(len(lines) + 1, "undo", target["item"], undoes=undone))
        else:
            lines.append(entry(len(lines) + 1, action, item, label=f"{len(lines)}"))
    struck = {line["undoes"] for line in lines if line["action"] == "undo"}
    state = DecisionState()
    for line in lines:  # one at a time is the same as all at once
        state.apply([line])
    assert state.settled() == replay(lines).settled()
    for item in NAMES:
        left = [x for x in lines if x["item"] == item and x["action"] != "undo" and x["line"] not in struck]
        assert state.decision_on(item) == (left[-1] if left else None)

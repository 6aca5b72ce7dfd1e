"""Reviewing without a page: order, choices, decisions and what is recorded with them, inputs that are gone."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfuse import load, runs
from crowdfuse.review.folder import read_run
from crowdfuse.review.item_inputs import ItemInputs, NoPictureError
from crowdfuse.review.session import KEYS, ItemFilter, RefusedError, ReviewSession, gold_csv, keys_of, read_gold_rows
from tests.review.conftest import TRUTH, make_run, read_rows, write_rows

DISPUTED = ItemFilter()


def at_desk(run: Path, who: str = "rita") -> ReviewSession:
    folder = read_run(run)
    return ReviewSession(folder, ItemInputs(folder), who)


@pytest.fixture
def desk(run: Path) -> ReviewSession:
    return at_desk(run)


def seen(desk: ReviewSession, choice: ItemFilter = DISPUTED) -> dict[str, Any]:
    item: dict[str, Any] = desk.view(choice)["item"]
    return {"index": item["index"], "shown": item["shown"], "version": item["version"], "choice": choice}


def test_the_least_sure_comes_first(desk: ReviewSession, run: Path) -> None:
    rows = read_rows(run / "review_items.csv")[1:]
    assert desk.run.items == [row[0] for row in rows]
    shown = []
    for _ in range(5):
        shown.append(desk.view(DISPUTED)["item"]["item"])
        desk.settle(label=0, **seen(desk))
    assert shown == [row[0] for row in rows if row[5]][:5]


def test_a_line_says_who_when_what_was_shown_and_which_model(desk: ReviewSession, run: Path) -> None:
    choice = ItemFilter(annotator=desk.names.index("bob"))
    before = desk.view(choice)["item"]
    desk.settle(label=2, **seen(desk, choice))
    line = json.loads((run / "decisions.jsonl").read_text())
    model = json.loads((run / "model" / "model.json").read_text())
    assert (line["who"], line["item"], line["label"]) == ("rita", before["item"], "owl")
    assert line["model"] == model["weights_sha256"]
    assert line["shown"] == before["facts"] | {"of": {"disputed": True, "annotator": "bob", "class": None}}
    assert {entry["annotator"] for entry in line["shown"]["said"]} == {"ada", "bob", "cy"}
    assert line["shown"]["input"] == {
        "kind": "image",
        "file": str(run.parent / "inputs" / before["item"]),
        "found": True,
    }


def test_weights_are_those_of_the_model_on_this_item(desk: ReviewSession, run: Path) -> None:
    material = runs.job_data.read_job_data(runs.Job(**vars(desk.run.job) | {
        "labels": str(run.parent / "labels.csv"), "inputs": str(run.parent / "inputs"),
    }))  # fmt: skip
    weights = load(run / "model").annotator_weights(material.loaded.inputs.values, material.all_annotations)
    for index in (0, 7, 20):
        row = material.items.tolist().index(desk.run.items[index])
        facts = desk.facts(index)
        assert facts["weights_are"] == "here"
        for line in facts["said"]:
            column = material.all_annotations.annotators.tolist().index(line["annotator"])
            assert line["weight"] == pytest.approx(weights[row, column], abs=1e-4)
        assert [line["weight"] for line in facts["said"]] == sorted(
            (line["weight"] for line in facts["said"]), reverse=True
        )


def test_choices_are_by_annotator_and_class(desk: ReviewSession, run: Path) -> None:
    triples = read_rows(run.parent / "labels.csv")[1:]
    everything = ItemFilter(disputed=False)
    assert desk.view(everything)["total"] == len(desk.run.items)
    bob = desk.names.index("bob")
    assert desk.view(ItemFilter(disputed=False, annotator=bob))["total"] == len(
        {t[0] for t in triples if t[1] == "bob"}
    )
    fused = {row[0]: row[1] for row in read_rows(run / "fused.csv")[1:]}
    consensus = {row[0]: row[1] for row in read_rows(run / "review_items.csv")[1:]}
    for k, name in enumerate(TRUTH):
        wanted = {t[0] for t in triples if t[2] == name} | {i for i in fused if name in (fused[i], consensus[i])}
        assert desk.view(ItemFilter(disputed=False, label=k))["total"] == len(wanted)


def test_skipped_items_come_again_at_the_end(desk: ReviewSession) -> None:
    first = desk.view(DISPUTED)["item"]["item"]
    desk.skip(**seen(desk))
    total = desk.view(DISPUTED)["total"]
    for _ in range(total - 1):
        assert desk.view(DISPUTED)["item"]["item"] != first
        desk.settle(label=0, **seen(desk))
    assert desk.view(DISPUTED)["item"]["item"] == first
    desk.settle(label=0, **seen(desk))
    assert desk.view(DISPUTED)["item"] is None
    assert desk.view(DISPUTED)["settled"] == total


def test_undo_brings_the_item_back_once(desk: ReviewSession) -> None:
    before = desk.view(DISPUTED)["item"]["item"]
    made = desk.settle(label=0, **seen(desk))
    desk.undo(made["line"])
    assert desk.view(DISPUTED)["item"]["item"] == before
    assert read_gold_rows(desk.run.path)[0] == []
    for line in (made["line"], 2, 99, 0):
        with pytest.raises(RefusedError, match="nothing to undo"):
            desk.undo(line)


def test_two_desks_see_each_other_and_override_nothing(run: Path) -> None:
    rita, sam = at_desk(run), at_desk(run, "sam")
    both_see = seen(rita)
    assert seen(sam) == both_see
    rita.settle(label=1, **both_see)
    with pytest.raises(RefusedError, match="was settled meanwhile, as dog, by rita"):
        sam.settle(label=0, **both_see)
    assert sam.view(DISPUTED)["settled"] == 1
    sam.settle(label=0, **seen(sam))
    assert [label for _, label in read_gold_rows(run)[0]] == ["dog", "cat"]
    assert rita.view(DISPUTED)["settled"] == 2
    last = rita.view(DISPUTED)["last"]
    assert last["label"] == "dog"  # rita's own, not sam's


def test_what_was_not_shown_is_not_decided(desk: ReviewSession, run: Path) -> None:
    given = seen(desk)
    (run.parent / "inputs" / desk.run.items[given["index"]]).unlink()
    with pytest.raises(RefusedError, match="has changed since it was shown"):
        desk.settle(label=0, **given)
    assert not (run / "decisions.jsonl").read_bytes()


def test_images_that_are_gone_are_named(run: Path) -> None:
    shutil.move(run.parent / "inputs", run.parent / "elsewhere")
    desk = at_desk(run)
    item = desk.view(DISPUTED)["item"]
    assert item["facts"]["input"] == {"kind": "image", "file": str(Path("inputs", item["item"])), "found": False}
    with pytest.raises(NoPictureError, match=item["item"]):
        desk.exhibits.picture(item["index"])
    assert item["facts"]["weights_are"] == "means"
    means = {row[0]: float(row[4]) for row in read_rows(run / "annotators.csv")[1:]}
    assert {line["annotator"]: line["weight"] for line in item["facts"]["said"]} == means
    assert any("24 of 24 images are not below" in note for note in desk.about()["notes"])
    desk.settle(label=0, **seen(desk))


def test_a_damaged_image_is_named(desk: ReviewSession, run: Path) -> None:
    path = run.parent / "inputs" / desk.run.items[0]
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(NoPictureError, match=f"{path.name}: not a readable image"):
        desk.exhibits.picture(0)


@pytest.mark.parametrize("how", ["gone", "changed"])
def test_labels_that_are_gone_or_changed_are_done_without(run: Path, how: str) -> None:
    labels = run.parent / "labels.csv"
    labels.unlink() if how == "gone" else labels.write_text(labels.read_text() + "photo-00.png,new,cat\n")
    desk = at_desk(run)
    facts = desk.view(DISPUTED)["item"]["facts"]
    assert facts["said"] == []
    assert " x" in facts["counts"]
    assert any("labels.csv" in note and "who said what cannot be shown" in note for note in desk.about()["notes"])
    desk.settle(label=1, **seen(desk))
    assert len(read_gold_rows(run)[0]) == 1


def test_features_are_shown_by_name_and_gone_ones_done_without(tmp_path: Path) -> None:
    items = [f"{n}" for n in range(12)]
    run = make_run(tmp_path, items=items, classes=["7", "8"], annotators=["ada", "bob", "cy"], kind="table")
    desk = at_desk(run)
    item = desk.view(DISPUTED)["item"]
    row = {row[0]: row[1:] for row in read_rows(tmp_path / "inputs.csv")}[item["item"]]
    assert item["facts"]["input"]["values"] == [
        [name, pytest.approx(float(value))]
        for name, value in zip(("height", "<b>width</b>", "depth"), row, strict=True)
    ]
    assert item["facts"]["weights_are"] == "here"
    desk.settle(label=1, **seen(desk))
    assert read_gold_rows(run)[0] == [(item["item"], "8")]
    (tmp_path / "inputs.csv").unlink()
    assert at_desk(run).view(DISPUTED)["item"]["facts"]["input"]["kind"] == "nothing"


def test_arrays_of_images_are_shown_as_images(tmp_path: Path) -> None:
    items = [f"i{n}" for n in range(8)]
    X = np.random.default_rng(0).normal(size=(8, 1, 16, 16)).astype(np.float32)
    np.savez(tmp_path / "x.npz", X=X, items=np.array(items))
    run = make_run(
        tmp_path,
        items=items,
        classes=["a", "b"],
        annotators=["x", "y", "z"],
        kind="table",
        inputs=str(tmp_path / "x.npz"),
    )
    desk = at_desk(run)
    assert desk.facts(0)["input"]["kind"] == "image"
    assert desk.exhibits.picture(0)[1] == "image/png"


def test_items_with_gold_are_not_asked_for(tmp_path: Path) -> None:
    items = [f"i{n}" for n in range(12)]
    write_rows(tmp_path / "gold.csv", ("item", "label"), [("i3", "a")])
    write_rows(tmp_path / "test.csv", ("item", "label"), [("i5", "b")])
    gold = {"gold": str(tmp_path / "gold.csv"), "test": str(tmp_path / "test.csv")}
    run = make_run(tmp_path, items=items, classes=["a", "b"], annotators=["x", "y", "z"], kind="table", **gold)
    assert set(items) - set(read_run(run).items) == {"i3", "i5"}


def test_long_lists_of_people_are_read_and_csv_stays_as_it_was(run: Path) -> None:
    rows = read_rows(run / "review_items.csv")
    rows[1][rows[0].index("disagreeing")] = "; ".join(f"annotator-{n}" for n in range(20_000))
    write_rows(run / "review_items.csv", tuple(rows[0]), rows[1:])
    usual = csv.field_size_limit()
    assert read_run(run).rows[0]["disagreeing"].endswith("annotator-19999")
    assert csv.field_size_limit() == usual


def test_what_is_no_finished_run_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such run folder"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="is not a run folder"):
        read_run(tmp_path)
    (run / "summary.json").unlink()
    with pytest.raises(ValueError, match="crowdfuse fit --resume"):
        read_run(run)


def test_force_does_not_replace_decisions(desk: ReviewSession, run: Path) -> None:
    desk.settle(label=0, **seen(desk))
    job = runs.Job(
        **vars(desk.run.job) | {"labels": str(run.parent / "labels.csv"), "inputs": str(run.parent / "inputs")}
    )
    with pytest.raises(FileExistsError, match="holds decisions of reviewers"):
        runs.start(job, run, force=True, verbose=0)
    assert read_gold_rows(run)[0]


def test_keys_are_distinct_and_leave_undo_and_skip_alone() -> None:
    assert len(set(KEYS)) == len(KEYS) == 33
    assert not set("us?") & set(KEYS)


def test_gold_can_be_read_back(tmp_path: Path) -> None:
    rows = [('a "b", c', "x\ny"), ("שורה", "<b>")]
    path = tmp_path / "gold.csv"
    path.write_text(gold_csv(rows), encoding="utf-8", newline="")
    assert read_rows(path) == [["item", "label"], *(list(row) for row in rows)]


@pytest.mark.parametrize(
    ("classes", "keys"),
    [
        (["cat", "dog", "owl"], "123"),
        ([str(digit) for digit in range(10)], "0123456789"),
        ([str(number) for number in range(12)], "0123456789ab"),
        (["2", "cat", "dog"], "213"),
        (["a", "A", "b"], "12b"),  # a key cannot tell a from A
        (["s", "u", "x"], "12x"),  # s skips, u undoes
        ([f"class {n}" for n in range(33)], "123456789abcdefghijklmnopqrtvwxyz"),
        ([*"0123456789abcdefghijklmnopqrtvwxy"], "0123456789abcdefghijklmnopqrtvwxy"),
    ],
)
def test_each_class_has_a_key_and_its_own_where_its_name_is_one(classes: list[str], keys: str) -> None:
    assert keys_of(classes) == [*keys]


def test_with_many_classes_none_has_a_key() -> None:
    assert keys_of([str(number) for number in range(34)]) == [None] * 34

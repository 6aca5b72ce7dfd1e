"""Review sessions without a page: order, filters, decisions and what is recorded with them, missing inputs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfuse import Annotations, load, runs
from crowdfuse.quality.consensus import Consensus, consensus
from crowdfuse.quality.consensus_file import save_consensus
from crowdfuse.report.item_explanation import explain_item
from crowdfuse.review.item_inputs import ItemInputs, NoPictureError
from crowdfuse.review.run_folder import read_run
from crowdfuse.review.session import (
    CLASS_KEYS,
    ItemFilter,
    RefusedError,
    ReviewSession,
    assign_keys,
    gold_csv,
    read_gold_rows,
)
from tests.review.conftest import TRUTH, make_run, read_rows, write_rows

DISPUTED = ItemFilter()


def open_session(run: Path, who: str = "rita") -> ReviewSession:
    folder = read_run(run)
    return ReviewSession(folder, ItemInputs(folder), who)


@pytest.fixture
def session(run: Path) -> ReviewSession:
    return open_session(run)


def table(path: Path) -> list[dict[str, str]]:
    head, *rows = read_rows(path)
    return [dict(zip(head, row, strict=True)) for row in rows]


def write_consensus(run: Path, result: Consensus) -> None:
    """Replace the consensus of a run."""
    save_consensus(result, run / "posterior.safetensors")


def seen(session: ReviewSession, item_filter: ItemFilter = DISPUTED) -> dict[str, Any]:
    item: dict[str, Any] = session.view(item_filter)["item"]
    return {
        "index": item["index"],
        "facts_hash": item["facts_hash"],
        "version": item["version"],
        "item_filter": item_filter,
    }


def test_the_least_confident_item_comes_first(session: ReviewSession, run: Path) -> None:
    rows = read_rows(run / "consensus.csv")[1:]
    assert session.run.items == [row[0] for row in rows]
    given: dict[str, set[str]] = {}
    for item, _, label in read_rows(run.parent / "labels.csv")[1:]:
        given.setdefault(item, set()).add(label)
    disputed = [row[0] for row in rows if given[row[0]] | {row[5]} != {row[1]}]
    shown = []
    for _ in range(5):
        shown.append(session.view(DISPUTED)["item"]["item"])
        session.settle(label=0, **seen(session))
    assert shown == disputed[:5]


def test_the_facts_are_those_of_the_tables_to_the_digit(session: ReviewSession, run: Path) -> None:
    consensus = {row["item"]: row for row in table(run / "consensus.csv")}
    annotators = {row["annotator"]: row for row in table(run / "annotators.csv")}
    suspicion = {(row["item"], row["annotator"]): row["suspicion"] for row in table(run / "suspicious_labels.csv")}
    for index, item in enumerate(session.run.items):
        facts, row = session.facts(index), consensus[item]
        assert (facts["consensus"], facts["predicted"]) == (row["label"], row["predicted"])
        assert f"{facts['confidence']:.6f}" == row["confidence"]
        assert f"{facts['predicted_confidence']:.6f}" == row["predicted_confidence"]
        assert sum(entry["n_labels"] for entry in facts["label_counts"]) == len(facts["labels"]) == int(row["n_labels"])
        probability = {entry["label"]: entry["probability"] for entry in facts["label_counts"]}
        for line in facts["labels"]:
            for name in ("accuracy", "accuracy_low", "accuracy_high"):
                assert f"{line[name]:.6f}" == annotators[line["annotator"]][name]
            assert f"{line['suspicion']:.6f}" == suspicion[item, line["annotator"]]
            assert line["suspicion"] == pytest.approx(1 - probability[line["label"]], abs=2e-6)
    shown = session.about()["annotators"]
    assert [entry["name"] for entry in shown] == session.annotator_names
    assert {entry["name"]: f"{entry['accuracy']:.6f}" for entry in shown} == {
        name: row["accuracy"] for name, row in annotators.items()
    }
    assert session.annotator_names == list(annotators)  # in the order of the file


def test_the_explanation_of_the_consensus_is_shown(session: ReviewSession) -> None:
    run = session.run
    for index, row in enumerate(run.rows):
        assert session.facts(index)["explanation"] == explain_item(run.consensus, int(row))


def test_items_without_labels_are_not_reviewed_and_an_agreed_item_is_not_disputed(run: Path) -> None:
    ann = Annotations.from_matrix([["cat", "cat"], [None, None], ["dog", "cat"], ["dog", "dog"]], classes=TRUTH)
    probabilities = [[0.9, 0.1, 0], [0.9, 0.1, 0], [0.2, 0.8, 0], [0.8, 0.2, 0]]
    write_consensus(run, consensus(ann, probabilities))
    folder = read_run(run)
    assert sorted(folder.items) == ["0", "2", "3"]
    disputed = {item for item, disputed in zip(folder.items, folder.disputed, strict=True) if disputed}
    assert disputed == {"2", "3"}  # annotators disagree on 2, the prediction on 3
    assert [folder.is_disputed(index) for index in range(3)] == folder.disputed.tolist()


def test_annotators_of_unknown_accuracy_are_shown_without_it(run: Path) -> None:
    write_consensus(run, consensus(Annotations.from_matrix([["cat", None], [None, "dog"]], classes=TRUTH)))
    session = open_session(run)
    facts = session.facts(0)
    assert facts["labels"][0]["accuracy"] is facts["labels"][0]["accuracy_low"] is None
    assert (facts["predicted"], facts["predicted_confidence"]) == (None, None)
    assert any("cannot be estimated" in note for note in session.about()["notes"])


def test_a_ledger_line_records_reviewer_model_and_what_was_shown(session: ReviewSession, run: Path) -> None:
    item_filter = ItemFilter(annotator=session.annotator_names.index("bob"))
    before = session.view(item_filter)["item"]
    session.settle(label=2, **seen(session, item_filter))
    line = json.loads((run / "decisions.jsonl").read_text())
    model = json.loads((run / "model" / "model.json").read_text())
    assert (line["who"], line["item"], line["label"]) == ("rita", before["item"], "owl")
    assert line["model"] == model["weights_sha256"]
    assert line["shown"] == before["facts"] | {"item_filter": {"disputed": True, "annotator": "bob", "class": None}}
    assert {entry["annotator"] for entry in line["shown"]["labels"]} == {"ada", "bob", "cy"}
    assert line["shown"]["input"] == {
        "kind": "image",
        "file": str(run.parent / "inputs" / before["item"]),
        "exists": True,
    }


def test_weights_equal_those_of_the_model_on_the_item(session: ReviewSession, run: Path) -> None:
    material = runs.read_job_data(runs.Job(**vars(session.run.job) | {
        "labels": str(run.parent / "labels.csv"), "inputs": str(run.parent / "inputs"),
    }))  # fmt: skip
    weights = load(run / "model").annotator_weights(material.loaded.inputs.values, material.all_annotations)
    for index in (0, 7, 20):
        row = material.items.tolist().index(session.run.items[index])
        facts = session.facts(index)
        for line in facts["labels"]:
            column = material.all_annotations.annotators.tolist().index(line["annotator"])
            share = line["weight"] / len(facts["labels"])  # 1 is an even share
            assert share == pytest.approx(weights[row, column], abs=1e-4)
        suspicions = [line["suspicion"] for line in facts["labels"]]
        assert suspicions == sorted(suspicions)  # the most probable label first


def test_items_are_filtered_by_annotator_and_class(session: ReviewSession, run: Path) -> None:
    triples = read_rows(run.parent / "labels.csv")[1:]
    everything = ItemFilter(disputed=False)
    assert session.view(everything)["n_items"] == len(session.run.items)
    bob = session.annotator_names.index("bob")
    assert session.view(ItemFilter(disputed=False, annotator=bob))["n_items"] == len(
        {t[0] for t in triples if t[1] == "bob"}
    )
    rows = table(run / "consensus.csv")
    for k, name in enumerate(TRUTH):
        wanted = {t[0] for t in triples if t[2] == name}
        wanted |= {row["item"] for row in rows if name in (row["label"], row["predicted"])}
        assert session.view(ItemFilter(disputed=False, label=k))["n_items"] == len(wanted)


def test_skipped_items_come_again_at_the_end(session: ReviewSession) -> None:
    first = session.view(DISPUTED)["item"]["item"]
    session.skip(**seen(session))
    total = session.view(DISPUTED)["n_items"]
    for _ in range(total - 1):
        assert session.view(DISPUTED)["item"]["item"] != first
        session.settle(label=0, **seen(session))
    assert session.view(DISPUTED)["item"]["item"] == first
    session.settle(label=0, **seen(session))
    assert session.view(DISPUTED)["item"] is None
    assert session.view(DISPUTED)["n_settled"] == total


def test_undo_brings_the_item_back_once(session: ReviewSession) -> None:
    before = session.view(DISPUTED)["item"]["item"]
    made = session.settle(label=0, **seen(session))
    session.undo(made["line"])
    assert session.view(DISPUTED)["item"]["item"] == before
    assert read_gold_rows(session.run.path)[0] == []
    for line in (made["line"], 2, 99, 0):
        with pytest.raises(RefusedError, match=f"line {line} .* cannot be undone"):
            session.undo(line)


def test_two_sessions_see_each_others_decisions_and_override_none(run: Path) -> None:
    rita, sam = open_session(run), open_session(run, "sam")
    both_see = seen(rita)
    assert seen(sam) == both_see
    rita.settle(label=1, **both_see)
    with pytest.raises(RefusedError, match=r"meanwhile, rita settled .* as dog"):
        sam.settle(label=0, **both_see)
    assert sam.view(DISPUTED)["n_settled"] == 1
    sam.settle(label=0, **seen(sam))
    assert [label for _, label in read_gold_rows(run)[0]] == ["dog", "cat"]
    assert rita.view(DISPUTED)["n_settled"] == 2
    last = rita.view(DISPUTED)["last_decision"]
    assert last["label"] == "dog"  # rita's own, not sam's


def test_a_decision_is_refused_if_the_facts_changed_since_they_were_shown(session: ReviewSession, run: Path) -> None:
    given = seen(session)
    (run.parent / "inputs" / session.run.items[given["index"]]).unlink()
    with pytest.raises(RefusedError, match=r"have changed since the item was shown.*look at it again"):
        session.settle(label=0, **given)
    assert not (run / "decisions.jsonl").read_bytes()


def test_missing_images_are_named(run: Path) -> None:
    shutil.move(run.parent / "inputs", run.parent / "elsewhere")
    session = open_session(run)
    item = session.view(DISPUTED)["item"]
    assert item["facts"]["input"] == {"kind": "image", "file": str(Path("inputs", item["item"])), "exists": False}
    with pytest.raises(NoPictureError, match=item["item"]):
        session.item_inputs.picture(item["index"])
    labels = item["facts"]["labels"]
    assert [line["weight"] for line in labels] == [None] * 3
    suspicions = [line["suspicion"] for line in labels]
    assert suspicions == sorted(suspicions)
    assert any("24 of 24 images are not in" in note for note in session.about()["notes"])
    session.settle(label=0, **seen(session))


def test_a_damaged_image_is_named(session: ReviewSession, run: Path) -> None:
    path = run.parent / "inputs" / session.run.items[0]
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(NoPictureError, match=f"{path.name}: not a readable image"):
        session.item_inputs.picture(0)


@pytest.mark.parametrize("how", ["gone", "changed"])
def test_review_does_not_need_the_file_of_labels(run: Path, how: str) -> None:
    before = open_session(run).view(DISPUTED)
    labels = run.parent / "labels.csv"
    labels.unlink() if how == "gone" else labels.write_text(labels.read_text() + "photo-00.png,new,cat\n")
    session = open_session(run)
    assert session.view(DISPUTED) == before
    session.settle(label=1, **seen(session))
    assert len(read_gold_rows(run)[0]) == 1


def test_features_are_shown_by_name_and_may_be_missing(tmp_path: Path) -> None:
    items = [f"{n}" for n in range(12)]
    run = make_run(tmp_path, items=items, classes=["7", "8"], annotators=["ada", "bob", "cy"], kind="table")
    session = open_session(run)
    item = session.view(DISPUTED)["item"]
    row = {row[0]: row[1:] for row in read_rows(tmp_path / "inputs.csv")}[item["item"]]
    assert item["facts"]["input"]["values"] == [
        [name, pytest.approx(float(value))]
        for name, value in zip(("height", "<b>width</b>", "depth"), row, strict=True)
    ]
    session.settle(label=1, **seen(session))
    assert read_gold_rows(run)[0] == [(item["item"], "8")]
    (tmp_path / "inputs.csv").unlink()
    assert open_session(run).view(DISPUTED)["item"]["facts"]["input"]["kind"] == "missing"


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
    session = open_session(run)
    assert session.facts(0)["input"]["kind"] == "image"
    assert session.item_inputs.picture(0)[1] == "image/png"


@pytest.mark.parametrize("gold_is_gone", [False, True])
def test_items_with_gold_labels_are_not_reviewed(tmp_path: Path, gold_is_gone: bool) -> None:
    items = [f"i{n}" for n in range(12)]
    write_rows(tmp_path / "gold.csv", ("item", "label"), [("i3", "a")])
    write_rows(tmp_path / "test.csv", ("item", "label"), [("i5", "b")])
    gold = {"gold": str(tmp_path / "gold.csv"), "test": str(tmp_path / "test.csv")}
    run = make_run(tmp_path, items=items, classes=["a", "b"], annotators=["x", "y", "z"], kind="table", **gold)
    if gold_is_gone:  # the run folder has the gold labels that were trained on
        (tmp_path / "gold.csv").unlink()
    assert set(items) - set(read_run(run).items) == {"i3", "i5"}


@pytest.mark.parametrize("name", ["posterior.safetensors", "model/model.json"])
def test_a_missing_or_damaged_file_of_the_run_is_named(run: Path, name: str) -> None:
    (run / name).write_bytes(b"{")
    with pytest.raises(ValueError, match=rf"{name} is damaged .* fit'? again"):
        read_run(run)
    (run / name).unlink()
    with pytest.raises(ValueError, match=rf"{name} .* fit again"):
        read_run(run)


def test_only_finished_runs_can_be_reviewed(run: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such run folder"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="is not a run folder"):
        read_run(tmp_path)
    (run / "summary.json").unlink()
    with pytest.raises(ValueError, match="crowdfuse fit --resume"):
        read_run(run)


def test_force_does_not_replace_decisions(session: ReviewSession, run: Path) -> None:
    session.settle(label=0, **seen(session))
    job = runs.Job(
        **vars(session.run.job) | {"labels": str(run.parent / "labels.csv"), "inputs": str(run.parent / "inputs")}
    )
    with pytest.raises(FileExistsError, match="holds decisions of reviewers"):
        runs.start(job, run, force=True, verbose=0)
    assert read_gold_rows(run)[0]


def test_keys_are_distinct_and_not_those_of_undo_and_skip() -> None:
    assert len(set(CLASS_KEYS)) == len(CLASS_KEYS) == 33
    assert not set("us?") & set(CLASS_KEYS)


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
def test_each_class_gets_a_key_its_own_name_if_possible(classes: list[str], keys: str) -> None:
    assert assign_keys(classes) == [*keys]


def test_classes_have_no_keys_if_there_are_too_many() -> None:
    assert assign_keys([str(number) for number in range(34)]) == [None] * 34

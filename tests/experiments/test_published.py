"""Published results beside ours, here with generated files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.model_selection import train_test_split
from torch import nn
from typer.testing import CliRunner

from crowdfuse.cli import app
from crowdfuse.datasets.music_genres import load_music_genres
from crowdfuse.estimators import TrueLabelClassifier
from crowdfuse.experiments.correct_items import decode_correct
from crowdfuse.experiments.published import (
    METHOD_ROWS,
    N_SEEDS,
    PROTOCOLS,
    PublishedExecutor,
    PublishedResult,
    cosine_by_epoch,
    published_cells,
)
from crowdfuse.experiments.published_tables import difference_of_means
from tests.crowd_files import write_crowds


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with small LabelMe and Music data."""
    folder = write_crowds(tmp_path)
    write_music(folder, n_test=130)
    return folder


def write_music(folder: Path, n_test: int) -> None:
    generator = np.random.default_rng(0)
    y = np.arange(60 + n_test) % 3
    X = np.eye(3)[y] @ generator.normal(size=(3, 5)) + generator.normal(size=(len(y), 5))
    (folder / "music_genre").mkdir()
    np.savez(
        folder / "music_genre" / "music_genre.npz",
        x_train=X[:60],
        y_train=y[:60],
        x_test=X[60:],
        y_test=y[60:],
        answers=np.where(generator.random((60, 4)) < 0.3, -1, y[:60, None]),
        class_names=np.array(["blues", "jazz", "rock"]),
    )


def reproduce(data: Path, *arguments: str) -> Any:
    common = ["--data", str(data), "--out", str(data / "out"), "--quiet"]
    return CliRunner().invoke(app, ["reproduce", "published", *common, *arguments])


def test_the_whole_grid_has_every_row_on_every_data_set() -> None:
    found = published_cells()
    assert len(found) == len(PROTOCOLS) * N_SEEDS * len(METHOD_ROWS)
    part = published_cells(["music"], ["madl", "two-stage with mixup"], [4])
    assert [cell.row for cell in part] == ["two-stage with mixup", "madl"]
    assert all(cell.run in [one.run for one in found] for cell in part)
    assert all(set(protocol.results) <= set(METHOD_ROWS) for protocol in PROTOCOLS.values())


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'music'"):
        published_cells(["musik"])
    with pytest.raises(ValueError, match="did you mean 'madl'"):
        published_cells(methods=["maddl"])


def test_the_schedule_is_that_of_pytorch_with_a_step_per_epoch() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=7)
    expected = []
    for _ in range(7):
        for _ in range(11):
            expected.append(scheduler.get_last_lr()[0])
            optimizer.step()
        scheduler.step()
    found = [cosine_by_epoch(7)(step / 77) for step in range(77)]
    assert found == pytest.approx(expected, abs=1e-12)


def test_music_is_evaluated_without_a_hundred_songs_drawn_by_class(data: Path) -> None:
    crowd, whole = PublishedExecutor(data).crowd("music"), load_music_genres(data)
    _, kept = train_test_split(np.arange(130), train_size=100, random_state=0, stratify=whole.y_test)
    assert np.array_equal(crowd.X_test, whole.X_test[kept])
    assert np.bincount(crowd.y_test).tolist() == [10, 10, 10]


def test_too_few_test_songs_are_refused(tmp_path: Path) -> None:
    write_music(tmp_path, n_test=90)
    with pytest.raises(ValueError, match=r"more than 100 test songs.* has 90"):
        PublishedExecutor(tmp_path).crowd("music")


def test_a_run_is_the_published_recipe(data: Path, tmp_path: Path) -> None:
    """The network and the optimizer are written down once more, layer by layer."""
    (cell,) = published_cells(["music"], ["true-label"], [3], epochs=2)
    work = PublishedExecutor(data)
    crowd = work.crowd("music")

    def network() -> nn.Module:
        first = [nn.Linear(5, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.5)]
        return nn.Sequential(*first, nn.Linear(256, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.5))

    by_hand = TrueLabelClassifier(
        backbone=network,
        head_hidden=(),
        standardize=True,
        optimizer=lambda parameters: torch.optim.RAdam(parameters, lr=0.01, weight_decay=0.0),
        learning_rate=0.01,
        schedule=cosine_by_epoch(2),
        epochs=2,
        batch_size=64,
        random_state=3,
        classes=[0, 1, 2],
    ).fit(crowd.X, crowd.y)
    result = work(cell.run, tmp_path / "checkpoint")
    assert np.array_equal(decode_correct(result), by_hand.predict(crowd.X_test) == crowd.y_test)


@pytest.mark.parametrize("row", METHOD_ROWS)
def test_every_row_runs(data: Path, tmp_path: Path, row: str) -> None:
    (cell,) = published_cells(["labelme"], [row], [0], epochs=3)
    result = PublishedExecutor(data)(cell.run, tmp_path / "checkpoint")
    assert result["n_evaluated"] == len(PublishedExecutor(data).crowd("labelme").y_test)


@pytest.mark.parametrize(("n", "mean", "std"), [(10, 71.0, 1.5), (3, 69.0, 0.2), (5, 72.4, 3.0)])
def test_the_difference_of_means_is_that_of_welch(n: int, mean: float, std: float) -> None:
    ours = np.random.default_rng(n).normal(70, 1, n)
    theirs = np.random.default_rng(99).normal(size=10)
    theirs = mean + std * (theirs - theirs.mean()) / theirs.std(ddof=1)
    expected = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    found = difference_of_means(ours.tolist(), PublishedResult(mean, std))
    assert found.mean == pytest.approx(ours.mean() - mean)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_the_command_shows_published_results_beside_ours(data: Path) -> None:
    arguments = ["--methods", "majority-vote-hard,gated", "--seeds", "0,1", "--epochs", "3"]
    planned = reproduce(data, *arguments, "--plan")
    assert "0 runs finished, 8 missing" in planned.output
    made = reproduce(data, *arguments, "--json", str(data / "numbers.json"))
    assert made.exit_code == 0, made.output
    numbers = json.loads((data / "numbers.json").read_text())["table"]
    by_row = {(one["dataset"], one["method"]): one for one in numbers}
    vote = by_row["music", "majority-vote-hard"]
    difference = difference_of_means(list(vote["accuracy_by_seed"].values()), PublishedResult(66.1, 2.8))
    assert vote["difference"] == pytest.approx(difference._asdict())
    agrees = "yes" if difference.low <= 0 <= difference.high else "no"
    assert f"| majority-vote-hard | 66.1 ± 2.8 | {vote['mean']:.1f} ± {vote['std']:.1f} | 2 |" in made.output
    assert f"({difference.low:+.1f} to {difference.high:+.1f}) | {agrees} |" in made.output
    assert by_row["music", "gated"]["published"] is None
    assert by_row["labelme", "majority-vote-hard"]["difference"] is None  # published on other features
    assert reproduce(data, *arguments, "--show").output == made.output

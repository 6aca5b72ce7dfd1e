"""The reader of the music genres, on a few songs in the authors' layout."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfuse.datasets.music_genres import load_music_genres

GOLD = """id,feature0,feature1,class
hiphop.00053.mp3,0.055598,-50.612322,hiphop
pop.00010.mp3,0.034940,-46.274450,pop
blues.00009.mp3,0.041158,-50.872584,blues
"""
LABELS = """id,annotator,feature0,feature1,class
hiphop.00053.mp3,A2PQHWG79HDCX6,0.055598,-50.612322,pop
hiphop.00053.mp3,AC6QZ6VSEIYK1,0.055598,-50.612322,hiphop
pop.00010.mp3,AC6QZ6VSEIYK1,0.034940,-46.274450,pop
"""
TEST = """id,feature0,feature1,class
metal.00028.mp3,0.091710,-41.429561,metal
rock.00000.mp3,0.05,-40,rock
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CROWDFUSE_DATA", raising=False)
    place = tmp_path / "music_genre_classification"
    place.mkdir()
    for name, text in {"gold": GOLD, "mturk": LABELS, "test": TEST}.items():
        (place / f"music_genre_{name}.csv").write_text(text)
    return place


def test_songs_have_features_labels_and_gold(place: Path) -> None:
    crowd = load_music_genres(place.parent)
    np.testing.assert_allclose(crowd.X, [[0.055598, -50.612322], [0.03494, -46.27445], [0.041158, -50.872584]], 1e-6)
    assert crowd.X.dtype == np.float32
    assert crowd.annotations.items.tolist() == ["hiphop.00053.mp3", "pop.00010.mp3", "blues.00009.mp3"]
    assert crowd.annotations.annotators.tolist() == ["A2PQHWG79HDCX6", "AC6QZ6VSEIYK1"]
    assert crowd.annotations.to_matrix().tolist() == [[7, 4], [-1, 7], [-1, -1]]  # a song that nobody labelled stays
    assert crowd.y.tolist() == [4, 7, 0]
    assert crowd.y_test.tolist() == [6, 9]
    assert crowd.X_test.shape == (2, 2)
    assert crowd.classes == list(range(10))
    assert crowd.class_names is not None
    assert [crowd.class_names[k] for k in crowd.y] == ["hiphop", "pop", "blues"]


def test_the_example_of_the_docs_runs(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CROWDFUSE_DATA", str(place.parent))
    text = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    (example,) = [part for part in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "load_music_genres" in part]
    exec(example.replace("classes=crowd.classes", "classes=crowd.classes, epochs=1"), {})
    assert 0 <= float(capsys.readouterr().out) <= 1


def test_first_of_two_labels_on_a_song_counts(place: Path) -> None:
    again = "pop.00010.mp3,AC6QZ6VSEIYK1,0.034940,-46.274450,rock\n"
    (place / "music_genre_mturk.csv").write_text(LABELS + again)
    assert load_music_genres(place.parent).annotations.to_matrix()[1].tolist() == [-1, 7]


def replacing(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        path = place / f"music_genre_{name}.csv"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (replacing("gold", ",pop\n", ",polka\n"), r"music_genre_gold.csv, line 3: class 'polka' is not one of blues, "),
        (replacing("mturk", ",hiphop\n", ",Hip Hop\n"), r"music_genre_mturk.csv, line 3: class 'Hip Hop' is not one"),
        (replacing("mturk", "pop.00010", "pop.99999"), r"line 4: song 'pop.99999.mp3' is not in music_genre_gold.csv"),
        (replacing("mturk", "A2PQHWG79HDCX6", " "), "line 2: the annotator is empty"),
        (replacing("gold", "-46.274450", "loud"), r"gold.csv, line 3: feature1 'loud' is not a finite number"),
        (replacing("test", "-40", "nan"), r"test.csv, line 3: feature1 'nan' is not a finite number"),
        (
            replacing("gold", "blues.00009.mp3", "pop.00010.mp3"),
            "line 4: song 'pop.00010.mp3' is already in line 3",
        ),
        (
            replacing("test", "feature1", "loudness"),
            r"test.csv, line 1: its 2 features differ from .*: feature 2 is 'loudness' here, but 'feature1' in",
        ),
        (
            lambda place: (place / "music_genre_mturk.csv").write_text(""),
            r"mturk.csv is empty; expected the columns id, ",
        ),
        (
            replacing("test", "class", "genre"),
            r"test.csv, line 1: expected .*, but the header \(.*\) lacks class\.",
        ),
        (
            replacing("mturk", "annotator", "WorkerID"),
            r"mturk.csv, line 1: expected .*, but the header \('id', 'Worker.*\) lacks annotator\.",
        ),
        (replacing("gold", "0.034940,", ""), r"gold.csv, line 3: 3 values, but the header has 4"),
        (replacing("test", TEST, "id,class\na,rock\n"), r"test.csv, line 1 has an id and a class, but no features"),
        (replacing("test", "rock.00000", "x" * 200_000), r"test.csv, line 3: field larger than field limit"),
    ],
)
def test_invalid_rows_are_refused_with_their_line(place: Path, change: Callable[[Path], None], said: str) -> None:
    change(place)
    with pytest.raises(ValueError, match=said):
        load_music_genres(place.parent)


def test_missing_files_are_named_with_their_publisher(place: Path) -> None:
    (place / "music_genre_gold.csv").unlink()
    (place / "music_genre_test.csv").unlink()
    with pytest.raises(FileNotFoundError) as error:
        load_music_genres(place.parent)
    for part in (
        "no music_genre_gold.csv, music_genre_test.csv in",
        str(place),
        "mturk-datasets.tar.gz",
        "fprodrigues",
    ):
        assert part in str(error.value)
    with pytest.raises(
        FileNotFoundError, match="CROWDFUSE_DATA to the folder that contains music_genre_classification/"
    ):
        load_music_genres()


def write_arrays(folder: Path, **changes: Any) -> None:
    (folder / "music_genre").mkdir(exist_ok=True)
    arrays: dict[str, Any] = {
        "x_train": np.eye(3, 2),
        "y_train": np.array([1, 0, 1], np.uint8),
        "x_test": np.ones((2, 2)),
        "y_test": np.array([0, 1], np.uint8),
        "answers": np.array([[1, -1], [0, 1], [-1, -1]], np.int8),
        "class_names": np.array([b"blues", b"jazz", b"rock"]),
    }
    np.savez(folder / "music_genre" / "music_genre.npz", **(arrays | changes))


def test_arrays_are_read_if_the_archive_of_the_authors_is_missing(place: Path, tmp_path: Path) -> None:
    write_arrays(place.parent)
    assert load_music_genres(place.parent).annotations.items[0] == "hiphop.00053.mp3"  # the archive comes first
    folder = tmp_path / "arrays"
    folder.mkdir()
    write_arrays(folder)
    crowd = load_music_genres(folder)
    assert crowd.X.dtype == np.float32
    assert crowd.annotations.to_matrix().tolist() == [[1, -1], [0, 1], [-1, -1]]
    assert crowd.annotations.classes.tolist() == [0, 1, 2]
    assert crowd.class_names == ("blues", "jazz", "rock")
    assert (crowd.y.tolist(), crowd.y_test.tolist(), crowd.X_test.shape) == ([1, 0, 1], [0, 1], (2, 2))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"answers": np.zeros((2, 2), int)}, "x_train has 3 rows, but answers has 2"),
        ({"answers": np.zeros(3, int)}, r"answers must have one row per song.*\(3,\)"),
        ({"y_test": np.array([0, 7])}, "y_test has class 7, but class_names has 3 names"),
    ],
)
def test_invalid_arrays_are_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    write_arrays(tmp_path, **changes)
    with pytest.raises(ValueError, match=said):
        load_music_genres(tmp_path)

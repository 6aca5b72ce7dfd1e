"""Load MNIST and Fashion-MNIST from idx files (compressed or not), and check their published checksums."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crowdfuse.checks.choices import check_choice
from crowdfuse.datasets.data_folder import DATA_FOLDER_VARIABLE, data_folder
from crowdfuse.datasets.download import checksum, fetch
from crowdfuse.datasets.idx import read_idx

N_CLASSES = 10
SPLIT_SIZES = {"train": 60_000, "t10k": 10_000}
SIDE = 28


@dataclass(frozen=True)
class ImageData:
    """Images of MNIST or Fashion-MNIST, with their classes.

    Parameters
    ----------
    X_train, X_test : ndarray of shape (n_images, 28, 28), float32
        Images, standardized as `load_mnist` describes.
    y_train, y_test : ndarray of shape (n_images,), int64
        Class numbers.
    """

    X_train: NDArray[np.float32]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.int64]


@dataclass(frozen=True)
class Source:
    """One data set in the format of MNIST. Keys are file names without ``.gz``; checksums are "algorithm:digest"."""

    folders: tuple[str, ...]
    """Subfolders of the data folder to search: the name used here, then torchvision's name."""
    mean: float
    std: float
    mirrors: tuple[str, ...]
    zipped: dict[str, str]
    """Checksums of the published .gz files."""
    unzipped: dict[str, str]
    """Checksums of the decompressed files; empty if they are not known."""
    other_dataset_checksums: frozenset[str] = frozenset()
    """SHA-256 checksums of files of another data set with the same names."""


_MNIST_UNZIPPED = {
    "train-images-idx3-ubyte": "sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
SOURCES = {
    "mnist": Source(
        folders=("mnist", "MNIST/raw"),
        mean=0.1307,
        std=0.3081,
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        zipped={
            "train-images-idx3-ubyte": "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte": "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte": "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte": "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
        unzipped=_MNIST_UNZIPPED,
    ),
    "fashion-mnist": Source(
        folders=("fashion-mnist", "FashionMNIST/raw"),
        mean=0.2860,
        std=0.3530,
        mirrors=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        zipped={  # its authors only publish MD5 checksums of the compressed files
            "train-images-idx3-ubyte": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte": "md5:25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte": "md5:bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte": "md5:bb300cfdad3c16e7a12a480ee83cd310",
        },
        unzipped={},
        other_dataset_checksums=frozenset(_MNIST_UNZIPPED.values()),
    ),
}


def load_mnist(folder: Path | None = None, *, name: str = "mnist", download: bool = False) -> ImageData:
    """Load MNIST or Fashion-MNIST.

    Pixels are scaled to [0, 1] and standardized with the usual mean and standard deviation of the data set (MNIST:
    0.1307 and 0.3081).

    Parameters
    ----------
    folder : Path, default=None
        The data folder; by default the value of the environment variable ``CROWDFUSE_DATA``. It contains the four idx
        files, compressed or not. The files of MNIST may also be in its subfolder ``mnist`` or ``MNIST/raw``, the files
        of Fashion-MNIST in ``fashion-mnist`` or ``FashionMNIST/raw``. Torchvision stores its files in the subfolders
        ``raw``.
    name : {'mnist', 'fashion-mnist'}, default='mnist'
        The data set.
    download : bool, default=False
        Whether to download missing files.

    Returns
    -------
    data : ImageData

    Raises
    ------
    FileNotFoundError
        If files are missing; the message says where to get them.
    ValueError
        If a file is damaged; the message says where, and what is wrong.

    References
    ----------
    Y. LeCun et al., "Gradient-Based Learning Applied to Document Recognition", Proceedings of the IEEE, 1998.

    H. Xiao et al., "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms", 2017.

    Examples
    --------
    >>> load_mnist(Path("nowhere"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    FileNotFoundError: mnist: no train-images-idx3-ubyte, ...
    """
    source = SOURCES[check_choice("name", name, SOURCES)]
    base = data_folder(folder, name, f"{name}/")
    files = _find(base, source, name, download=download)
    X, y = {}, {}
    for part, count in SPLIT_SIZES.items():
        X[part] = _read(files[f"{part}-images-idx3-ubyte"], source, (count, SIDE, SIDE))
        y[part] = _read(files[f"{part}-labels-idx1-ubyte"], source, (count,))
        if int(y[part].max()) >= N_CLASSES:
            path = files[f"{part}-labels-idx1-ubyte"]
            raise ValueError(f"{path}: label {y[part].max()} is not one of the classes 0 to {N_CLASSES - 1}")
    scaled = ((np.arange(256) / 255 - source.mean) / source.std).astype(np.float32)  # of each grey value
    return ImageData(scaled[X["train"]], y["train"].astype(np.int64), scaled[X["t10k"]], y["t10k"].astype(np.int64))


def _find(base: Path, source: Source, name: str, *, download: bool) -> dict[str, Path]:
    """The path of each file by its stem. Missing files are downloaded, or listed in one error."""
    folders = [*(base / below for below in source.folders), base]
    files = {stem: _first_file(folders, stem) for stem in source.zipped}
    missing = [stem for stem, path in files.items() if path is None]
    if missing and not download:
        raise FileNotFoundError(
            f"{name}: no {', '.join(missing)} (compressed or not) in {', '.join(map(str, folders))}. Download them "
            "with --download (download=True), or put the files into one of these folders. To use another data folder, "
            f"pass --data (folder=) or set {DATA_FOLDER_VARIABLE}"
        )
    target = base / source.folders[0]
    for stem in missing:
        fetch(f"{stem}.gz", source.mirrors, target / f"{stem}.gz", source.zipped[stem])
    return {stem: path or target / f"{stem}.gz" for stem, path in files.items()}


def _first_file(folders: Sequence[Path], stem: str) -> Path | None:
    """The first file with this stem, compressed or not."""
    names = (folder / f"{stem}{ending}" for folder in folders for ending in (".gz", ""))
    return next((path for path in names if path.is_file()), None)


def _read(path: Path, source: Source, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The values of one file, after a check that it is the published file."""
    content = path.read_bytes()
    is_zipped = path.suffix == ".gz"
    expected = source.zipped[path.stem] if is_zipped else source.unzipped.get(path.name)
    if expected is not None:
        found = checksum(content, like=expected)
        if found != expected:
            raise ValueError(
                f"{path} has checksum {found}, but the published file has {expected}, so this file is damaged or a "
                "different one. Remove it and download it again (--download, or download=True)"
            )
    elif checksum(content, like="sha256:") in source.other_dataset_checksums:
        raise ValueError(
            f"{path} is a file of MNIST, but a file of {source.folders[0]} is expected here; the files of both data "
            "sets have the same names. Move the file to a folder called mnist"
        )
    values = read_idx(gzip.decompress(content) if is_zipped else content, str(path))
    if values.shape != shape:
        raise ValueError(
            f"{path}: has shape {' x '.join(map(str, values.shape))}, expected {' x '.join(map(str, shape))}; "
            "is it a file of another data set?"
        )
    return values

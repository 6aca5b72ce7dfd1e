"""Image files as inputs: worker processes decode each batch shortly before it is needed."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from crowdfuse.io.image_cropping import crop_centre_square
from crowdfuse.io.images import unreadable_message
from crowdfuse.io.inputs import Inputs
from crowdfuse.io.interrupts import ignore_sigint, init_worker_process

Task = TypeVar("Task")
Result = TypeVar("Result")

FILES_PER_CHECK_TASK = 64  # files that a worker process checks per task


class ImageFiles(Inputs):
    """Image files as inputs: each file is decoded only when its row is needed.

    A row is an RGB image of shape (3, size, size) with values from 0 to 255. Each image is rotated according to its
    EXIF orientation, cropped to the largest square in its centre, and resized. Grey images become RGB, 16-bit images
    are reduced to 8 bits, and transparency is dropped.

    Parameters
    ----------
    paths : sequence of str or Path
        The image files, one per item.
    size : int
        Height and width of the resized images in pixels.
    workers : int, default=0
        Number of worker processes that decode batches in advance. They are used by the method `stream`, for example in
        training. If 0, the calling process decodes the batches. The pixels do not depend on the number of workers. If
        training uses several devices, each training process has this many workers. A script that uses workers must have
        its main code below ``if __name__ == "__main__":``, because each worker process imports the script.

    Attributes
    ----------
    paths : tuple of str
        The image files.
    item_shape : tuple of int
        ``(3, size, size)``.
    is_sparse : bool
        Always false.
    in_memory : bool
        Always false, because reading a row decodes a file.

    Raises
    ------
    ValueError
        If there are no files, if `size` is not an integer of at least 1, or if `workers` is not an integer of
        at least 0.
    TypeError
        If `paths` is a single path.

    See Also
    --------
    crowdfuse.datasets.read_image_folder : Lists the images of a folder.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "grey.png")
    ...     Image.new("L", (60, 40), 7).save(path)
    ...     files = ImageFiles([path], size=32)
    ...     files.item_shape, files.rows(np.array([0]))[0, :, 16, 16].tolist()
    ((3, 32, 32), [7.0, 7.0, 7.0])
    """

    in_memory: ClassVar[bool] = False

    def __init__(self, paths: Sequence[str | Path], size: int, *, workers: int = 0) -> None:
        settings: tuple[tuple[str, Any, int], ...] = (("size", size, 1), ("workers", workers, 0))
        for name, value, least in settings:
            if not isinstance(value, Integral) or value < least:
                raise ValueError(f"ImageFiles: {name} must be an integer of at least {least}, got {value!r}")
        if isinstance(paths, str | Path):
            raise TypeError(
                f"ImageFiles takes a list of files, got the single path {os.fspath(paths)!r}; for the files of a "
                "folder, use read_image_folder"
            )
        self.paths = tuple(os.fspath(path) for path in paths)
        if not self.paths:
            raise ValueError("ImageFiles: the list of files is empty; pass at least one file")
        self.size, self.workers = int(size), int(workers)
        self.item_shape = (3, self.size, self.size)
        self.is_sparse = False
        self._folder = _common_folder(self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    def rows(self, index: NDArray[Any]) -> NDArray[np.float32]:
        """Decode the images of the given rows, in the calling process.

        Parameters
        ----------
        index : ndarray of shape (n,)
            Row numbers, or a boolean mask over all rows.

        Returns
        -------
        pixels : ndarray of shape (n, 3, size, size), float32
        """
        return _decode(self._paths_of(index), self.size).astype(np.float32)

    def stream(self, batches: Sequence[NDArray[Any]]) -> Generator[NDArray[np.float32], None, None]:
        """Yield the decoded images of each batch, in order.

        Worker processes decode batches in advance, at most two batches per worker. The worker processes end when the
        generator is exhausted or closed. If `workers` is 0 or if there is only one batch, the calling process decodes
        the images.

        Parameters
        ----------
        batches : sequence of ndarray
            The row numbers of each batch.

        Yields
        ------
        pixels : ndarray of shape (n, 3, size, size), float32
        """
        workers = min(self.workers, len(batches)) if len(batches) > 1 else 0  # starting a process takes about a second
        tasks = ((self._paths_of(batch), self.size) for batch in batches)
        with closing(map_in_processes(_decode, tasks, workers)) as blocks:
            for pixels in blocks:
                yield pixels.astype(np.float32)

    def take(self, rows: NDArray[Any]) -> ImageFiles:
        """Return the image files of the given rows.

        Parameters
        ----------
        rows : ndarray of shape (n,)
            Row numbers, or a boolean mask over all rows.

        Returns
        -------
        files : ImageFiles
        """
        return self._like(self._paths_of(rows), self.size)

    def resized(self, size: int) -> ImageFiles:
        """Return the same image files with another `size`, to which they are resized when they are decoded.

        Parameters
        ----------
        size : int
            Height and width in pixels.

        Returns
        -------
        files : ImageFiles
        """
        return self._like(self.paths, size)

    def hash_into(self, digest: Any) -> None:
        """Update a hash with the image size, and with the path and the number of bytes of each file.

        The paths are relative to the deepest folder that contains all files. The content of the files is not read,
        because this would take minutes for 135,000 files. Therefore, the hash stays the same if the content of a file
        changes but its number of bytes does not.

        Parameters
        ----------
        digest : hash object
            An object of `hashlib`.
        """
        digest.update(f"image files {len(self)} {self.item_shape}".encode())
        for path in self.paths:
            try:
                length = os.stat(path).st_size
            except OSError as error:
                raise _unreadable(path, error) from error
            name = Path(os.path.relpath(path, self._folder)).as_posix()
            digest.update(f"{name}\0{length}\0".encode(errors="surrogateescape"))

    def _paths_of(self, index: NDArray[Any]) -> list[str]:
        """The files of these rows."""
        return [self.paths[row] for row in np.arange(len(self))[index]]

    def _like(self, paths: Sequence[str], size: int) -> ImageFiles:
        """Other files with the same settings, whose hash uses the same common folder."""
        other = ImageFiles(paths, size, workers=self.workers)
        other._folder = self._folder
        return other


def find_unreadable(paths: Sequence[str | Path], *, workers: int = 0) -> dict[int, str]:
    """Find the files that cannot be decoded.

    Every file is read to its end, because a truncated file may still have a valid header. JPEG files are decoded at an
    eighth of their size to save time.

    Parameters
    ----------
    paths : sequence of str or Path
        The image files.
    workers : int, default=0
        Number of worker processes that check files. If 0, the calling process checks them.

    Returns
    -------
    reasons : dict of int to str
        For each file that cannot be decoded: its position in `paths`, and the reason.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "broken.png"
    >>> _ = path.write_bytes(b"not an image")
    >>> list(find_unreadable([path]))
    [0]
    """
    names = [os.fspath(path) for path in paths]
    starts = range(0, len(names), FILES_PER_CHECK_TASK)
    tasks = ((names[start : start + FILES_PER_CHECK_TASK],) for start in starts)
    with closing(map_in_processes(_unreadable_reasons, tasks, min(workers, len(starts)))) as found:
        reasons = [reason for block in found for reason in block]
    return {row: reason for row, reason in enumerate(reasons) if reason is not None}


# ---- one image -------------------------------------------------------------------------------


def _decode(paths: Sequence[str], size: int) -> NDArray[np.uint8]:
    """The pixels of files, (n, 3, size, size), as bytes, which are cheap to send between processes."""
    pixels = np.empty((len(paths), 3, size, size), np.uint8)
    for row, path in enumerate(paths):
        if _stop is not None and _stop.is_set():
            return pixels[:0]  # the result is no longer needed
        try:
            pixels[row] = crop_centre_square(path, size)
        except Exception as error:  # Pillow's readers may raise any exception
            raise _unreadable(path, error) from error
    return pixels


def _unreadable_reasons(paths: Sequence[str]) -> list[str | None]:
    """What is wrong with each file, None if it can be read."""
    found: list[str | None] = []
    for path in paths:
        if _stop is not None and _stop.is_set():
            break
        try:
            crop_centre_square(path, 1)
            found.append(None)
        except Exception as error:  # as above
            found.append(unreadable_message(path, error))
    return found


def _unreadable(path: str, error: Exception) -> ValueError:
    """The error for an unreadable image."""
    return ValueError(
        f"{unreadable_message(path, error)}. Repair it, remove it, or skip all such files with "
        "read_image_folder(folder, on_unreadable='skip')"
    )


def _common_folder(paths: Sequence[str]) -> str:
    """The deepest folder that contains all files."""
    folders = {os.path.dirname(os.path.abspath(path)) for path in paths}
    try:
        return os.path.commonpath(folders)
    except ValueError:  # on several drives
        return os.curdir


# ---- processes -------------------------------------------------------------------------------


def map_in_processes(
    work: Callable[..., Result], tasks: Iterator[tuple[Any, ...]], workers: int
) -> Generator[Result, None, None]:
    """Yield `work(*task)` for each task, in order; worker processes (or this process, if `workers` is 0) compute it.

    The worker processes end when the generator ends, and also if this process is killed.
    """
    if not workers:
        for task in tasks:
            yield work(*task)
        return
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    pool = ProcessPoolExecutor(workers, context, _start_process, (stop,))
    try:
        with closing(results_in_order(lambda task: pool.submit(work, *task), tasks, 2 * workers)) as results:
            yield from results
    except BrokenProcessPool as error:
        raise ValueError(
            f"one of {workers} processes that decode images has died. Possible causes: it was killed; it ran out of "
            "memory (use fewer workers); or the script that uses workers does not have its main code below "
            '`if __name__ == "__main__":`'
        ) from error
    finally:
        stop.set()  # if a worker is killed while it sends a result, this process would wait forever
        pool.shutdown(wait=True, cancel_futures=True)


def results_in_order(
    submit: Callable[[Task], Future[Result]], tasks: Iterator[Task], ahead: int
) -> Generator[Result, None, None]:
    """Yield the results of tasks in order. At any time, at most `ahead` submitted tasks have not been yielded yet.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(2) as pool:
    ...     list(results_in_order(lambda number: pool.submit(abs, number), iter([-1, -2, -3]), 2))
    [1, 2, 3]
    """
    with ignore_sigint():
        waiting = deque(submit(task) for task in islice(tasks, ahead))
    while waiting:
        yield waiting.popleft().result()
        waiting.extend(submit(task) for task in islice(tasks, 1))


_stop: Any = None  # in a worker process: an event that is set when its results are no longer needed


def _start_process(stop: Any) -> None:
    """Initialise a worker process."""
    global _stop
    _stop = stop
    init_worker_process()

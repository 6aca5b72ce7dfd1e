"""Images that stay in their files: decoded a batch at a time, ahead of need, in processes of their own."""

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
from PIL import Image

from crowdfuse.io.images import not_readable, open_upright
from crowdfuse.io.inputs import Inputs
from crowdfuse.io.interrupts import ignore_sigint, init_worker_process

Task = TypeVar("Task")
Result = TypeVar("Result")

FILES_PER_CHECK_TASK = 64  # files that are tried in one go


class ImageFiles(Inputs):
    """Images that are read when asked for: rows (3, size, size), RGB, from 0 to 255.

    Of each file the largest square in the middle, upright as its EXIF data say, brought to `size` x `size`. Grey
    images become RGB; 16-bit ones lose their lower 8 bits, transparent ones their transparency.

    `stream` decodes ahead in `workers` processes (each process of a training over several devices has that many);
    0 decodes in the process itself. The pixels are the same. As always with Python's multiprocessing, a script that
    asks for workers keeps what it runs below `if __name__ == "__main__":`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "grey.png")
    ...     Image.new("L", (60, 40), 7).save(path)
    ...     files = ImageFiles([path], size=32)
    ...     files.shape, files.rows(np.array([0]))[0, :, 16, 16].tolist()
    ((3, 32, 32), [7.0, 7.0, 7.0])
    """

    in_memory: ClassVar[bool] = False

    def __init__(self, paths: Sequence[str | Path], size: int, *, workers: int = 0) -> None:
        settings: tuple[tuple[str, Any, int], ...] = (("size", size, 1), ("workers", workers, 0))
        for name, value, least in settings:
            if not isinstance(value, Integral) or value < least:
                raise ValueError(f"ImageFiles: {name} must be a whole number of at least {least}, got {value!r}")
        if isinstance(paths, str | Path):
            raise TypeError(f"ImageFiles takes a list of files, got {paths}; read_image_folder lists those of a folder")
        self.paths = tuple(os.fspath(path) for path in paths)
        if not self.paths:
            raise ValueError("ImageFiles: the list of files is empty")
        self.size, self.workers = int(size), int(workers)
        self.item_shape = (3, self.size, self.size)
        self.is_sparse = False
        self._folder = _common_folder(self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    def rows(self, index: NDArray[Any]) -> NDArray[np.float32]:
        """These images, decoded here and now: (n, 3, size, size)."""
        return _decode(self._of(index), self.size).astype(np.float32)

    def stream(self, batches: Sequence[NDArray[Any]]) -> Generator[NDArray[np.float32], None, None]:
        """The images of each batch, in turn; twice as many batches as there are workers are decoded ahead, no more.

        The processes live as long as the stream: until it is exhausted or closed. A single batch is decoded here.
        """
        workers = min(self.workers, len(batches)) if len(batches) > 1 else 0  # to start a process takes a second or so
        tasks = ((self._of(batch), self.size) for batch in batches)
        with closing(in_processes(_decode, tasks, workers)) as blocks:
            for pixels in blocks:
                yield pixels.astype(np.float32)

    def take(self, rows: NDArray[Any]) -> ImageFiles:
        """These files alone."""
        return self._like(self._of(rows), self.size)

    def resized(self, size: int) -> ImageFiles:
        """The same files at another size."""
        return self._like(self.paths, size)

    def hash_into(self, digest: Any) -> None:
        """Feed the files' names below their common folder and their lengths to a hash, and the size of the images.

        That is not their content: reading 135,000 files would take minutes. A file that was changed without
        changing its length is taken for the same.
        """
        digest.update(f"image files {len(self)} {self.item_shape}".encode())
        for path in self.paths:
            try:
                length = os.stat(path).st_size
            except OSError as error:
                raise _unreadable(path, error) from error
            name = Path(os.path.relpath(path, self._folder)).as_posix()
            digest.update(f"{name}\0{length}\0".encode(errors="surrogateescape"))

    def _of(self, index: NDArray[Any]) -> list[str]:
        return [self.paths[row] for row in np.arange(len(self))[index]]

    def _like(self, paths: Sequence[str], size: int) -> ImageFiles:
        other = ImageFiles(paths, size, workers=self.workers)
        other._folder = self._folder  # a part of the files goes by the same names as the whole
        return other


def find_unreadable(paths: Sequence[str | Path], *, workers: int = 0) -> dict[int, str]:
    """The files that cannot be decoded, by their place in the list, each with what is wrong with it.

    Every file is read to its end, since the header of one that was cut off is as good as ever; but a JPEG is decoded
    at an eighth of its size, where only the reading costs time.
    """
    names = [os.fspath(path) for path in paths]
    starts = range(0, len(names), FILES_PER_CHECK_TASK)
    tasks = ((names[start : start + FILES_PER_CHECK_TASK],) for start in starts)
    with closing(in_processes(_complaints, tasks, min(workers, len(starts)))) as found:
        said = [complaint for block in found for complaint in block]
    return {row: complaint for row, complaint in enumerate(said) if complaint is not None}


# ---- one image -------------------------------------------------------------------------------


def _decode(paths: Sequence[str], size: int) -> NDArray[np.uint8]:
    """Pixels of these files, (n, 3, size, size); bytes, since they may have to go from process to process."""
    pixels = np.empty((len(paths), 3, size, size), np.uint8)
    for row, path in enumerate(paths):
        if _stop is not None and _stop.is_set():
            return pixels[:0]  # nobody waits for these any more
        try:
            pixels[row] = _pixels(path, size)
        except Exception as error:  # Pillow's readers raise whatever they stumble over
            raise _unreadable(path, error) from error
    return pixels


def _complaints(paths: Sequence[str]) -> list[str | None]:
    """What is wrong with each file."""
    found: list[str | None] = []
    for path in paths:
        if _stop is not None and _stop.is_set():
            break
        try:
            _pixels(path, 1)
            found.append(None)
        except Exception as error:  # as above
            found.append(not_readable(path, error))
    return found


def _pixels(path: str, size: int) -> NDArray[np.uint8]:
    """The square in the middle of an image, (3, size, size). Raises whatever Pillow's readers stumble over."""
    image = open_upright(path, size).convert("RGB")
    side = min(image.size)
    left, top = ((length - side) / 2 for length in image.size)
    square = (left, top, left + side, top + side)
    return np.moveaxis(np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=square)), 2, 0)


def _unreadable(path: str, error: Exception) -> ValueError:
    return ValueError(
        f"{not_readable(path, error)}. Repair it, take it out, or leave all such files out with "
        "read_image_folder(folder, on_unreadable='skip')"
    )


def _common_folder(paths: Sequence[str]) -> str:
    """The folder that all files lie below."""
    folders = {os.path.dirname(os.path.abspath(path)) for path in paths}
    try:
        return os.path.commonpath(folders)
    except ValueError:  # on several drives
        return os.curdir


# ---- processes -------------------------------------------------------------------------------


def in_processes(
    work: Callable[..., Result], tasks: Iterator[tuple[Any, ...]], workers: int
) -> Generator[Result, None, None]:
    """`work(*task)` of each task, in their order, in this many processes or, with 0, right here.

    The processes end with the generator, whichever way it ends; and should this process be killed, they follow.
    """
    if not workers:
        for task in tasks:
            yield work(*task)
        return
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    pool = ProcessPoolExecutor(workers, context, _start_process, (stop,))
    try:
        with closing(in_order(lambda task: pool.submit(work, *task), tasks, 2 * workers)) as results:
            yield from results
    except BrokenProcessPool as error:
        raise ValueError(
            f"one of {workers} decoding processes died: killed, out of memory (try fewer workers), or started from a "
            'script whose work does not stand below `if __name__ == "__main__":`'
        ) from error
    finally:
        stop.set()  # not killed: in the middle of sending it would leave this process waiting for the rest
        pool.shutdown(wait=True, cancel_futures=True)


def in_order(
    submit: Callable[[Task], Future[Result]], tasks: Iterator[Task], ahead: int
) -> Generator[Result, None, None]:
    """The results of the tasks in their order; at most `ahead` are begun and not yet handed out.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(2) as pool:
    ...     list(in_order(lambda number: pool.submit(abs, number), iter([-1, -2, -3]), 2))
    [1, 2, 3]
    """
    with ignore_sigint():
        waiting = deque(submit(task) for task in islice(tasks, ahead))
    while waiting:
        yield waiting.popleft().result()
        waiting.extend(submit(task) for task in islice(tasks, 1))


_stop: Any = None  # in a process of a pool, an event: its work is no longer wanted


def _start_process(stop: Any) -> None:
    global _stop
    _stop = stop
    init_worker_process()

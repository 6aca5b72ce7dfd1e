"""Download files from public mirrors, check their checksums, and write each file as a whole or not at all."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from crowdfuse.io.files import atomic_file

DOWNLOAD_TIMEOUT_SECONDS = 30  # the longest time without receiving a byte


def checksum(content: bytes, like: str) -> str:
    """The checksum of the content, with the algorithm of the checksum `like`.

    >>> checksum(b"", like="md5:f68b3c2dcbeaaa9fbdd348bbdeb94873")
    'md5:d41d8cd98f00b204e9800998ecf8427e'
    """
    algorithm = like.partition(":")[0]
    return f"{algorithm}:{hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()}"


def fetch(name: str, mirrors: Sequence[str], target: Path, expected: str) -> None:
    """Download `name` from the first mirror that has it with the checksum `expected`."""
    reasons = []
    for mirror in mirrors:
        url = mirror + name
        try:
            with atomic_file(target) as temporary:
                with urlopen(url, timeout=DOWNLOAD_TIMEOUT_SECONDS) as response, temporary.open("wb") as file:
                    shutil.copyfileobj(response, file)
                found = checksum(temporary.read_bytes(), like=expected)
                if found != expected:
                    raise OSError(f"the downloaded file has checksum {found}, not the published {expected}")
        except (OSError, HTTPException) as error:
            reasons.append(f"{url}: {error}")
        else:
            return
    raise OSError(
        f"{name} could not be downloaded ({'; '.join(reasons)}). If there is no network, get the file elsewhere and "
        f"put it at {target}"
    )

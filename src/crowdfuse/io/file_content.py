"""The content of a text file as UTF-8: gzip is unpacked, UTF-16 is converted, other encodings are named in errors."""

from __future__ import annotations

import codecs
import gzip
import zlib
from itertools import pairwise
from pathlib import Path

GZIP_ENDING = ".gz"
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
SHOWN_BYTES = 12  # a message shows this many bytes on either side of the first byte that is not UTF-8


def file_ending(path: Path) -> str:
    """The ending of a file in lower case, where ``.gz`` is ignored.

    >>> file_ending(Path("labels.CSV")), file_ending(Path("labels.csv.gz")), file_ending(Path("run.v2/labels"))
    ('.csv', '.csv', '')
    """
    ending = path.suffix.lower()
    return path.with_suffix("").suffix.lower() if ending == GZIP_ENDING else ending


def is_utf8_file(path: Path) -> bool:
    """Whether a file can be read in place: it is neither compressed nor marked as UTF-16."""
    if path.suffix.lower() == GZIP_ENDING:
        return False
    with path.open("rb") as data:
        return not data.read(2).startswith(UTF16_MARKS)


def read_utf8(path: Path) -> bytes:
    """The bytes of a text file, unpacked, and converted to UTF-8 if a byte-order mark says that they are UTF-16."""
    if path.suffix.lower() == GZIP_ENDING:
        try:
            with gzip.open(path) as packed:
                content = packed.read()
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: not a readable gzip file ({error}); compress it again") from error
    else:
        content = path.read_bytes()
    if not content.startswith(UTF16_MARKS):
        return content
    try:
        return content.decode("utf-16").encode()
    except UnicodeError as error:
        raise ValueError(
            f"{path}: its byte-order mark says UTF-16, but its content is not UTF-16 ({error}); save it as UTF-8"
        ) from error


def describe_encoding(content: bytes) -> str:
    """The message about bytes that are not UTF-8: the probable Windows encoding, the text in it, and the way out.

    >>> describe_encoding("a,café\\n".encode("cp1252"))
    "not UTF-8 text. It is probably Windows-1252 (Western European): 'a,café'. Save the file as UTF-8"
    """
    try:
        content.decode()
    except UnicodeDecodeError as error:
        part = content[max(0, error.start - SHOWN_BYTES) : error.start + SHOWN_BYTES]
        encoding, language = _windows_encoding(part)
        try:
            reads = part.decode(encoding).strip()
        except UnicodeDecodeError:
            return "not UTF-8 text; save the file as UTF-8"
        return (
            f"not UTF-8 text. It is probably {encoding.replace('cp', 'Windows-')} ({language}): {reads!r}. "
            "Save the file as UTF-8"
        )
    return "UTF-8 text"


def _windows_encoding(part: bytes) -> tuple[str, str]:
    """The probable encoding: words of only high bytes are Cyrillic; single high bytes are Western European letters."""
    high = [byte >= 0xC0 for byte in part]
    runs = sum(one and other for one, other in pairwise(high))
    return ("cp1251", "Cyrillic") if runs > 2 else ("cp1252", "Western European")

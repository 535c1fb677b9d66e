"""A log as blocks of bytes: a file, or standard input. Owns opening, reading and its errors.

Knows nothing of the content. Text that Windows has written as UTF-16 is handed on as UTF-8.
"""

import codecs
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gpumem_tui.errors import GpumemError

BLOCK_BYTES = 1 << 20


class UnreadableLog(GpumemError):
    """The file is not there, is no file, or cannot be read to its end."""

    exit_code = 4


def blocks(name: str) -> Iterator[bytes]:
    """The content of a file, or of standard input for ``-``. Raises :class:`UnreadableLog`."""
    try:
        if name == "-":
            yield from _decoded(sys.stdin.buffer)
        else:
            with Path(name).open("rb") as file:
                yield from _decoded(file)
    except OSError as error:
        raise UnreadableLog(f"{name}: cannot be read: {error.strerror or error}") from None


def _decoded(file: BinaryIO) -> Iterator[bytes]:
    first = file.read(BLOCK_BYTES)
    if not first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        while first:
            yield first
            first = file.read(BLOCK_BYTES)
        return
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    while first:
        yield decoder.decode(first).encode("utf-8", "replace")
        first = file.read(BLOCK_BYTES)

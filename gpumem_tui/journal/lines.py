"""From the bytes of a growing file to records: whole lines only, in bounded memory.

A corrupt line costs that line, a torn last line waits for its rest, and a line
longer than :data:`LINE_LIMIT_BYTES` is passed over without being held. Refuses to
guess: a line is a record, of an unknown kind, or corrupt.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpumem_tui.records import Record, decode_line
from gpumem_tui.records.decode import Unknown

LINE_LIMIT_BYTES = 1 << 20
"""Longer lines are skipped and counted."""

BLOCK_BYTES = 256 << 10
"""Read at once; what a reader holds of a file, long lines apart."""

Line = Record | Unknown | None
"""A record, a line of an unknown kind, or (None) a corrupt line."""

_records = msgspec.json.Decoder(Record)


def open_regular(path: Path) -> int:
    """A descriptor for reading a plain file. Raises OSError for anything else, links and FIFOs included."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path} is not a plain file")
    return fd


class Cursor:
    """A place in a file that may grow. Holds no bytes of it."""

    def __init__(self, fd: int, offset: int = 0) -> None:
        self._fd = fd
        self.offset = offset
        """Everything before it has been handed out or skipped."""
        self.overlong = 0
        """Lines skipped because they are longer than the limit."""
        self._skipping = False

    def rebase(self, fd: int) -> None:
        """Go on at the same place through another descriptor of the same file."""
        self._fd = fd

    def skip_line(self) -> None:
        """Pass over everything up to the next newline."""
        self._skipping = True

    def read(self) -> bytes:
        """The next whole lines, newlines included; empty where there are none (yet)."""
        size = BLOCK_BYTES
        while True:
            data = os.pread(self._fd, size, self.offset)
            if not data:
                return b""
            if self._skipping:
                end = data.find(b"\n")
                self.offset += len(data) if end < 0 else end + 1
                self._skipping = end < 0
                continue
            end = data.rfind(b"\n") + 1
            if end:
                self.offset += end
                return data[:end]
            if len(data) > LINE_LIMIT_BYTES:
                self.overlong += 1
                self._skipping = True
            elif len(data) < size:
                return b""  # the file ends within a line
            else:
                size = LINE_LIMIT_BYTES + 1


def decode_records(block: bytes) -> list[Record] | None:
    """The records of a block, one a line; None if one of its lines is anything else. Fast."""
    try:
        records = _records.decode_lines(block)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    # A damaged newline may make two lines one value or the other way round: then they do not count up.
    return records if len(records) == block.count(b"\n") else None


def decode_block(block: bytes) -> Sequence[Line]:
    """What every line of a block says, one for one."""
    records = decode_records(block)
    return records if records is not None else [decode_line(line) for line in block.split(b"\n")[:-1]]

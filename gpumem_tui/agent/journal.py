"""Appends lines to one writer's journal. Knows segments and full disks; knows nothing of what the lines say.

One thread owns a :class:`Journal`. A line is buffered until :meth:`Journal.flush`,
which hands whole lines to one ``write``; a process that is killed loses at most what
it had not flushed. What cannot be written (disk full) is dropped and counted, and the
count is written as soon as there is room again: the caller never fails for it.

A program may close every descriptor that it does not know (as daemons do) and get ours
for a file of its own: what a number stands for is looked at before it is used.
"""

from __future__ import annotations

import os
from typing import Any, List, Optional

from . import wire

SEGMENT_BYTES = 4 << 20
"""A segment is closed beyond this size; closed segments are what the recorder may fold."""

BACKLOG_BYTES = 1 << 20
"""Lines waiting while the disk refuses them; beyond it they are dropped and counted."""


class Journal:
    """The journal of one writer in a run's ``journal`` directory.

    ``who`` is derived from role, pid and started ticks; numbering continues after
    segments that are already there (a process that ``exec``s keeps its pid).
    Raises OSError if the first segment cannot be created.
    """

    def __init__(
        self,
        directory: str,
        role: str,
        run: str,
        pid: Optional[int] = None,
        started: Optional[int] = None,
        segment_bytes: int = SEGMENT_BYTES,
        **about: Any,
    ) -> None:
        self._directory = directory
        self._role, self._run, self._pid, self._started = role, run, pid, started
        self._about = about
        self._segment_bytes = segment_bytes
        self._lines: List[bytes] = []
        self._waiting_bytes = 0
        self._torn = False
        self.dropped_lines = 0
        """Lines lost to a refusing disk and not yet told in a ``dropped`` line."""
        self._number = self._next_number()
        self._fd = -1
        self._file = (0, 0)
        """Device and inode of the segment that ``_fd`` was opened for."""
        self._size = 0
        self._open_segment()

    def _next_number(self) -> int:
        prefix = wire.segment_name(self._role, 0, self._pid, self._started)[: -len("0000.jsonl")]
        numbers = [
            int(name[len(prefix) :].split(".")[0])
            for name in os.listdir(self._directory)
            if name.startswith(prefix) and name[len(prefix) :].split(".")[0].isdigit()
        ]
        return max(numbers) + 1 if numbers else 0

    @property
    def path(self) -> str:
        """The segment that is being written."""
        return os.path.join(
            self._directory, wire.segment_name(self._role, self._number, self._pid, self._started)
        )

    def _open_segment(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(self.path, flags, 0o600)
        head = wire.encode_header(wire.header(self._role, self._run, self._number, **self._about))
        try:
            written = os.write(fd, head)
        except OSError:
            os.close(fd)
            os.unlink(self.path)
            raise
        self._torn = written < len(head)
        status = os.fstat(fd)
        self._fd, self._size, self._file = fd, written, (status.st_dev, status.st_ino)

    def _is_ours(self) -> bool:
        """Whether the descriptor is still that of the segment, or somebody has closed it under us."""
        try:
            status = os.fstat(self._fd)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._file

    def _go_on(self) -> bool:
        """After our descriptor was closed by another: the next segment. False if there is no room for it."""
        number, self._number = self._number, self._next_number()
        try:
            self._open_segment()
        except OSError:
            self._number = number
            return False
        return True

    def append(self, kind: str, *values: Any) -> None:
        """Buffer one line; ``values`` as in ``wire.FIELDS[kind]``."""
        self.append_line(wire.encode(kind, *values))

    def append_line(self, line: bytes) -> None:
        """Buffer one encoded line."""
        if self._waiting_bytes > BACKLOG_BYTES:
            self.dropped_lines += 1
            return
        self._lines.append(line)
        self._waiting_bytes += len(line)

    def flush(self) -> bool:
        """Write what is buffered. False if the disk refused it; it is kept up to a bound and tried again."""
        if not self._lines or self._fd < 0:
            return True
        if not self._is_ours() and not self._go_on():
            return False
        told = self.dropped_lines
        if told:
            self._lines.append(wire.encode("dropped", wire.now_ns(), 0, told, "disk refused"))
        if self._torn:
            self._lines.insert(0, b"\n")
        data = b"".join(self._lines)
        try:
            written = os.write(self._fd, data)
        except OSError:
            written = 0
        self._size += written
        if written == len(data):
            self.dropped_lines -= told
            self._torn = False
            self._lines, self._waiting_bytes = [], 0
            if self._size >= self._segment_bytes:
                self._roll()
            return True
        self._keep(written)
        if told:
            self._lines.pop()  # tells an old count by the time it is written
        return False

    def _keep(self, written: int) -> None:
        """After a short write: forget the lines that are whole on disk, keep the others."""
        if self._torn:
            self._lines.pop(0)
            written -= 1
        self._torn = self._torn and written < 0
        while written > 0 and self._lines:
            length = len(self._lines[0])
            if written >= length - 1:  # whole but for its newline counts as whole: the next write closes it
                self._lines.pop(0)
                self._torn = written < length
            else:
                self._torn = True  # its beginning is on disk: close that line before the next
            written -= length
        self._waiting_bytes = sum(map(len, self._lines))

    def _roll(self) -> None:
        old, self._number = self._fd, self._number + 1  # ours: it was just written to
        try:
            self._open_segment()
        except OSError:
            self._number -= 1  # no room for a new one: go on in the old
            return
        os.close(old)

    def close(self) -> None:
        """Write what is buffered and close."""
        self.flush()
        self.abandon()

    def abandon(self) -> None:
        """Close without writing: in a forked child, where the journal belongs to the parent."""
        if self._fd >= 0 and self._is_ours():
            os.close(self._fd)
        self._fd = -1
        self._lines, self._waiting_bytes = [], 0

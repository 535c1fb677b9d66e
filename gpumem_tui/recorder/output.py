"""The driver's journal on a disk that may be full, from the very first line on."""

import collections
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gpumem_tui.agent import wire
from gpumem_tui.agent.journal import Journal
from gpumem_tui.records import Dropped, Record

WAITING_LINES = 10_000
"""Kept in memory while not even a first segment can be made; the oldest go first, and are counted."""

_encode = msgspec.json.Encoder().encode


class Output:
    """Takes records and never fails for a disk. What is lost is told by a ``dropped`` line."""

    def __init__(self, folder: Path, run: str, agent: str) -> None:
        """The journal continues after the segments of the recorders before."""
        self._folder, self._run, self._agent = folder, run, agent
        self._journal: Journal | None = None
        self._waiting: collections.deque[bytes] = collections.deque()
        self._lost = 0

    def write(self, records: Iterable[Record]) -> None:
        """Hand the records to the disk at once, or keep them for later."""
        self._waiting.extend(_encode(record) + b"\n" for record in records)
        journal = self._journal or self._begin()
        if journal is None:
            while len(self._waiting) > WAITING_LINES:
                self._waiting.popleft()
                self._lost += 1
            return
        while self._waiting:
            journal.append_line(self._waiting.popleft())
        journal.flush()

    def _begin(self) -> Journal | None:
        try:
            journal = Journal(os.fspath(self._folder), "driver", self._run, agent=self._agent)
        except OSError:
            return None
        self._journal = journal
        if self._lost:
            self._waiting.appendleft(_encode(Dropped(wire.now_ns(), 0, self._lost, "disk refused")) + b"\n")
            self._lost = 0
        return journal

    def close(self) -> None:
        """The last attempt to write what waits."""
        self.write([])
        if self._journal is not None:
            self._journal.close()

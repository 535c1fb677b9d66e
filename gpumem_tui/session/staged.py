"""Opens a big recording in two stages: its last half hour at once, all of it when that has been read.

The whole is read by a thread beside; until it is there, pictures say from when on they are true.
"""

import threading

import msgspec

from gpumem_tui.analysis.state import RunState
from gpumem_tui.errors import GpumemError
from gpumem_tui.journal import window
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.session.recording import Recording

BIG_BYTES = 16 << 20
"""Journals beyond this size are opened in stages; reading that much takes about a second."""

FIRST_NS = 30 * 60 * 1_000_000_000
"""What is read before the first picture."""


class Staged:
    """A feed for a live view: a recording by its end first. Raises :class:`UnreadableRecording`."""

    def __init__(self, run: RunDirectory) -> None:
        size = sum(path.stat().st_size for path in run.journal.glob("*.jsonl"))
        self._whole: Recording | None = None
        self._problem: GpumemError | None = None
        self._end: Recording
        if size <= BIG_BYTES:
            self._whole = self._end = Recording(run)
            return
        last_ns = window.last_ns(run)
        self._end = Recording(run, since_ns=None if last_ns is None else last_ns - FIRST_NS)
        threading.Thread(target=self._read_whole, args=(run,), name="history", daemon=True).start()

    def _read_whole(self, run: RunDirectory) -> None:
        try:
            whole = Recording(run)
            whole.refresh()
        except GpumemError as error:
            self._problem = error
        else:
            self._whole = whole

    @property
    def _now(self) -> Recording:
        return self._whole if self._whole is not None else self._end

    def read(self) -> RunState:
        """The picture of now."""
        state = self._now.read()
        if self._whole is not None:
            return state
        note = "the history before the last half hour is still being read"
        if self._problem is not None:
            note = f"the history before the last half hour cannot be read: {self._problem}"
        health = msgspec.structs.replace(state.health, notes=(*state.health.notes, note))
        return msgspec.structs.replace(state, health=health)

    def read_output(self, start: int, size: int) -> bytes:
        """Up to ``size`` bytes of the output log from offset ``start``."""
        return self._now.read_output(start, size)

    def stop(self, how: str) -> str:
        """Send the keeper a signal that it passes on. Returns a sentence on what was done."""
        return self._now.stop(how)

    def type_in(self, data: bytes) -> None:
        """Type bytes into the workload's terminal."""
        self._now.type_in(data)

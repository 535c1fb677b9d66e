"""Opens a big recording in two stages: its last minutes at once, all of it when that has been read.

The whole is read by a thread beside; until it is there, pictures say from when on they are true.
"""

import threading
import time

import msgspec

from gpumem_tui.analysis.state import RunState
from gpumem_tui.errors import GpumemError
from gpumem_tui.journal import stretch, window
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.segments import scan
from gpumem_tui.session.reach import Reach
from gpumem_tui.session.recording import Recording
from gpumem_tui.units import format_seconds

BIG_BYTES = 1 << 20
"""Journals beyond this size are opened in stages; reading that much takes a tenth of a second."""

FIRST_S = (1800, 600, 180, 60, 20)
"""How many seconds may be read before the first picture: the most that is within :data:`FIRST_BYTES`."""

FIRST_BYTES = 512 << 10

DRAWN_S = 0.2
"""So long after the first picture was asked for, it is drawn."""

PATIENCE_S = 2.0
"""So long at most the whole waits for the first frame, for which the processor is wanted more."""


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
        last_ns = window.last_ns(run) or 0
        self._first_s = next((s for s in FIRST_S if _size(run, last_ns, s) <= FIRST_BYTES), FIRST_S[-1])
        self._from_ns = last_ns - self._first_s * 1_000_000_000
        self._end = Recording(run, since_ns=self._from_ns)
        self._reads = 0
        self._shown = threading.Event()
        threading.Thread(target=self._read_whole, args=(run,), name="history", daemon=True).start()

    def _read_whole(self, run: RunDirectory) -> None:
        self._shown.wait(PATIENCE_S)
        time.sleep(DRAWN_S)
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
        self._reads += 1
        if self._reads > 1:  # once to see whether it can be read, once for the first frame
            self._shown.set()
        before = f"the history before the last {format_seconds(self._first_s)}"
        note = f"{before} is still being read"
        if self._problem is not None:
            note = f"{before} cannot be read: {self._problem}"
        health = msgspec.structs.replace(state.health, notes=(*state.health.notes, note))
        return self._of_the_end(msgspec.structs.replace(state, health=health))

    def _of_the_end(self, state: RunState) -> RunState:
        """A picture that knows the end only: which span of a phase was the first one is not known."""
        warm = tuple(row for row in state.phases if not row.cold)
        return msgspec.structs.replace(state, phases=warm, unread_before_ns=self._from_ns)

    def read_at(self, moment_ns: int, since_ns: int, until_ns: int, thorough: bool = False) -> RunState:
        """The picture of a moment of the past, with the curves of a stretch."""
        now = self._now
        state = now.read_at(moment_ns, since_ns, until_ns, thorough)
        if now is self._whole:
            return state
        return self._of_the_end(state)

    @property
    def reach(self) -> Reach:
        """The run, as far as a view may reach it."""
        return self._now.reach


def _size(run: RunDirectory, last_ns: int, seconds: int) -> int:
    """Bytes of all journals from so many seconds before their end on."""
    size = 0
    for segments in scan(run.journal).writers.values():
        start = stretch.find(run.journal, segments, last_ns - seconds * 1_000_000_000)
        end = stretch.Place(max(segments), stretch.size_of(run.journal, segments[max(segments)]))
        size += stretch.distance_bytes(run.journal, segments, start, end)
    return size

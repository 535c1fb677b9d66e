"""A finished recording, played from its start as if it went on now.

Reads journals as far as the moment that is shown, block by block: a day is no more
than a minute. Lines come writer by writer in the order in which they were written,
and between writers in that of their times.
"""

import heapq
import time
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from gpumem_tui import records
from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.analysis.state import RunFacts
from gpumem_tui.journal import stretch
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.segments import scan
from gpumem_tui.records import Header
from gpumem_tui.session.recording import Recording
from gpumem_tui.session.times import ended_ns

Line = tuple[int, Header, records.Record]
_EVER_NS = 1 << 62


class Playback(Recording):
    """Gives what was recorded up to a moment that moves on with the clock, ``speed`` times as fast."""

    def __init__(self, run: RunDirectory, speed: float = 1.0) -> None:
        super().__init__(run)
        self._speed = speed
        self._corrupt_lines = 0
        journals = [self._lines(who) for who in scan(run.journal).writers]
        self._lines_left = heapq.merge(*journals, key=lambda line: line[0])
        self._next: Line | None = next(self._lines_left, None)
        self._began_s: float | None = None
        self._rings_wanted = False

    def _lines(self, who: str) -> Iterator[Line]:
        """One writer's lines, each with the time by which it was known."""
        segments = scan(self.run.journal).writers[who]
        known_ns = 0
        for told in stretch.read(self.run.journal, segments, stretch.Place(min(segments), 0), _EVER_NS):
            self._corrupt_lines += told.corrupt_lines
            for record in told.records:
                known_ns = max(known_ns, ended_ns(record))
                yield known_ns, told.header, record

    def moment_ns(self) -> int:
        """The moment that is shown, on the recording's clock."""
        if self._began_s is None:
            self._began_s = time.monotonic()
        return self.file.t_ns + int((time.monotonic() - self._began_s) * self._speed * 1e9)

    def refresh(self) -> None:
        """Take what was written up to the moment."""
        super().refresh()
        self._health = replace(self._health, corrupt_lines=self._corrupt_lines)

    def _new_lines(self) -> Iterable[tuple[Header, Sequence[records.Record]]]:
        moment_ns = self.moment_ns()
        while self._next is not None and self._next[0] <= moment_ns:
            _, head, record = self._next
            yield head, (record,)
            self._next = next(self._lines_left, None)
        self._last_ns = max(self._last_ns, moment_ns) if self._next is not None else self._last_ns

    def _facts(self, life: Life, moment: str | None, moment_ns: int | None) -> RunFacts:
        return replace(super()._facts(life, moment, moment_ns), played=self._next is not None)

    def _life_now(self) -> Life:
        """What is still to come has not ended yet."""
        return Life.RUNNING if self._next is not None else super()._life_now()

    def _keeper_life(self) -> Life:
        return Life.RUNNING if self._next is not None else super()._keeper_life()

    def _alive(self, who: tuple[int, int | None]) -> bool:
        return self._next is not None

    def _output_bytes(self) -> int | None:
        sizes = [
            keeper.output_bytes for keeper in self._life.keepers.values() if keeper.output_bytes is not None
        ]
        return max(sizes, default=0) if self.file.interactive else None


class Moment(Playback):
    """The recording at one moment of its life, so many seconds after its start."""

    def __init__(self, run: RunDirectory, seconds: float) -> None:
        super().__init__(run)
        self._fixed_ns = self.file.t_ns + int(seconds * 1e9)

    def moment_ns(self) -> int:
        """Always that moment."""
        return self._fixed_ns

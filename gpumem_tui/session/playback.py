"""A finished recording, played from its start as if it went on now.

Holds every record in memory: for demonstrations of minutes, not for days.
"""

import time
from collections.abc import Iterable
from operator import itemgetter

from gpumem_tui import records
from gpumem_tui.analysis.state import Life
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.records import Header
from gpumem_tui.session.recording import Recording
from gpumem_tui.session.times import ended_ns


class Playback(Recording):
    """Gives what was recorded up to a moment that moves on with the clock, ``speed`` times as fast."""

    def __init__(self, run: RunDirectory, speed: float = 1.0) -> None:
        super().__init__(run)
        self._speed = speed
        found = [(ended_ns(record), head, record) for head, record in self._follower.poll()]
        self._waiting = sorted(found, key=itemgetter(0))
        self._at = 0
        self._began_s: float | None = None
        self._rings_wanted = False

    def moment_ns(self) -> int:
        """The moment that is shown, on the recording's clock."""
        if self._began_s is None:
            self._began_s = time.monotonic()
        return self.file.t_ns + int((time.monotonic() - self._began_s) * self._speed * 1e9)

    def _new_records(self) -> Iterable[tuple[Header, records.Record]]:
        moment_ns = self.moment_ns()
        while self._at < len(self._waiting) and self._waiting[self._at][0] <= moment_ns:
            _, head, record = self._waiting[self._at]
            self._at += 1
            yield head, record
        self._last_ns = max(self._last_ns, moment_ns) if self._at < len(self._waiting) else self._last_ns

    def _life_now(self) -> Life:
        """What is still to come has not ended yet."""
        return Life.RUNNING if self._at < len(self._waiting) else super()._life_now()

    def _keeper_life(self) -> Life:
        return Life.RUNNING if self._at < len(self._waiting) else super()._keeper_life()

    def _alive(self, who: tuple[int, int | None]) -> bool:
        return self._at < len(self._waiting)

    def _output_bytes(self) -> int | None:
        sizes = [
            keeper.output_bytes for keeper in self._life.keepers.values() if keeper.output_bytes is not None
        ]
        return max(sizes, default=0) if self.file.interactive else None

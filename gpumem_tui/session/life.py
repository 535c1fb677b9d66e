"""Who lives: the run, its keepers and processes, by what the recording says and /proc shows."""

import os
import time
from pathlib import Path

from gpumem_tui import records
from gpumem_tui.agent import wire
from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.journal.runfile import RunFile, namespaces
from gpumem_tui.records import Header
from gpumem_tui.records.ending import Ending


def is_alive(pid: int, started_ticks: int | None) -> bool:
    """Whether that very process exists here and is no zombie; a reused pid does not count."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  on every drawing, for every rank
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return False
    if not fields or fields[0] in (b"Z", b"X"):
        return False
    return not started_ticks or int(fields[19]) == started_ticks


class KeeperModel:
    """One keeper's journal."""

    def __init__(self, head: Header) -> None:
        self.pid, self.started_ticks = head.pid, head.started_ticks
        self.workload: records.Start | None = None
        self.exit: records.Exit | None = None
        self.output_bytes: int | None = None

    def take(self, record: object) -> None:
        """One line of it."""
        match record:
            case records.Start():
                self.workload = record
            case records.Exit():
                self.exit = record
            case records.Output():
                self.output_bytes = record.size_bytes


WRITTEN_S = 20.0
"""A run whose processes are not shown here goes on while its journals were written no longer ago."""


class RunLife:
    """How far the whole run has come."""

    def __init__(self, file: RunFile, journal: Path) -> None:
        theirs, ours = file.namespaces, namespaces()
        booted = self.booted = file.boot is not None and file.boot == wire.boot_id()
        """Whether the recording is of this boot of this machine; of another one nobody's death is seen."""
        self._hidden = booted and theirs is not None and theirs != ours
        self.here = booted and (theirs is None or theirs.time == ours.time)
        """Whether the recording's monotonic clock is ours: it is of this boot of this machine."""
        self.sees = booted and not self._hidden
        """Whether its pids are those that are seen here, too: it is not in another container."""
        self._journal = journal
        self._first = (file.keeper_pid, file.keeper_ticks)
        self.keepers: dict[tuple[int, int | None], KeeperModel] = {}

    def keeper_life(self) -> Life:
        """Of all keepers together."""
        if not self.keepers:
            return Life.STARTING if self.lives(*self._first) else Life.LOST
        if all(keeper.exit is not None for keeper in self.keepers.values()):
            return Life.ENDED
        waiting = [k for k in self.keepers.values() if k.exit is None]
        return Life.RUNNING if any(self.lives(k.pid, k.started_ticks) for k in waiting) else Life.LOST

    def lives(self, pid: int, started_ticks: int | None) -> bool:
        """Whether a process that writes journals lives, or may: of another container only those are seen."""
        return is_alive(pid, started_ticks) if self.sees else self._hidden and self._is_written()

    def _is_written(self) -> bool:
        try:
            with os.scandir(self._journal) as files:
                latest = max((file.stat().st_mtime for file in files), default=0.0)
        except OSError:
            return False
        return abs(time.time() - latest) < WRITTEN_S  # of one clock, unless it was set back

    def endings(self) -> list[tuple[int, Ending]]:
        """When and how each keeper's workload ended."""
        return [
            (keeper.exit.t_ns, Ending(keeper.exit.code, keeper.exit.signal))
            for keeper in self.keepers.values()
            if keeper.exit is not None
        ]

    def workload_lives(self) -> bool:
        """Whether any workload process that a keeper started exists still."""
        return self.sees and any(
            is_alive(k.workload.pid, k.workload.started_ticks)
            for k in self.keepers.values()
            if k.workload is not None and k.exit is None
        )

    def run_life(self) -> Life:
        """Of the run."""
        keeper = self.keeper_life()
        if keeper is Life.ENDED:
            failed = any(e.signal is not None or e.code for _, e in self.endings())
            return Life.FAILED if failed else Life.ENDED
        if keeper in (Life.STARTING, Life.RUNNING):
            return keeper
        return Life.RUNNING if self.workload_lives() else Life.LOST

    def sentence(self) -> str | None:
        """How it ended; the worst ending of several."""
        endings = self.endings()
        life = self.run_life()
        if life in (Life.STARTING, Life.RUNNING):
            return None
        if life is Life.LOST:
            return "ended unseen: its keeper was killed"
        return max((e for _, e in endings), key=lambda e: (e.signal is not None, e.code or 0)).sentence()

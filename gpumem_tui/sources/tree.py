"""The process tree of the workload: who belongs to it, for as long as each of them lives.

Cheap by design: /proc is listed, but only pids that were not there the last time are
read, so the cost does not grow with the machine. A process that was once seen in the
tree stays in it when its parent ends or it leaves the session. One that is started and
orphaned between two scans is still recognised by the session or group of a member.
"""

import os
import resource
from collections.abc import Iterable

from gpumem_tui.sources.processes import Stat, read_stat

Row = tuple[int, int | None, int | None, int | None]
"""(pid, started ticks, parent, resident bytes): a row of ``records.Tree``."""

_PAGE_BYTES = resource.getpagesize()


class ProcessTree:
    """Below one or several roots. A root is a pid with its start, so that a pid used again is none."""

    def __init__(self, exclude: Iterable[int] = ()) -> None:
        """``exclude``: pids that never belong to it, nor what is below them (the recorder itself)."""
        self._exclude = frozenset(exclude)
        self._members: dict[int, int] = {}
        self._strangers: set[int] = set()
        self.names: dict[tuple[int, int], str] = {}
        """Name of each living member by (pid, started ticks): it changes when a member executes a program."""

    def add_root(self, pid: int, started_ticks: int | None) -> None:
        """A root of the workload; ignored if that process is gone already."""
        stat = read_stat(pid)
        if stat is not None and started_ticks in (None, stat.started_ticks):
            self._members[pid] = stat.started_ticks
            self._strangers.clear()  # what is below it may have been seen before

    @property
    def is_empty(self) -> bool:
        """Whether nobody of it lived at the last scan."""
        return not self._members

    def scan(self) -> list[Row]:
        """The living members, by pid. One read for each of them and for each process new on the machine."""
        stats: dict[int, Stat] = {}
        for pid, ticks in list(self._members.items()):
            stat = read_stat(pid)
            if stat is None or stat.started_ticks != ticks or stat.has_ended:
                del self._members[pid]
            else:
                stats[pid] = stat
        self._find_new(stats)
        self.names = {(pid, stat.started_ticks): stat.name for pid, stat in stats.items()}
        return [
            (pid, stat.started_ticks, stat.parent, stat.rss_pages * _PAGE_BYTES)
            for pid, stat in sorted(stats.items())
        ]

    def _find_new(self, stats: dict[int, Stat]) -> None:
        present = {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208 - names only
        self._strangers &= present
        new: dict[int, Stat] = {}
        for pid in present - self._strangers - self._exclude - stats.keys():
            stat = read_stat(pid)
            if stat is not None and not stat.has_ended:
                new[pid] = stat
        joined = True
        while joined:  # a child may have been read before its parent
            joined = False
            for pid, stat in list(new.items()):
                if {stat.parent, stat.session, stat.group} & self._members.keys():
                    self._members[pid] = stat.started_ticks
                    stats[pid] = new.pop(pid)
                    joined = True
        self._strangers |= new.keys()

"""Processes that the kernel killed for want of host memory: what its counters and the workload's tree tell.

The kernel counts its kills by cgroup and for the whole node, and names nobody. A
killed process is gone a moment after it was counted, so the tree is looked at once
more before a line is made. Whether one who is gone was the one who was killed is the
reader's to judge.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from gpumem_tui.agent.autopsy.host import Cgroup, node_oom_kills, oom_kills
from gpumem_tui.records import Kill
from gpumem_tui.sources.tree import Row

Who = tuple[int, int | None]


class Kills:
    """Looks at each scan of the tree, about once a second."""

    def __init__(self, vmstat: Path = Path("/proc/vmstat")) -> None:
        """Kills before the first look are nobody's of this run."""
        self._vmstat = vmstat
        self._counts: dict[Path, int] = {}
        self._living: set[Who] = set()
        self._waiting: tuple[Kill, set[Who]] | None = None

    def look(self, cgroup: Cgroup | None, rows: Sequence[Row]) -> list[Kill]:
        """Lines to be written, for kills that were counted by the look before. ``rows``: the tree of now."""
        living: set[Who] = {(pid, ticks) for pid, ticks, *_ in rows}
        gone, self._living = self._living - living, living
        found = self._finish(gone)
        count, scope = self._rise(cgroup.path, oom_kills(cgroup)) if cgroup is not None else 0, "cgroup"
        on_node = self._rise(self._vmstat, node_oom_kills(self._vmstat))
        if not count and on_node:
            count, scope = on_node, "node"
        if count:
            self._waiting = Kill(time.monotonic_ns(), count, scope), gone
        return found

    def _finish(self, gone: set[Who]) -> list[Kill]:
        if self._waiting is None:
            return []
        (kill, before), self._waiting = self._waiting, None
        who = sorted(before | gone)
        if kill.scope == "node" and not who:
            return []  # somebody else's: nobody of this workload is gone
        return [Kill(kill.t_ns, kill.count, kill.scope, who)]

    def _rise(self, of: Path, count: int | None) -> int:
        """By how much a counter is higher than when it was first seen, or last."""
        if count is None:
            return 0
        before = self._counts.get(of, count)
        self._counts[of] = count
        return max(0, count - before)

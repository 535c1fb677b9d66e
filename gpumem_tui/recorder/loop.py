"""The recorder's loop: at which moments what is read, and when it ends.

One thread, absolute deadlines, asleep in between. Driver calls and folding happen on
threads of their own (``sources.worker``), so nothing that hangs stops the loop.
"""

import os
import time
from collections.abc import Callable, Iterator

from gpumem_tui.recorder.keepers import Keepers
from gpumem_tui.recorder.kills import Kills
from gpumem_tui.recorder.output import Output
from gpumem_tui.recorder.stop import Stop
from gpumem_tui.records import Bye, Processes, Record, Tree
from gpumem_tui.sources.driver import SECOND_NS, Driver
from gpumem_tui.sources.exits import Exits
from gpumem_tui.sources.host import Cgroup, find_cgroup, read_host
from gpumem_tui.sources.pace import Pace
from gpumem_tui.sources.processes import describe
from gpumem_tui.sources.tree import ProcessTree
from gpumem_tui.sources.worker import Crew, Lane

LAST_READINGS_NS = 2 * SECOND_NS
"""How long it goes on after the end of the workload: memory is given back with a delay."""
BUDGET_EVERY_NS = 10 * SECOND_NS
NEW_PROCESSES_AT_ONCE = 32
"""No more processes are described in one turn; the others have their turn in the next."""


class Recorder:
    """Everything that one recorder reads and writes."""

    def __init__(
        self,
        driver: Driver,
        output: Output,
        keepers: Keepers,
        keep_within_budget: Callable[[], object],
        stop: Stop,
    ) -> None:
        """``stop`` ends it early; ``keep_within_budget`` is called every 10 s, on a thread of its own."""
        self._driver, self._output, self._keepers = driver, output, keepers
        self._stop = stop
        self._keep_within_budget = keep_within_budget
        self._budget: Crew[Record] = Crew("budget")
        self._folding = Lane()
        self._tree = ProcessTree(exclude=[os.getpid()])
        self._roots: set[tuple[int, int | None]] = set()
        self._cgroup: Cgroup | None = None
        self._kills = Kills()
        self._exits = Exits()
        self._described: dict[int, str | None] = {}
        """Processes that a ``process`` line names already, and the name by which it does."""
        self._listed: dict[int, set[int]] = {}
        """Pids on each device by its last process list."""

    def run(self) -> None:
        """Record until the workload has ended, or until ``stop``."""
        now_ns = time.monotonic_ns()
        host, budget = Pace(SECOND_NS, now_ns), Pace(BUDGET_EVERY_NS, now_ns + BUDGET_EVERY_NS)
        ends_ns: int | None = None
        while True:
            records = self._driver.poll(0.1)
            self._take_lists(records)
            now_ns = time.monotonic_ns()
            if host.is_due(now_ns):
                host.advance(now_ns)
                goes_on = self._keepers.look()
                records += self._read_host()
                if not goes_on and self._keepers.died:
                    goes_on = not self._tree.is_empty
                if goes_on:
                    ends_ns = None
                elif ends_ns is None:
                    ends_ns = now_ns + LAST_READINGS_NS
            if budget.is_due(now_ns):
                budget.advance(now_ns)
                self._fold()
            records += self._exits.take()
            records += self._describe_new()
            if self._stop.is_set or (ends_ns is not None and now_ns >= ends_ns):
                reason = "told to stop" if self._stop.is_set else "the workload has ended"
                self._output.write([*records, Bye(time.monotonic_ns(), reason)])
                self._output.close()
                self._exits.close()
                self._driver.close()
                return
            self._output.write(records)
            due_ns = min(self._driver.due_ns(), host.due_ns, ends_ns or host.due_ns)
            self._stop.wait(max(0.005, (due_ns - time.monotonic_ns()) / SECOND_NS))

    def _read_host(self) -> list[Record]:
        for root in self._keepers.roots - self._roots:
            self._roots.add(root)
            self._tree.add_root(*root)
        for pid, _ in self._roots:
            self._cgroup = find_cgroup(pid) or self._cgroup  # it may have been moved
        rows = self._tree.scan()
        self._exits.watch((pid, ticks) for pid, ticks, *_ in rows)
        kills = self._kills.look(self._cgroup, rows)
        return [Tree(time.monotonic_ns(), rows), read_host(self._cgroup), *kills]

    def _take_lists(self, records: list[Record]) -> None:
        for record in records:
            if isinstance(record, Processes) and record.reason is None:
                self._listed[record.index] = {row[0] for row in record.rows}

    def _describe_new(self) -> list[Record]:
        """Lines for processes that are new on a device or in the tree, or have executed another program."""
        names: dict[int, str | None] = dict.fromkeys(set().union(*self._listed.values()))
        names.update((pid, name) for (pid, _), name in self._tree.names.items())
        for gone in self._described.keys() - names.keys():
            del self._described[gone]
        found: list[Record] = []
        for pid, name in names.items():
            if pid in self._described and (name is None or name == self._described[pid]):
                continue
            if len(found) == NEW_PROCESSES_AT_ONCE:
                break
            process = describe(pid)
            self._described[pid] = process.name if name is None else name
            found.append(process)
        return found

    def _fold(self) -> None:
        """Start a turn of folding, unless the last one is still under way."""
        list(self._budget.collect())  # a turn makes no records; it may have ended
        if self._folding.busy_since_ns is not None:
            return

        def turn() -> Iterator[Record]:
            self._keep_within_budget()
            yield from ()

        self._budget.submit(self._folding, turn)

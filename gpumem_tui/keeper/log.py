"""The keeper's own journal: start, signals, exit, size of the output. Never a reason to fail."""

import contextlib
import os
from pathlib import Path

from gpumem_tui.agent import wire
from gpumem_tui.agent.journal import Journal
from gpumem_tui.records.ending import Ending


class KeeperLog:
    """Lines of one keeper in the run's ``journal``; several keepers of one recording have one each."""

    def __init__(self, run: Path) -> None:
        self._journal: Journal | None = None
        pid = os.getpid()
        # A recording that cannot be written leaves the workload unmonitored, never unstarted.
        with contextlib.suppress(OSError):
            self._journal = Journal(
                str(run / "journal"), "keeper", run.name, pid, wire.started_ticks(pid), parent=os.getppid()
            )

    def _write(self, kind: str, *values: object) -> None:
        if self._journal is not None:
            self._journal.append(kind, wire.now_ns(), *values)
            self._journal.flush()

    def started(self, pid: int) -> None:
        """The workload runs."""
        self._write("start", pid, wire.started_ticks(pid))

    def signalled(self, number: int, action: str) -> None:
        """A signal came, and what became of it."""
        self._write("signal", number, action)

    def output(self, size_bytes: int) -> None:
        """The output log has this many bytes now."""
        self._write("output", size_bytes)

    def dropped(self, what: str) -> None:
        """Something could not be kept."""
        self._write("dropped", 0, 0, what)

    def ended(self, ending: Ending) -> None:
        """The workload has ended."""
        self._write("exit", ending.code, ending.signal)
        if self._journal is not None:
            self._journal.close()

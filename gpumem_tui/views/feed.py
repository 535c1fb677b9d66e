"""What a live view needs from whoever has the recording: pictures, output bytes, a way to stop the run.

Only the protocol is here; ``session`` implements it for recordings, tests script it.
"""

from enum import Enum
from typing import Protocol

from gpumem_tui.analysis.snapshot import Snapshot
from gpumem_tui.analysis.state import RunState


class Stop(str, Enum):
    """How hard the workload is asked to end. Each is harder than the one before it."""

    INTERRUPT = "SIGINT"
    """As Ctrl-C would: a script may still save what it has."""
    TERMINATE = "SIGTERM"
    KILL = "SIGKILL"
    """The workload cannot refuse, and cannot save anything."""


class Reach(Protocol):
    """The run itself, as far as a view may reach it. Called as those of :class:`Feed` are."""

    def read_output(self, start: int, size: int) -> bytes:
        """Up to ``size`` bytes of the output log from offset ``start``; fewer at its end."""

    def read_snapshot(self, name: str) -> Snapshot:
        """A memory snapshot that lies in the recording, by its path there. May take seconds."""

    def ask_map(self) -> str:
        """Ask every rank of a run that goes on for a map of its blocks. Returns a sentence."""

    def stop(self, how: str) -> str:
        """Ask the keeper to end the workload, by a signal's name. Returns a sentence on what was done."""

    def type_in(self, data: bytes) -> None:
        """Type bytes into the workload's terminal (interactive runs only)."""


class Feed(Protocol):
    """A recording as a view sees it. Every method is called in one worker thread, never in the drawing loop.

    Methods may block shortly and may raise :class:`gpumem_tui.errors.GpumemError`;
    the view shows such an error as a line and goes on asking.
    """

    @property
    def reach(self) -> Reach:
        """What there is beyond pictures."""

    def read(self) -> RunState:
        """The picture of now."""

    def read_at(self, moment_ns: int, since_ns: int, until_ns: int, thorough: bool = False) -> RunState:
        """The picture of a moment of the past, as far as it is known; ``thorough`` may take a second.

        Only its curves and bands reach further: over the stretch that a chart shows, or
        over the whole run.
        """

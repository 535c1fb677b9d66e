"""What a live view needs from whoever has the recording: pictures, output bytes, a way to stop the run.

Only the protocol is here; ``session`` implements it for recordings, tests script it.
"""

from enum import Enum
from typing import Protocol

from gpumem_tui.analysis.state import RunState


class Stop(str, Enum):
    """How hard the workload is asked to end. Each is harder than the one before it."""

    INTERRUPT = "SIGINT"
    """As Ctrl-C would: a script may still save what it has."""
    TERMINATE = "SIGTERM"
    KILL = "SIGKILL"
    """The workload cannot refuse, and cannot save anything."""


class Feed(Protocol):
    """A recording as a view sees it. Every method is called in one worker thread, never in the drawing loop.

    Methods may block shortly and may raise :class:`gpumem_tui.errors.GpumemError`;
    the view shows such an error as a line and goes on asking.
    """

    def read(self) -> RunState:
        """The picture of now."""

    def read_output(self, start: int, size: int) -> bytes:
        """Up to ``size`` bytes of the output log from offset ``start``; fewer at its end."""

    def stop(self, how: Stop) -> str:
        """Ask the keeper to end the workload. Returns a sentence on what was done."""

    def type_in(self, data: bytes) -> None:
        """Type bytes into the workload's terminal (interactive runs only)."""

"""The ways out of the view: what became of it, and the report of a crash."""

import tempfile
from enum import Enum
from pathlib import Path

import msgspec

from gpumem_tui.views.feed import Stop

HARDER = (Stop.INTERRUPT, Stop.TERMINATE, Stop.KILL)
"""What stopping sends the first, the second, the third time."""


class Left(str, Enum):
    """How people left the view."""

    DETACHED = "detached"
    """The view is closed, the run goes on."""
    STOPPED = "stopped"
    """The run was asked to stop from here."""
    ENDED = "ended"
    """The run had ended by itself."""
    CRASHED = "crashed"
    """The view failed; the run is not touched."""


class AppResult(msgspec.Struct, frozen=True):
    """What became of the view."""

    left: Left
    exit_code: int
    """0; 128 + number after a signal; 70 after a crash."""
    sentence: str
    """For the terminal after the view is gone; empty if nothing needs saying."""
    report: Path | None = None
    """Where the report of a crash lies."""


def save_report(text: str, folder: Path | None) -> Path:
    """Write a crash report that only its owner can read. Raises OSError."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="gpumem-tui-crash-", suffix=".txt", dir=folder, delete=False
    ) as file:
        file.write(text)
    return Path(file.name)

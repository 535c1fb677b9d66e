"""Alarms beside a live view: a feed that tells what is new in each picture, by the bell or by a command."""

import contextlib
import os
import subprocess
from collections.abc import Callable

from gpumem_tui.analysis.state import RunState
from gpumem_tui.analysis.waiting import RunAlarms
from gpumem_tui.views.feed import Feed, Reach


class Ringing:
    """A feed that does what another does, and listens to its pictures of now."""

    def __init__(self, feed: Feed, alarms: RunAlarms, tell: Callable[[str], None]) -> None:
        self._feed, self._alarms, self._tell = feed, alarms, tell

    @property
    def reach(self) -> Reach:
        """The feed's."""
        return self._feed.reach

    def read(self) -> RunState:
        """The picture of now; what is new in it is told."""
        state = self._feed.read()
        for sentence in self._alarms.take(state):
            self._tell(sentence)
        return state

    def read_at(self, moment_ns: int, since_ns: int, until_ns: int, thorough: bool = False) -> RunState:
        """As the feed does."""
        return self._feed.read_at(moment_ns, since_ns, until_ns, thorough)


def ring(_sentence: str) -> None:
    """The bell of the terminal; one byte, which moves nothing on it."""
    with contextlib.suppress(OSError):
        tty = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY)
        try:
            os.write(tty, b"\a")
        finally:
            os.close(tty)


def teller(command: str) -> Callable[[str], None]:
    """Run a command for each alarm, beside us; what it says goes nowhere, how it ends is its own business."""

    def tell(sentence: str) -> None:
        subprocess.Popen(
            ["/bin/sh", "-c", command],
            env={**os.environ, "GPUMEM_TUI_ALARM": sentence},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    return tell

"""The terminal itself: draws on /dev/tty whatever the descriptors are, and leaves it as it was.

Textual writes to stderr and reads stdin. ``2>log`` would send the picture to the
log, so the driver here opens the controlling terminal. Textual restores nothing
after SIGTERM and SIGHUP; ``watch_signals`` ends the app in order for both.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Callable
from typing import IO, Any

from textual.drivers.linux_driver import LinuxDriver

from gpumem_tui.views.tui.delta import Delta

RESTORE = (
    b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l\x1b[?1004l\x1b[?2004l"
    b"\x1b[?2048l\x1b[<u\x1b[?7h\x1b[?1049l\x1b[?25h\x1b[0m"
)
"""Switches off everything that the view may have switched on."""


class Terminal(LinuxDriver):
    """Textual's driver on the controlling terminal."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._tty = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        self._file: IO[str] = _Patient(os.dup(self._tty))  # type: ignore[assignment]
        self.fileno = self._tty
        self.input_tty = True
        self._delta = Delta()

    def _get_terminal_size(self) -> tuple[int, int]:
        try:
            rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(self._tty, termios.TIOCGWINSZ, b"\0" * 8))
        except OSError:
            return 80, 24
        return columns or 80, rows or 24

    def write(self, data: str) -> None:
        """Send what changes the screen."""
        changes = self._delta.translate(data)
        if changes:
            super().write(changes)

    def redraw(self) -> None:
        """Assume nothing about the screen any more: what is drawn next is sent whole."""
        self._delta.forget()

    def backlog(self) -> int:
        """Writes that the line has not taken yet; more than a few mean that it is slow."""
        return 0 if self._writer_thread is None else self._writer_thread._queue.qsize()

    def close(self) -> None:
        """Stop writing, and let go of the terminal."""
        super().close()
        self._file.close()
        os.close(self._tty)


class _Patient:
    """A text file on a terminal that may go away: what cannot be written any more is let go."""

    encoding = "utf-8"

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._gone = False

    def write(self, text: str) -> int:
        data = text.encode("utf-8", "replace")
        try:
            while data and not self._gone:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            self._gone = True
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        return not self._gone

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


def watch_signals(end: Callable[[int], None]) -> None:
    """Call ``end(number)`` in the running loop for SIGTERM and SIGHUP."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)


class Modes:
    """The terminal's modes as they were, to put them back whatever happened."""

    def __init__(self) -> None:
        try:
            self._tty: int | None = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
            self._before = termios.tcgetattr(self._tty)
        except (OSError, termios.error):
            self._tty = None

    def restore(self, *, everything: bool) -> None:
        """Put the modes back; with ``everything``, also switch off what a view that died had switched on.

        After an orderly end Textual has done the latter, and doing it twice would undo
        what somebody else (an outer program on the same terminal) had switched on.
        """
        if self._tty is None:
            return
        with contextlib.suppress(OSError, termios.error):  # a terminal that is gone needs nothing
            if everything:
                os.write(self._tty, RESTORE)
            termios.tcsetattr(self._tty, termios.TCSANOW, self._before)
        os.close(self._tty)
        self._tty = None

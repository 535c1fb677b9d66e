"""The terminal itself: draws on /dev/tty whatever the descriptors are, and leaves it as it was.

Textual writes to stderr and reads stdin. ``2>log`` would send the picture to the
log, so the driver here opens the controlling terminal. Textual restores nothing
after SIGTERM and SIGHUP; ``watch_signals`` ends the app in order for both.
"""

import asyncio
import contextlib
import fcntl
import os
import selectors
import signal
import struct
import termios
import time
from collections.abc import Callable
from typing import IO, Any

from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message
from textual.messages import TerminalSupportsSynchronizedOutput

from gpumem_tui.views.tui.delta import Delta
from gpumem_tui.views.tui.keyboard import Keyboard
from gpumem_tui.views.tui.line import QUESTION, LineSpeed

_BACKLOG = 4
"""Writes that the line has not taken yet, from which on it is busy."""

_TOGETHER_S = 0.02
"""Time in which writes are put together, in seconds: a screen is painted blank before it is filled."""

_TICK_S, _TICKING_S = 0.1, 1.0
"""How often, and for how long after something came, it is looked whether a sequence came to an end."""

_ARRANGED_S = 0.3
"""Time within which a screen that is new stands, in seconds."""

_END_OF_FRAME = "\x1b[?2026l"

RESTORE = (
    b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l\x1b[?1004l\x1b[?2004l"
    b"\x1b[?2048l\x1b[<u\x1b[?7h\x1b[?1049l\x1b[?25h\x1b[0m"
)
"""Switches off everything that the view may have switched on."""


class Terminal(LinuxDriver):
    """Textual's driver on the controlling terminal."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._open()
        self.input_tty = True
        self._delta = Delta()
        self.speed = LineSpeed()
        self._waiting: list[str] = []
        self._sending: asyncio.TimerHandle | None = None
        self._wake: tuple[int, int] | None = None
        """A pipe that ends the thread which reads the terminal."""

    def _open(self) -> None:
        self._tty = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        self._file: IO[str] = _Patient(os.dup(self._tty))  # type: ignore[assignment]
        self.fileno = self._tty

    def start_application_mode(self) -> None:
        """Take the terminal, for the first time or again after the view was stopped."""
        if self._tty < 0:
            self._open()
        if self._wake is None:
            self._wake = os.pipe()
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def run_input_thread(self) -> None:
        """Read the terminal, asleep while nothing comes; Textual's own looks ten times a second."""
        if self._wake is None:
            return
        keyboard = Keyboard(self._debug)
        ticking_s = 0.0
        with selectors.PollSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            selector.register(self._wake[0], selectors.EVENT_READ)
            while not self.exit_event.is_set():
                ready = selector.select(_TICK_S if time.monotonic() < ticking_s else None)
                if any(key.fd == self.fileno for key, _ in ready):
                    try:
                        data = os.read(self.fileno, 4096)
                    except OSError:
                        data = b""
                    if not data:  # the terminal is gone; SIGHUP, which comes with that, ends the view
                        return
                    ticking_s = time.monotonic() + _TICKING_S
                    for message in keyboard.hear(data):
                        self.process_message(message)
                else:
                    for message in keyboard.rest():
                        self.process_message(message)

    def disable_input(self) -> None:
        """Read the terminal no more."""
        if self._wake is None:
            return
        os.write(self._wake[1], b".")  # stays there until the thread has ended
        super().disable_input()
        for end in self._wake:
            os.close(end)
        self._wake = None

    def _get_terminal_size(self) -> tuple[int, int]:
        try:
            rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(self._tty, termios.TIOCGWINSZ, b"\0" * 8))
        except OSError:
            return 80, 24
        return columns or 80, rows or 24

    def write(self, data: str) -> None:
        """Send what changes the screen, shortly: what is painted over meanwhile need not be sent."""
        self._waiting.append(data)
        if self._sending is None:
            self._sending = self._loop.call_later(_TOGETHER_S, self._send)

    def hold(self) -> None:
        """Send nothing until ``release``, for a moment: a new screen would be seen empty first."""
        if self._sending is not None:
            self._sending.cancel()
        self._sending = self._loop.call_later(_ARRANGED_S, self._send)

    def release(self) -> None:
        """Send what stands."""
        if self._sending is not None:
            self._send()

    def _send(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        changes = self._delta.translate("".join(self._waiting))
        self._waiting.clear()
        if changes.endswith(_END_OF_FRAME) and self.speed.ask():
            changes += QUESTION
        if changes:
            super().write(changes)

    def stop_application_mode(self) -> None:
        """Leave the terminal as it was, at once."""
        super().stop_application_mode()
        self._send()

    def process_message(self, message: Message) -> None:
        """Hear the terminal's answers; runs in the thread that reads it."""
        if isinstance(message, TerminalSupportsSynchronizedOutput):
            self._delta.synchronised = True
            self.speed.answered()
        super().process_message(message)

    def redraw(self) -> None:
        """Assume nothing about the screen any more: what is drawn next is sent whole."""
        self._delta.forget(self._get_terminal_size())

    def busy(self) -> bool:
        """Whether earlier pictures are still on their way: another one would only come behind them."""
        waiting = 0 if self._writer_thread is None else self._writer_thread._queue.qsize()
        return waiting > _BACKLOG or self.speed.busy()

    def close(self) -> None:
        """Stop writing, and let go of the terminal, if it is held."""
        if self._tty < 0:
            return
        super().close()
        self._file.close()
        os.close(self._tty)
        self._tty = -1


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

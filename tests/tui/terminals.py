"""A terminal for tests: a pty that answers as modern terminals do, with its screen and its modes."""

import contextlib
import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyte

LIVE = Path(__file__).with_name("live.py")
_TAKE_TERMINAL = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
_SESSION = f"{_TAKE_TERMINAL}; os.execv(sys.argv[1], sys.argv[1:])"
_MODE = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")
_PATIENCE_S = 60


class Terminal:
    """A program on a pty of its own session."""

    def __init__(self, *arguments: str, size=(80, 24), env=None, stderr=None):
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.modes_before = termios.tcgetattr(self.slave)
        self.screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SESSION, sys.executable, str(LIVE), *arguments],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave if stderr is None else stderr,
            start_new_session=True,
            env={**_environment(), **(env or {})},
        )

    def pump(self, seconds: float) -> bytes:
        """Read for a while, answer what is asked."""
        new = b""
        end = time.monotonic() + seconds
        while (rest := end - time.monotonic()) > 0:
            ready, _, _ = select.select([self.master], [], [], rest)
            if not ready:
                break
            try:
                data = os.read(self.master, 65536)
            except OSError:
                break
            new += data
            if b"\x1b[?2026$p" in data:
                os.write(self.master, b"\x1b[?2026;2$y")
        self.raw += new
        # pyte knows no private parameters beyond "?"; kitty's are not its business.
        self._stream.feed(re.sub(rb"\x1b\[[<>=][0-9;]*u", b"", new))
        return new

    def wait_for(self, text: str) -> float:
        """Read until the screen shows this; seconds since the start."""
        while text not in self.text:
            if time.monotonic() - self.started > _PATIENCE_S:
                raise AssertionError(f"never saw {text!r} on\n{self.text}")
            self.pump(0.02)
        return time.monotonic() - self.started

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def wait(self) -> int:
        """The exit code; reads what is still written."""
        while self.process.poll() is None:
            if time.monotonic() - self.started > _PATIENCE_S:
                self.process.kill()
                raise AssertionError(f"did not end; its screen is\n{self.text}")
            self.pump(0.02)
        self.pump(0.1)
        return self.process.returncode

    def modes_left_on(self) -> set[int]:
        """Private modes that were switched on and not off again; 25 (cursor) counts if it is off."""
        state: dict[int, bool] = {}
        for numbers, switch in _MODE.findall(self.raw):
            for number in numbers.split(b";"):
                state[int(number)] = switch == b"h"
        left = {number for number, on in state.items() if on and number not in (7, 25)}
        return left | {number for number in (7, 25) if not state.get(number, True)}

    def keyboard_protocol_balanced(self) -> bool:
        """Whether every push of the keyboard protocol was popped once, and nothing else was."""
        pushes, pops = re.findall(rb"\x1b\[>\d+u", self.raw), re.findall(rb"\x1b\[<u", self.raw)
        return len(pushes) == len(pops)

    def restored(self) -> bool:
        """Whether everything is as it was."""
        same = termios.tcgetattr(self.slave) == self.modes_before
        return same and not self.modes_left_on() and self.keyboard_protocol_balanced()

    def hang_up(self) -> None:
        """The line drops."""
        os.close(self.slave)
        os.close(self.master)
        self.slave = self.master = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for descriptor in (self.master, self.slave):
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _environment() -> dict[str, str]:
    dropped = ("NO_COLOR", "TEXTUAL", "COLUMNS", "LINES", "COLORTERM")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    kept["XDG_CONFIG_HOME"] = os.devnull  # nobody's settings
    return {**kept, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}

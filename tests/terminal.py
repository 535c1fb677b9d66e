"""A program on a pty and what its screen shows: for tests and benchmarks of the live view."""

import time

import pexpect
import pyte


class Terminal:
    """A program on a pty, and what its screen shows."""

    def __init__(self, command, environment, folder, rows=24, columns=80) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.started_s = time.monotonic()
        env = {**environment, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        self.child = pexpect.spawn(
            command[0],
            command[1:],
            env=env,
            cwd=str(folder),
            dimensions=(rows, columns),
            timeout=30,
            use_poll=True,
        )
        self.received = b""

    def read(self, timeout=0.1) -> str:
        """Take what has come; the screen as text."""
        try:
            data = self.child.read_nonblocking(1 << 16, timeout=timeout)
        except (pexpect.TIMEOUT, pexpect.EOF):
            data = b""
        self.received += data
        self._stream.feed(data)
        return "\n".join(self.screen.display)

    def wait_for(self, text, seconds=60.0) -> str:
        """The screen, once it shows a text."""
        until = time.monotonic() + seconds
        while text not in (shown := self.read(0.02)):
            assert time.monotonic() < until, f"{text!r} did not appear:\n{shown}"
        return shown

    def wait_for_end(self) -> int:
        """The exit status."""
        until = time.monotonic() + 60
        while self.child.isalive():
            self.read()
            assert time.monotonic() < until, "it did not end:\n" + self.read()
        self.read()
        self.child.close()
        return self.child.exitstatus if self.child.exitstatus is not None else -self.child.signalstatus

    def press(self, keys) -> None:
        """Type."""
        self.child.send(keys)

"""How a workload ended: its exit code, or the signal that killed it."""

import os
import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class Ending:
    """Exit code, or the number of the signal that killed the process: exactly one of them."""

    code: int | None
    signal: int | None

    @staticmethod
    def of(status: int) -> "Ending":
        """From the status of ``waitpid``."""
        if os.WIFSIGNALED(status):
            return Ending(None, os.WTERMSIG(status))
        return Ending(os.waitstatus_to_exitcode(status), None)

    def sentence(self) -> str:
        """``exit code 3``, ``killed by SIGKILL``."""
        if self.signal is not None:
            return f"killed by {signal_name(self.signal)}"
        return f"exit code {self.code}"

    def shell_code(self) -> int:
        """The exit code that a shell shows for it."""
        return 128 + self.signal if self.signal is not None else self.code or 0


def signal_name(number: int) -> str:
    """``SIGTERM``; the number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

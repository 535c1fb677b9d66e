"""How a workload ended, from its wait status, and how to end the same way."""

import os
import resource
import signal
from dataclasses import dataclass
from typing import NoReturn


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


def end_like(ending: Ending) -> NoReturn:
    """End this process as the workload ended: the same exit code, or killed by the same signal."""
    if ending.signal is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the workload's core is the one that matters
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [ending.signal])
        if ending.signal not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(ending.signal, signal.SIG_DFL)
        os.kill(os.getpid(), ending.signal)
    os._exit(ending.shell_code())

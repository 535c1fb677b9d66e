"""How to end as the workload ended."""

import os
import resource
import signal
from typing import NoReturn

from gpumem_tui.records.ending import Ending


def end_like(ending: Ending) -> NoReturn:
    """End this process as the workload ended: the same exit code, or killed by the same signal."""
    if ending.signal is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the workload's core is the one that matters
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [ending.signal])
        if ending.signal not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(ending.signal, signal.SIG_DFL)
        os.kill(os.getpid(), ending.signal)
    os._exit(ending.shell_code())

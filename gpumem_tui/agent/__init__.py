"""The agent: runs inside the user's process, reads PyTorch's counters, writes this process's journal.

Bottom layer: standard library only, Python 3.8 syntax, relative imports only,
because the workload's interpreter is not ours and may not have this package
installed (``site/sitecustomize.py`` loads it by path). It never initialises CUDA,
never creates a context, never synchronises, and never raises into the user's program.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from .process import Monitored

monitored: "Optional[Monitored]" = None
"""The agent of this process, if it was started."""


def start(run: "Optional[str]" = None) -> bool:
    """Start the agent for the run directory ``run`` (default: ``GPUMEM_TUI_RUN``). Once a process.

    False where there is no such directory, or this process is not to be monitored.
    """
    global monitored
    run = run or os.environ.get("GPUMEM_TUI_RUN")
    if monitored is not None or not run or not os.path.isdir(run):
        return monitored is not None
    from .process import begin

    monitored = begin(run)
    return True

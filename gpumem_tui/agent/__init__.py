"""The agent: runs inside the user's process, reads PyTorch's counters, writes this process's journal.

Bottom layer: standard library only, Python 3.8 syntax, relative imports only,
because the workload's interpreter is not ours and may not have this package
installed (``site/sitecustomize.py`` loads it by path). It never initialises CUDA,
never creates a context, never synchronises, and never raises into the user's program.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
"""As ``typing``'s: importing that would cost every interpreter of a run some milliseconds."""
if TYPE_CHECKING:
    from typing import Any

    from .process import Monitored

monitored: "Monitored | None" = None
"""The agent of this process, once torch was imported."""

_run = ""


def tracing() -> bool:
    """Whether torch.compile is tracing the calling code: torch's own function takes this one's place."""
    return False


def start(run: "str | None" = None) -> bool:
    """Arm the agent for the run directory ``run`` (default: ``GPUMEM_TUI_RUN``). Once a process.

    It acts when torch is imported. False where there is no such directory.
    """
    global _run
    run = run or os.environ.get("GPUMEM_TUI_RUN")
    if _run or not run or not os.path.isdir(run):
        return bool(_run)
    from .importhook import after_import

    _run = run
    after_import("torch", _on_torch)
    return True


def _on_torch(torch: Any) -> None:
    """Right after the user's import of torch: only now is the rest of the agent loaded."""
    global monitored, tracing
    from .patches import compiling
    from .process import begin

    tracing = compiling(torch)
    monitored = begin(_run)
    monitored.on_torch(torch)

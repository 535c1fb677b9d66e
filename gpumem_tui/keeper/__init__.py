"""The keeper: parent of the workload. Passes signals and exit status through, writes how it ended.

Minimal on purpose: it reads no counters and no driver, and nothing that fails in the
recording reaches the workload. Two ways of keeping:

``batch``
    Descriptors are inherited untouched, nothing of ours is written to them. For
    everything that is not a person at a terminal.
``terminal``
    A session and pty of its own, as ``script`` gives, and an output log: the run
    outlives its viewer and the SSH line.
"""

from gpumem_tui.keeper.batch import keep_batch
from gpumem_tui.keeper.ending import end_like
from gpumem_tui.keeper.environment import workload_environment
from gpumem_tui.keeper.terminal import keep_terminal
from gpumem_tui.records.ending import Ending

__all__ = ["Ending", "end_like", "keep_batch", "keep_terminal", "workload_environment"]

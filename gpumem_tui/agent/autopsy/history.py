"""The allocator's own history of allocations: recorded and dumped only where ``--history`` asked for it."""

from __future__ import annotations

import os
import pickle
from typing import Any

from .absent import Absent

ENTRIES = 100_000
"""Traces kept; older ones are overwritten."""


def record(torch: Any) -> None:
    """Have PyTorch record from now on. A history that the user's program records is left as it is.

    Raises :class:`Absent` where this PyTorch or its allocator cannot.
    """
    if getattr(torch._C, "_cuda_isHistoryEnabled", lambda: False)():
        return
    try:
        torch.cuda.memory._record_memory_history(max_entries=ENTRIES, stacks="python")
    except (AttributeError, TypeError, RuntimeError) as error:
        raise Absent("no memory history: this PyTorch cannot (%s)" % str(error).partition("\n")[0]) from None


def dump(torch: Any, path: str) -> None:
    """Write what ``torch.cuda.memory._dump_snapshot`` would. Raises :class:`Absent`."""
    try:
        snapshot = torch.cuda.memory._snapshot()
        with open(path + ".part", "wb") as file:
            pickle.dump(snapshot, file)
        os.replace(path + ".part", path)
    except (OSError, RuntimeError) as error:
        raise Absent("the history could not be written: %s" % str(error).partition("\n")[0]) from None

"""Process groups: which rank this process is, and when its groups were made and first used.

A group's library takes its memory at the first collective, outside PyTorch: a marker
is what explains the rise. Calls no collective and asks no peer.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Mapping

from . import identity, wire

if TYPE_CHECKING:
    from .process import Monitored


class Groups:
    """The one of a process; it stays the same object in a forked child."""

    def __init__(self, monitored: Monitored, environment: Mapping[str, str]) -> None:
        self._monitored, self._environment = monitored, environment
        self._awaits_collective = False

    def forget(self) -> None:
        """In a forked child: the parent's groups are none of its own."""
        self._awaits_collective = False

    def introduce(self) -> None:
        """Tell the rank that the launcher's environment gives, where it gives one."""
        rank = identity.rank_of(self._environment)
        if rank is not None:
            self._monitored.rank = rank[0]
            self._monitored.tell("rank", wire.now_ns(), *rank, "environment")

    def on_change(self, distributed: Any) -> None:
        """After ``init_process_group`` or ``destroy_process_group``."""
        monitored = self._monitored
        if not distributed.is_initialized():
            monitored.tell("mark", wire.now_ns(), "process group destroyed")
            return
        rank, size = distributed.get_rank(), distributed.get_world_size()
        monitored.rank = rank
        known = identity.rank_of(self._environment)
        local, local_size = (known[1], known[3]) if known else (None, None)
        now = wire.now_ns()
        monitored.tell("rank", now, rank, local, size, local_size, "process group")
        monitored.tell("mark", now, "process group", distributed.get_backend())
        self._awaits_collective = True

    def look_for_collective(self) -> None:
        """On the sampler's thread: a marker once a group has counted its first collective."""
        if not self._awaits_collective:
            return
        world = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)
        for group, (backend, _) in list(getattr(world, "pg_map", {}).items()):
            try:
                counted = group._get_sequence_number_for_group()
            except RuntimeError:
                continue  # a backend that does not count
            if counted > 0:
                self._awaits_collective = False
                self._monitored.tell("mark", wire.now_ns(), "first collective", str(backend))
                return

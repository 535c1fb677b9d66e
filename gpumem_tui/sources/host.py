"""Host memory, and what the workload's cgroup may use of it: one line of the driver's journal.

How /proc and cgroup files are read is ``agent.autopsy.host``'s, because a failing
process reads them too.
"""

import time
from pathlib import Path

from gpumem_tui.agent.autopsy.host import Cgroup, find_cgroup, governing, meminfo, oom_kills
from gpumem_tui.records import Host

__all__ = ["Cgroup", "find_cgroup", "read_host"]


def read_host(cgroup: Cgroup | None, path: Path = Path("/proc/meminfo")) -> Host:
    """All figures of now, in bytes."""
    known = meminfo(path)
    swap, swap_free = known.get("SwapTotal"), known.get("SwapFree")
    used = limit = kills = None
    if cgroup is not None:
        used, limit = governing(cgroup)
        kills = oom_kills(cgroup)
    return Host(
        t_ns=time.monotonic_ns(),
        total_bytes=known.get("MemTotal"),
        available_bytes=known.get("MemAvailable"),
        swap_used_bytes=None if swap is None or swap_free is None else swap - swap_free,
        cgroup_bytes=used,
        cgroup_limit_bytes=limit,
        cgroup_oom_kills=kills,
    )

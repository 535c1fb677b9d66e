"""Host memory: of this node, of a process, and what its cgroup may use. Reads /proc and cgroup files.

Cgroups of versions 1 and 2. A limit may sit anywhere above the process: the tightest
one governs, and the usage shown with it is that level's. What cannot be read is None.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

_NO_LIMIT = 1 << 62
"""Version 1 says a number near 2^63 where there is none."""


class Cgroup(NamedTuple):
    """Where the memory controller has a process."""

    version: int
    path: Path
    mount: Path
    """Nothing above it is visible."""

    def levels(self) -> List[Path]:
        """The cgroup and those above it, innermost first."""
        paths = [self.path]
        while paths[-1] != self.mount:
            paths.append(paths[-1].parent)
        return paths


def find_cgroup(pid: object, proc: Path = Path("/proc")) -> Optional[Cgroup]:
    """The memory cgroup of a process; None where none is mounted here or its path is not visible."""
    try:
        groups = (proc / str(pid) / "cgroup").read_text()
        mounts = (proc / "self" / "mountinfo").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    paths: Dict[int, str] = {}
    for line in groups.splitlines():
        number, controllers, where = line.split(":", 2)
        if "memory" in controllers.split(","):
            paths[1] = where
        elif number == "0":
            paths[2] = where
    for version in (1, 2):  # on a mixed system the memory controller is version 1's
        for root, mount in _mounts(mounts, version) if version in paths else ():
            path = _below(mount, root, paths[version])
            if path is not None and path.is_dir() and (version == 1 or _has_memory(path)):
                return Cgroup(version, path, mount)
    return None


def _mounts(mountinfo: str, version: int) -> List[Tuple[str, Path]]:
    found = []
    for line in mountinfo.splitlines():
        head, _, tail = line.partition(" - ")
        before, after = head.split(), tail.split()
        if len(before) < 5 or len(after) < 3:
            continue
        kind, options = after[0], after[2].split(",")
        if kind == "cgroup2" if version == 2 else kind == "cgroup" and "memory" in options:
            found.append((before[3], Path(before[4])))
    return found


def _below(mount: Path, root: str, path: str) -> Optional[Path]:
    """Where a cgroup's path lies in a mount that shows ``root`` and what is below it."""
    try:
        relative = PurePosixPath(path).relative_to(root)
    except ValueError:
        return None
    return None if ".." in relative.parts else mount / relative


def _has_memory(path: Path) -> bool:
    return (path / "memory.current").exists()


def meminfo(path: Path = Path("/proc/meminfo")) -> Dict[str, int]:
    """/proc/meminfo in bytes; empty where it cannot be read."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    known = {}
    for line in lines:
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB" and words[0].isdigit():
            known[name] = int(words[0]) << 10
    return known


def governing(cgroup: Cgroup) -> Tuple[Optional[int], Optional[int]]:
    """(usage, limit) of the level with the tightest limit; the cgroup's own usage where nothing limits."""
    usage_name, limit_name = (
        ("memory.current", "memory.max")
        if cgroup.version == 2
        else ("memory.usage_in_bytes", "memory.limit_in_bytes")
    )
    limits = []
    for path in cgroup.levels():
        limit = _number(path / limit_name)
        if limit is not None:
            limits.append((limit, path))
    limit, path = min(limits, key=lambda found: found[0]) if limits else (None, cgroup.path)
    return _number(path / usage_name), limit


def _number(path: Path) -> Optional[int]:
    """One number of a file; None for ``max`` and for what stands for no limit."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() and int(text) < _NO_LIMIT else None


def oom_kills(cgroup: Cgroup) -> Optional[int]:
    """Processes of a cgroup or below that the kernel has killed for want of host memory, ever."""
    name = "memory.events" if cgroup.version == 2 else "memory.oom_control"
    return _counter(cgroup.path / name, "oom_kill")


def node_oom_kills(path: Path = Path("/proc/vmstat")) -> Optional[int]:
    """Processes of the whole node that the kernel has killed for want of host memory, since its boot."""
    return _counter(path, "oom_kill")


def _counter(path: Path, wanted: str) -> Optional[int]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        key, _, value = line.partition(" ")
        if key == wanted and value.strip().isdigit():
            return int(value)
    return None


def read_own(torch: Any) -> Dict[str, Optional[int]]:
    """Of this process and its node, as ``records.failure.HostMemory``."""
    cgroup = find_cgroup("self")
    used, limit = governing(cgroup) if cgroup is not None else (None, None)
    return {
        "rss_bytes": _rss(),
        "pinned_bytes": _pinned(torch),
        "available_bytes": meminfo().get("MemAvailable"),
        "cgroup_bytes": used,
        "cgroup_limit_bytes": limit,
    }


def _rss() -> Optional[int]:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def _pinned(torch: Any) -> Optional[int]:
    """Held by PyTorch's allocator of pinned memory. Only after the user's CUDA initialisation."""
    stats = getattr(torch._C, "_cuda_hostMemoryStats", None)
    if stats is None:
        return None
    try:
        return stats()["allocated_bytes"]["current"]  # type: ignore[no-any-return]
    except (RuntimeError, KeyError):
        return None

"""Host memory, and what the workload's cgroup may use of it.

Reads /proc/meminfo and cgroup files, versions 1 and 2. A limit may sit anywhere above
the workload: the tightest one governs, and the usage shown with it is that level's.
Where there is no limit, or no cgroup that can be seen, the figures are None.
"""

import time
from pathlib import Path, PurePosixPath

import msgspec

from gpumem_tui.records import Host

_NO_LIMIT = 1 << 62
"""Version 1 says a number near 2^63 where there is none."""


class Cgroup(msgspec.Struct, frozen=True):
    """Where the memory controller has the workload."""

    version: int
    path: Path
    mount: Path
    """Nothing above it is visible."""

    def levels(self) -> list[Path]:
        """The cgroup and those above it, innermost first."""
        paths = [self.path]
        while paths[-1] != self.mount:
            paths.append(paths[-1].parent)
        return paths


def find_cgroup(pid: int, proc: Path = Path("/proc")) -> Cgroup | None:
    """The memory cgroup of a process; None where none is mounted here or its path is not visible."""
    try:
        groups = (proc / str(pid) / "cgroup").read_text()
        mounts = (proc / "self" / "mountinfo").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    paths: dict[int, str] = {}
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


def _mounts(mountinfo: str, version: int) -> list[tuple[str, Path]]:
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


def _below(mount: Path, root: str, path: str) -> Path | None:
    """Where a cgroup's path lies in a mount that shows ``root`` and what is below it."""
    try:
        relative = PurePosixPath(path).relative_to(root)
    except ValueError:
        return None
    return None if ".." in relative.parts else mount / relative


def _has_memory(path: Path) -> bool:
    return (path / "memory.current").exists()


def read_host(cgroup: Cgroup | None, meminfo: Path = Path("/proc/meminfo")) -> Host:
    """All figures of now, in bytes."""
    known = _meminfo(meminfo)
    swap, swap_free = known.get("SwapTotal"), known.get("SwapFree")
    used = limit = kills = None
    if cgroup is not None:
        used, limit = _governing(cgroup)
        kills = _oom_kills(cgroup)
    return Host(
        t_ns=time.monotonic_ns(),
        total_bytes=known.get("MemTotal"),
        available_bytes=known.get("MemAvailable"),
        swap_used_bytes=None if swap is None or swap_free is None else swap - swap_free,
        cgroup_bytes=used,
        cgroup_limit_bytes=limit,
        cgroup_oom_kills=kills,
    )


def _meminfo(path: Path) -> dict[str, int]:
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


def _governing(cgroup: Cgroup) -> tuple[int | None, int | None]:
    """(usage, limit) of the level with the tightest limit; the cgroup's own usage where nothing limits."""
    usage_name, limit_name = (
        ("memory.current", "memory.max")
        if cgroup.version == 2
        else ("memory.usage_in_bytes", "memory.limit_in_bytes")
    )
    limits = [(limit, path) for path in cgroup.levels() if (limit := _number(path / limit_name)) is not None]
    limit, path = min(limits, key=lambda found: found[0], default=(None, cgroup.path))
    return _number(path / usage_name), limit


def _number(path: Path) -> int | None:
    """One number of a file; None for ``max`` and for what stands for no limit."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() and int(text) < _NO_LIMIT else None


def _oom_kills(cgroup: Cgroup) -> int | None:
    """Processes of this cgroup or below that the kernel has killed for want of host memory, ever."""
    name = "memory.events" if cgroup.version == 2 else "memory.oom_control"
    try:
        lines = (cgroup.path / name).read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        key, _, value = line.partition(" ")
        if key == "oom_kill":
            return int(value)
    return None

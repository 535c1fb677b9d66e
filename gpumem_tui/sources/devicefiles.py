"""Who has the device files of cards open: the way to a process that the driver does not name.

CUDA opens the files of every card that it may see, so an open file is a trace and no
proof of memory held there. Other users' processes show theirs to root only; how many
do not is counted.
"""

import os
import re
from pathlib import Path

import msgspec

_FILE = re.compile(r"/dev/nvidia(\d+)")


class OpenFiles(msgspec.Struct, frozen=True):
    """One look at all processes of this pid namespace."""

    by_minor: dict[int, tuple[int, ...]]
    """Pids by the number of the device file, in order."""
    unreadable: int
    """Processes whose open files may not be looked at."""


def read_open_files(proc: Path = Path("/proc"), exclude: int | None = None) -> OpenFiles:
    """Look into every process; ``exclude`` (by default ourselves: NVML opens them too) is left out."""
    ours = os.getpid() if exclude is None else exclude
    found: dict[int, set[int]] = {}
    unreadable = 0
    for name in os.listdir(proc):  # noqa: PTH208 - names only, of thousands
        if not name.isdigit() or int(name) == ours:
            continue
        minors = _minors(f"{proc}/{name}/fd")
        if minors is None:
            unreadable += 1
            continue
        for minor in minors:
            found.setdefault(minor, set()).add(int(name))
    return OpenFiles({minor: tuple(sorted(pids)) for minor, pids in sorted(found.items())}, unreadable)


def _minors(folder: str) -> set[int] | None:
    """Numbers of the device files that one process has open; None where that may not be known."""
    minors: set[int] = set()
    try:
        entries = os.listdir(folder)  # noqa: PTH208 - names only
    except PermissionError:
        return None
    except OSError:  # it has ended
        return minors
    for entry in entries:
        try:
            target = os.readlink(f"{folder}/{entry}")  # noqa: PTH115 - thousands of them
        except OSError:
            continue
        if found := _FILE.fullmatch(target):
            minors.add(int(found[1]))
    return minors

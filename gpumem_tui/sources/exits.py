"""How processes ended that are not our children: the kernel keeps it for who holds a pidfd (Linux 6.15 on).

Refuses to guess: where the kernel does not tell, nothing is said.
"""

import contextlib
import fcntl
import os
import select
import struct
import time
from collections.abc import Iterable

from gpumem_tui.records import Gone
from gpumem_tui.records.ending import Ending
from gpumem_tui.sources.processes import read_stat

Who = tuple[int, int | None]

MOST_WATCHED = 512
"""Descriptors held at once; further processes are not watched."""
MOST_AT_ONCE = 32
"""Lines of one look."""
PATIENCE_NS = 10_000_000_000
"""How long an ended process may wait for its parent to ask; before that the kernel does not tell."""

_GET_INFO = 3 << 30 | 64 << 16 | 0xFF << 8 | 11
_EXIT = 1 << 3


class Exits:
    """Watches processes by their pidfds."""

    def __init__(self) -> None:
        """Nothing is watched yet."""
        self._watched: dict[Who, int] = {}
        self._who: dict[int, Who] = {}
        self._ended: dict[int, int] = {}
        """Descriptor and when its process was seen to have ended."""
        self._poll = select.poll()
        self._possible = True
        """Until this kernel has refused."""

    def watch(self, living: Iterable[Who]) -> None:
        """Watch these as well."""
        for who in living:
            if not self._possible or len(self._watched) >= MOST_WATCHED:
                return
            if who not in self._watched:
                with contextlib.suppress(OSError):  # it has ended meanwhile, or we have no descriptor left
                    self._add(who)

    def _add(self, who: Who) -> None:
        fd = os.pidfd_open(who[0])
        stat = read_stat(who[0])
        if stat is None or stat.started_ticks != who[1]:
            os.close(fd)
            return
        self._watched[who], self._who[fd] = fd, who
        self._poll.register(fd, select.POLLIN)

    def take(self) -> list[Gone]:
        """Processes that have ended since the last call, but for those that ended with code 0."""
        now_ns = time.monotonic_ns()
        for fd, _ in self._poll.poll(0):
            self._ended.setdefault(fd, now_ns)
        found: list[Gone] = []
        for fd, seen_ns in list(self._ended.items()):
            if len(found) == MOST_AT_ONCE:
                break
            status = self._status(fd)
            if status is None and self._possible and now_ns - seen_ns < PATIENCE_NS:
                continue
            pid, ticks = self._who[fd]
            self._drop(fd)
            if status:
                ending = Ending.of(status)
                found.append(Gone(seen_ns, pid, ticks, ending.code, ending.signal))
        return found

    def _status(self, fd: int) -> int | None:
        """As ``waitpid`` gives it; None where the kernel does not tell, or not yet."""
        info = bytearray(struct.pack("<Q", _EXIT).ljust(64, b"\0"))
        try:
            fcntl.ioctl(fd, _GET_INFO, info)
        except OSError:
            self._possible = False
            return None
        mask, status = struct.unpack_from("<Q52xi", info)
        return int(status) if mask & _EXIT else None

    def _drop(self, fd: int) -> None:
        self._poll.unregister(fd)
        os.close(fd)
        del self._watched[self._who.pop(fd)]
        self._ended.pop(fd, None)

    def close(self) -> None:
        """Give all descriptors back."""
        for fd in list(self._who):
            self._drop(fd)

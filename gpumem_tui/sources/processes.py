"""Who a pid is, as /proc of this pid namespace knows it.

Text that other people chose (names, command lines) is made harmless here, once: what
leaves this module has no control characters. Refuses to guess: what cannot be read is
None, and a pid that this namespace does not show is ``visible=False`` and nothing else.
"""

import os
import pwd
import re
import resource
import time
from functools import lru_cache
from typing import NamedTuple

from gpumem_tui.records import Process

LONGEST_COMMAND_BYTES = 4096
"""Command lines are cut here, in UTF-8."""

_CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope|$|/)")
_POD = re.compile(r"/(?:kubepods|machine\.slice|lxc|podman)[^/]*/")
_SLURM = re.compile(r"/(?:slurm\w*|\w+_slurmstepd|slurmstepd\.scope)(?:/.*)?/job_(\d+)(?:/|$)")
_NAMESPACES = re.compile(rb"^NSpid:(.+)$", re.MULTILINE)
_MORE_THAN_ENOUGH = 1 << 17
_PAGE_BYTES = resource.getpagesize()


class Stat(NamedTuple):
    """Of /proc/PID/stat."""

    name: str
    state: str
    parent: int
    group: int
    session: int
    threads: int
    started_ticks: int
    rss_pages: int

    @property
    def has_ended(self) -> bool:
        """A zombie of which nothing runs any more."""
        return self.state in "ZX" and self.threads <= 1

    @property
    def rss_bytes(self) -> int:
        """Resident host memory."""
        return self.rss_pages * _PAGE_BYTES


def read_stat(pid: int) -> Stat | None:
    """None if there is no such process, or none that may be seen."""
    raw = _read(f"/proc/{pid}/stat")
    if raw is None:
        return None
    head, _, rest = raw.rpartition(b")")
    state, parent, group, session, *fields = rest.split(None, 22)
    return Stat(
        sanitise(head.partition(b"(")[2]),
        state.decode("ascii"),
        int(parent),
        int(group),
        int(session),
        int(fields[13]),
        int(fields[15]),
        int(fields[17]),
    )


@lru_cache(maxsize=1)
def _booted_wall_ns() -> int | None:
    for line in (_read("/proc/stat") or b"").splitlines():
        if line.startswith(b"btime "):
            return int(line.split()[1]) * 1_000_000_000
    return None


def started_wall_ns(started_ticks: int | None) -> int | None:
    """When a process started, in nanoseconds since 1970, to the second; None where that is not known."""
    booted = _booted_wall_ns()
    if started_ticks is None or booted is None:
        return None
    return booted + started_ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def describe(pid: int) -> Process:
    """All that is known of a process now. Never raises for one that ends meanwhile."""
    t_ns = time.monotonic_ns()
    stat = read_stat(pid)
    if stat is None:
        return Process(t_ns, pid, visible=False)
    groups = (_read(f"/proc/{pid}/cgroup") or b"").decode("utf-8", "replace")
    return Process(
        t_ns=t_ns,
        pid=pid,
        started_ticks=stat.started_ticks,
        parent=stat.parent,
        name=stat.name,
        user=_user(pid),
        command=command_line(_read(f"/proc/{pid}/cmdline") or b""),
        visible=True,
        namespace_pid=_namespace_pid(_read(f"/proc/{pid}/status") or b"", pid),
        container=container_of(groups),
        job=slurm_job(groups, _read(f"/proc/{pid}/environ") or b""),
    )


def sanitise(raw: bytes, longest_bytes: int = 256) -> str:
    """Text that is safe in any terminal and on one line.

    White space of every kind becomes a space; whatever else is not printable (escape
    sequences' first byte, C1, bidirectional overrides, bytes that are not UTF-8)
    becomes U+FFFD. Cut at a whole character, with ``…``.
    """
    if len(raw) <= longest_bytes and raw.isascii() and (text := raw.decode("ascii")).isprintable():
        return text
    text = raw[: 4 * longest_bytes].decode("utf-8", "replace")
    text = "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)
    encoded = text.encode("utf-8")
    if len(encoded) <= longest_bytes and len(raw) <= 4 * longest_bytes:
        return text
    return encoded[: longest_bytes - 3].decode("utf-8", "ignore") + "…"


def command_line(raw: bytes) -> str | None:
    """Words of /proc/PID/cmdline joined by spaces; None where there are none (kernel threads, zombies)."""
    words = raw.rstrip(b"\0").replace(b"\0", b" ")
    return sanitise(words, LONGEST_COMMAND_BYTES) if words else None


def container_of(groups: str) -> str | None:
    """The container by the cgroup path: 12 digits of its id, as tools show it, or a hint at its kind."""
    for line in groups.splitlines():
        path = line.split(":", 2)[-1]
        if found := _CONTAINER.search(path):
            return found[1][:12]
    for line in groups.splitlines():
        if found := _POD.search(line.split(":", 2)[-1] + "/"):
            return sanitise(found[0].strip("/").encode(), 64)
    return None


def slurm_job(groups: str, environment: bytes) -> str | None:
    """The Slurm job by the cgroup path, else by the process's own environment where it may be read."""
    for line in groups.splitlines():
        if found := _SLURM.search(line.split(":", 2)[-1]):
            return found[1]
    for entry in environment.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == b"SLURM_JOB_ID" and value.isdigit():
            return value.decode("ascii")
    return None


def _namespace_pid(status: bytes, pid: int) -> int | None:
    """The innermost of NSpid, where it is another than the pid here."""
    found = _NAMESPACES.search(status)
    innermost = int(found[1].split()[-1]) if found is not None else pid
    return innermost if innermost != pid else None


def _user(pid: int) -> str | None:
    try:
        return _user_name(os.stat(f"/proc/{pid}").st_uid)  # noqa: PTH116 - Path costs as much as the call
    except OSError:
        return None


@lru_cache(maxsize=1024)
def _user_name(uid: int) -> str:
    try:
        return sanitise(pwd.getpwuid(uid).pw_name.encode(), 64)
    except KeyError:
        return str(uid)


def _read(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, _MORE_THAN_ENOUGH)
    except OSError:
        return None
    finally:
        os.close(descriptor)

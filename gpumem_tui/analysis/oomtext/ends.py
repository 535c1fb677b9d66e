"""How processes ended, as launchers, shells and NCCL say it: root causes, victims, bare kills.

None of these says that memory ran out. They tell who went first and who was taken along.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpumem_tui.analysis.oomtext.clean import Segment
from gpumem_tui.analysis.oomtext.facts import Aftermath, RootCause

_SIGTERM = re.compile(r"[Ss]ending process (\d{1,10}) closing signal (SIG[A-Z]{3,5})")
_NCCL_END = re.compile(
    r"Watchdog caught collective operation timeout|remote process exited or there was a network error"
    r"|[Cc]onnection closed by (?:remote )?peer|Connection reset by peer|NCCL communicator was aborted"
    r"|ncclRemoteError|Some NCCL operations have failed or timed out"
)
_SHELL_KILL = re.compile(
    r"Killed$|(?:\S{1,120}: )?line \d{1,6}:\s+(?P<pid>\d{1,10}) Killed\b"
    r"|\[\d{1,4}\]\s*[+-]?\s*(?:(?P<job>\d{1,10})\s+)?[Kk]illed\b|zsh: killed\b"
    r"|command terminated with exit code 137|exited with (?:exit )?code 137|[Ee]xit [Cc]ode:? {1,12}137\b"
)
_TORCHRUN_FAILED = re.compile(r"failed \(exitcode: (-?\d{1,4})\) local_rank: (\d{1,5}) \(pid: (\d{1,10})\)")
_MEMORY_ERROR = re.compile(
    r"MemoryError(?:$|:(?!.*(?:[Cc][Uu][Dd][Aa]|cuMem)))|numpy\.\S{0,60}_ArrayMemoryError:"
)

ROOT_CAUSE = re.compile(
    r"RootCause\(firstobservedfailure\):\[\d{1,5}\]:time:.{0,80}?host:.{0,120}?"
    r"rank:(\d{1,6})\(local_rank:(\d{1,5})\)exitcode:(-?\d{1,4})\(pid:(\d{1,10})\)"
)
"""torchrun's summary, in squeezed text."""


class Kill(NamedTuple):
    """A process was killed, and nothing says by whom."""

    segment: Segment
    pid: int | None
    what: str


def root_causes(text: str) -> Iterator[tuple[int, RootCause]]:
    """Root causes in squeezed text with where they start; the line is filled in by the caller."""
    for match in ROOT_CAUSE.finditer(text):
        rank, local_rank, code, pid = (int(group) for group in match.groups())
        yield match.start(), RootCause(0, rank, local_rank, code, pid)


def aftermath_of(segment: Segment) -> Aftermath | None:
    """What this line says of a process that was taken along."""
    source = segment.source
    if match := _SIGTERM.search(segment.text):
        return Aftermath(f"ended by its launcher ({match[2]})", segment.line, pid=int(match[1]))
    if match := _NCCL_END.search(segment.text):
        return Aftermath(match[0], segment.line, source.rank, source.worker, source.pid)
    return None


def kill_of(segment: Segment) -> Kill | None:
    """What this line says of a process killed by nobody named."""
    text = segment.text.strip()
    if match := _SHELL_KILL.match(text) or _SHELL_KILL.search(text, max(0, len(text) - 160)):
        if match[0] == "Killed" and text != "Killed":
            return None
        pid = match["pid"] or match["job"]
        return Kill(segment, int(pid) if pid else None, match[0].strip())
    if (match := _TORCHRUN_FAILED.search(text)) and int(match[1]) == -9:
        return Kill(segment, int(match[3]), "exit code -9")
    return None


def is_memory_error(segment: Segment) -> bool:
    """Python's own MemoryError, at the start of the line as a traceback ends."""
    return _MEMORY_ERROR.match(segment.text) is not None

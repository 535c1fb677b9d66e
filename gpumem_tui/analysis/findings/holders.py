"""Whose memory is whose on the device, as far as the figures decide it.

The trap: in a container the driver knows the failing process by a number that the
process itself does not know, so its own memory is listed as somebody's. The figures
tell: where the card has no room for this process beside all the listed ones, it is
one of them.
"""

import msgspec

from gpumem_tui.analysis.findings.amounts import Amount, total_of
from gpumem_tui.analysis.findings.situation import Neighbour, Situation
from gpumem_tui.units import GIB, MIB

LEAST_CONTEXT_BYTES = 100 * MIB
"""No process with a CUDA context holds less."""
USUAL_OUTSIDE_BYTES = 3 * GIB
"""Contexts, libraries and collectives rarely hold more beside what PyTorch reserves."""


class Holders(msgspec.Struct, frozen=True):
    """What this process and the others hold."""

    own: Amount | None
    others: Amount | None
    """Sum of the listed others; None where there is no list, or it does not tell who is who."""
    who: tuple[Neighbour, ...]
    """The others, largest first."""
    own_pid: int | None
    """Where this process was recognised under another number."""
    undecided: str | None
    """Why it is not told who is who."""


def resolve(s: Situation) -> Holders:
    """Tell this process from the others."""
    listed = s.neighbours
    known = [n.used for n in listed if n.used is not None]
    if s.own is not None or s.self_listed:
        return _others(s.own, listed, None)
    if not listed:
        return Holders(None, None, (), None, "the message lists no processes")
    if len(known) < len(listed):
        return Holders(None, None, listed, None, "the driver gave no figures for the listed processes")
    if s.reserved is None or s.total is None or s.free is None:
        return Holders(None, None, listed, None, "without total, free and reserved, nothing tells who is who")
    room = s.total - s.free - total_of(known, "driver")
    least = s.reserved.low_bytes + LEAST_CONTEXT_BYTES
    fits = [n for n in listed if n.used is not None and _may_be(n.used, s.reserved)]
    if room.high_bytes >= least and not fits:
        return _others(None, listed, None)
    if room.high_bytes < least and len(fits) == 1:
        mine = fits[0]
        return _others(mine.used, tuple(n for n in listed if n is not mine), mine.pid)
    if room.high_bytes < least and not fits and len(listed) == 1:
        mine = listed[0]
        return _others(mine.used, (), mine.pid)
    return Holders(
        None, None, listed, None, "which of the listed processes is this one does not follow from the figures"
    )


def _may_be(used: Amount, reserved: Amount) -> bool:
    """Whether a listed figure can be that of a process with so much reserved."""
    return (
        used.high_bytes >= reserved.low_bytes and used.low_bytes <= reserved.high_bytes + USUAL_OUTSIDE_BYTES
    )


def _others(own: Amount | None, listed: tuple[Neighbour, ...], own_pid: int | None) -> Holders:
    told = [n.used for n in listed if n.used is not None]
    if len(told) < len(listed):
        return Holders(own, None, listed, own_pid, "the driver gave no figures for the other processes")
    who = tuple(sorted(listed, key=lambda n: -(n.used.low_bytes if n.used else 0)))
    return Holders(own, total_of(told, "driver"), who, own_pid, None)

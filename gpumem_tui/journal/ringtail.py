"""The last span edges of a process, from its ring: what a killed process no longer wrote to its journal.

The sampler drains the ring into the journal, so most of the ring is in the journal
already: only edges beyond the last sequence number seen there are given. A torn or
overwritten slot costs that device's levels, and the edge if it is its last slot.
Refuses to wait, to write, and to hold the file mapped.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from gpumem_tui.agent import ring
from gpumem_tui.journal.lines import open_regular
from gpumem_tui.records import Begin, End

_AHEAD = 64
"""Slots behind the last known one that are looked at first."""


def read_tail(path: Path, after_seq: int) -> list[Begin | End]:
    """Begins and ends with a sequence number beyond ``after_seq``, oldest first.

    A ring that is missing, unreadable or of another version has none to give.
    """
    try:
        fd = open_regular(path)
    except OSError:
        return []
    try:
        if not _has_more(fd, after_seq):
            return []
        data = os.pread(fd, ring.size_bytes(), 0)
    except OSError:
        return []
    finally:
        os.close(fd)
    try:
        return list(_edges(ring.read_edges(data, after_seq)))
    except ValueError:
        return []


def read_last_word(path: Path) -> int | None:
    """How the process was about to end, as ``agent.ring`` has it; None where the ring does not tell."""
    try:
        fd = open_regular(path)
    except OSError:
        return None
    try:
        data = os.pread(fd, ring.LAST_WORD_AT + 1, 0)
    except OSError:
        return None
    finally:
        os.close(fd)
    if len(data) <= ring.LAST_WORD_AT or not data.startswith(ring.MAGIC):
        return None
    return data[ring.LAST_WORD_AT] or None


def _has_more(fd: int, after_seq: int) -> bool:
    """Whether any of the next slots has been written; a look that costs little.

    Slots are written in order, but for some whose writers were interrupted.
    """
    first = (after_seq + 1) % ring.SLOTS
    ahead = min(_AHEAD, ring.SLOTS - first)
    data = os.pread(fd, ahead * ring.SLOT.size, ring.size_bytes() - (ring.SLOTS - first) * ring.SLOT.size)
    if ahead < _AHEAD:
        start = ring.size_bytes() - ring.SLOTS * ring.SLOT.size
        data += os.pread(fd, (_AHEAD - ahead) * ring.SLOT.size, start)
    if len(data) < _AHEAD * ring.SLOT.size:
        return True
    return any(slot[0] > after_seq for slot in ring.SLOT.iter_unpack(data))


def _edges(slots: Iterable[ring.Edge]) -> Iterable[Begin | End]:
    """Slots of one edge, one a device, end with ``more`` 0; other threads' slots may lie between them."""
    waiting: dict[tuple[int, int], list[ring.Edge]] = {}
    for slot in slots:
        edge = waiting.setdefault((slot.span, slot.edge), [])
        edge.append(slot)
        if not slot.more:
            yield _begin(edge) if slot.edge == ring.BEGIN else _end(edge)
            del waiting[slot.span, slot.edge]


def _begin(slots: list[ring.Edge]) -> Begin:
    last = slots[-1]
    return Begin(
        t_ns=last.t_ns,
        seq=last.seq,
        span=last.span,
        parent=last.parent or None,
        thread=last.thread,
        phase=last.phase,
        name=last.name,
        step=last.step,
        levels=[
            (slot.ordinal, slot.allocated_bytes, slot.reserved_bytes)
            for slot in slots
            if slot.ordinal != ring.NO_DEVICE
            and slot.allocated_bytes is not None
            and slot.reserved_bytes is not None
        ],
    )


def _end(slots: list[ring.Edge]) -> End:
    last = slots[-1]
    return End(
        t_ns=last.t_ns,
        seq=last.seq,
        span=last.span,
        error=last.error,
        levels=[
            (
                slot.ordinal,
                slot.allocated_bytes,
                slot.reserved_bytes,
                slot.peak_allocated_bytes,
                slot.peak_reserved_bytes,
                slot.exact,
            )
            for slot in slots
            if slot.ordinal != ring.NO_DEVICE
            and slot.allocated_bytes is not None
            and slot.reserved_bytes is not None
            and slot.peak_allocated_bytes is not None
            and slot.peak_reserved_bytes is not None
        ],
    )

"""The ring of span edges: what a process was doing, readable after it was killed.

User threads write span edges here and nowhere else: one ``pack_into`` to a memory-
mapped file, no system call, no lock. The sampler thread drains it into the journal;
after SIGKILL, whoever reads the run takes the last edges from the file.

The file is preallocated on disk (a full disk is met here and not as SIGBUS later)::

    HEADER   magic, version, slot size, slots, names, pid, started ticks; at LAST_WORD_AT how far it came
    NAMES    name i as u16 length + UTF-8, in NAME_BYTES each; written before its first use
    SLOTS    slot (seq % slots); valid if its first and its last eight bytes are the same seq

Slots of one edge on several devices follow each other and have the same span and
edge; ``more`` counts those that still follow. Names are ``phase`` + NUL + ``name``.
Integers are little-endian. ``MISSING`` stands for a level that was not read.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

MAGIC = b"GPUMRING"
VERSION = 1
HEADER = struct.Struct("<8sIIIIQQ")
HEADER_BYTES = 4096
NAME_BYTES = 128
NAMES = 512
SLOT = struct.Struct("<QBBHhHIII4xqQQQQQH6xQ")
SLOTS = 8192
_FIRST_SLOT = HEADER_BYTES + NAMES * NAME_BYTES
MISSING = (1 << 64) - 1
NO_DEVICE = -1
BEGIN, END = 1, 2
EXACT = 1
"""Flag: the peaks of this end are exact, not lower bounds."""
LAST_WORD_AT = 48
"""Where the header's one byte stands that tells how a process was about to end; 0 in older rings."""
RUNNING, RAISED_MEMORY, RAISED, ENDING = 1, 2, 3, 4
"""Not ending; by an exception of memory that nobody caught; by another one; in order."""
OVERFLOW_NAME = NAMES - 1
"""Names beyond the table share this one; its text says so."""


class Edge(NamedTuple):
    """One slot: the begin or end of a span on one device (or on none)."""

    seq: int
    edge: int
    """BEGIN or END."""
    more: int
    phase: str
    name: str
    ordinal: int
    """CUDA's ordinal, or NO_DEVICE for an edge without levels."""
    exact: bool
    span: int
    parent: int
    """Span around it, 0 for none."""
    thread: int
    step: Optional[int]
    t_ns: int
    allocated_bytes: Optional[int]
    reserved_bytes: Optional[int]
    peak_allocated_bytes: Optional[int]
    peak_reserved_bytes: Optional[int]
    error: Optional[str]
    """Class name of the exception that ended the span."""


def size_bytes() -> int:
    """Size of a ring's file."""
    return HEADER_BYTES + NAMES * NAME_BYTES + SLOTS * SLOT.size


class Ring:
    """The writer's side. Raises OSError where the file cannot be made or allocated."""

    def __init__(self, path: str, pid: int, started: int) -> None:
        self.path = path
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size_bytes())
            self._map = mmap.mmap(fd, size_bytes())
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(fd)
        HEADER.pack_into(self._map, 0, MAGIC, VERSION, SLOT.size, SLOTS, NAMES, pid, started)
        self._map[LAST_WORD_AT] = RUNNING
        self._numbers = itertools.count(1)
        self.put = _writing(self._map, self._numbers)
        """Write one slot; its sequence number. Safe from any thread (the counter is atomic under the GIL).

        Its values: edge, slots of it that still follow, number of the name, ordinal, flags, span, the
        span around it, thread (its low 32 bits), step, time, allocated, reserved, peak allocated, peak
        reserved, number of the error's name.
        """
        self.numbers: Dict[Tuple[str, str], int] = {}
        """Of names that are written down: phase and name."""
        self._texts: Dict[int, Tuple[str, str]] = {}
        self._drained = 0
        self._gap = 0
        """A slot that was claimed and not written at the last look."""
        self.lost_edges = 0
        """Edges overwritten before they were drained."""
        self._name_text(0, "", "")

    def _name_text(self, index: int, phase: str, name: str) -> None:
        text = ("%s\0%s" % (phase, name)).encode("utf-8", "replace")[: NAME_BYTES - 2]
        at = HEADER_BYTES + index * NAME_BYTES
        self._map[at : at + 2 + len(text)] = struct.pack("<H", len(text)) + text

    def name(self, phase: str, name: str) -> int:
        """The number of a name; the first use writes it down."""
        key = (phase, name)
        index = self.numbers.get(key)
        if index is None:
            index = len(self.numbers) + 1
            if index >= OVERFLOW_NAME:  # not noted: a program may name as many phases as it has steps
                self._name_text(OVERFLOW_NAME, phase, "(further names)")
                return OVERFLOW_NAME
            self._name_text(index, phase, name)
            self.numbers[key] = index
        return index

    def say(self, word: int) -> None:
        """How the process is about to end, at once: the journal may come too late. The first word stands."""
        if self._map[LAST_WORD_AT] == RUNNING:
            self._map[LAST_WORD_AT] = word

    def drain(self) -> List[Edge]:
        """Edges since the last call, oldest first; overwritten ones are counted in ``lost_edges``."""
        edges: List[Edge] = []
        while True:
            seq = self._drained + 1
            found = _seq_at(self._map, seq)
            if found < seq:
                if self._gap != seq or not self._newer(seq):
                    self._gap = seq
                    return edges
                self.lost_edges += 1  # missing at the last look as well: an interrupt took its writer
                self._drained = seq
                continue
            if found > seq:  # overwritten: go on with the oldest that may still be there
                oldest = found - SLOTS + 1
                self.lost_edges += max(0, oldest - seq)
                self._drained = max(self._drained + 1, oldest - 1)
                continue
            edge = read_slot(self._map, seq, self._text_of)
            if edge is not None:
                edges.append(edge)
            self._drained = seq

    def _newer(self, seq: int) -> bool:
        """Whether a slot soon after this one is written."""
        return any(_seq_at(self._map, later) == later for later in range(seq + 1, seq + 65))

    def _text_of(self, buffer: "mmap.mmap | bytes", index: int) -> Tuple[str, str]:
        """A name, read once: what stands in the table stays, but for that of all further names."""
        text = self._texts.get(index)
        if text is None:
            text = read_name(buffer, index)
            if index != OVERFLOW_NAME:
                self._texts[index] = text
        return text

    def close(self) -> None:
        """Unmap. The file stays: it is part of the recording."""
        self._map.close()


def _writing(buffer: mmap.mmap, numbers: Iterator[int]) -> Callable[..., int]:
    """What writes slots: every name in it is bound, since each phase goes through here twice."""
    pack_into, slot_bytes = SLOT.pack_into, SLOT.size

    def put(*values: int) -> int:
        seq = next(numbers)
        pack_into(buffer, _FIRST_SLOT + seq % SLOTS * slot_bytes, seq, *values, seq)
        return seq

    return put


def _slot_at(seq: int) -> int:
    return _FIRST_SLOT + (seq % SLOTS) * SLOT.size


def _seq_at(buffer: "mmap.mmap | bytes", seq: int) -> int:
    """The number that the slot of ``seq`` begins with: its own, or an older or newer one's."""
    at = _slot_at(seq)
    return int.from_bytes(buffer[at : at + 8], "little")


def read_name(buffer: "mmap.mmap | bytes", index: int) -> Tuple[str, str]:
    """Phase and name number ``index`` of a ring; empty where the table has none."""
    at = HEADER_BYTES + index * NAME_BYTES
    (length,) = struct.unpack_from("<H", buffer, at)
    text = bytes(buffer[at + 2 : at + 2 + min(length, NAME_BYTES - 2)]).decode("utf-8", "replace")
    phase, _, name = text.partition("\0")
    return phase, name


def read_slot(
    buffer: "mmap.mmap | bytes",
    seq: int,
    text_of: "Callable[[mmap.mmap | bytes, int], Tuple[str, str]]" = read_name,
) -> Optional[Edge]:
    """The edge in the slot of ``seq``, or None if that slot is torn or holds another."""
    values = SLOT.unpack_from(buffer, _slot_at(seq))
    if values[0] != seq or values[-1] != seq:
        return None
    (_, edge, more, name, ordinal, flags, span, parent, thread, step, t_ns) = values[:11]
    levels = [None if v == MISSING else v for v in values[11:15]]
    phase, text = text_of(buffer, name)
    error = text_of(buffer, values[15])[1] if values[15] else None
    return Edge(
        seq, edge, more, phase, text, ordinal, bool(flags & EXACT), span, parent, thread,
        None if step < 0 else step, t_ns, levels[0], levels[1], levels[2], levels[3], error,
    )  # fmt: skip


def read_edges(buffer: "mmap.mmap | bytes", after: int = 0) -> Iterator[Edge]:
    """Every whole edge of a ring's bytes with a sequence number beyond ``after``, oldest first.

    Raises ValueError if these are not the bytes of a ring of this version.
    """
    if len(buffer) < size_bytes():
        raise ValueError("a ring is shorter than it should be")
    magic, version, slot_bytes, slots, names, _, _ = HEADER.unpack_from(buffer, 0)
    if (magic, version, slot_bytes, slots, names) != (MAGIC, VERSION, SLOT.size, SLOTS, NAMES):
        raise ValueError("not a ring of this version")
    base = _FIRST_SLOT
    seqs = [
        seq
        for slot in range(SLOTS)
        for seq in (int.from_bytes(buffer[base + slot * SLOT.size : base + slot * SLOT.size + 8], "little"),)
        if seq > after and seq % SLOTS == slot
    ]
    for seq in sorted(seqs):
        edge = read_slot(buffer, seq)
        if edge is not None:
            yield edge

"""Spans of phases in this process: which are open on which thread, and their levels and peaks.

A boundary (begin or end) reads each device of the process once and folds its peaks
into every span that is open, of all threads. Where a span begins, the allocator's
peaks begin anew: all that were open have taken theirs, and nothing else needs it. The
edge goes into the ring; nothing here does file I/O.
"""

from __future__ import annotations

import itertools
import threading
from _thread import get_ident
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Sequence, Tuple

from .counters import Levels
from .ring import BEGIN, END, EXACT, MISSING, NO_DEVICE, Ring
from .wire import clock

if TYPE_CHECKING:
    from .reading import Reading

Found = Sequence[Tuple[int, Levels]]
"""What was read at a boundary, by ordinal."""

_NO_LEVELS = MISSING, MISSING, MISSING, MISSING
_UNKNOWN = MISSING, MISSING
"""Peaks on a device that came into use while the span was open."""

PLANNED = ("_StopRecomputationError",)
"""Exceptions by which PyTorch ends a span in order: checkpointing has recomputed all that it needs."""


_LOW_BITS = 0xFFFFFFFF
"""Of a thread's identity, what the ring keeps."""


class Span:
    """One open span. ``peaks`` per ordinal: allocated and reserved in bytes so far."""

    users = False
    """Named by the user: nothing else may take it for stale."""
    whole = True
    """Whether every boundary since its begin could be read: then its peaks are exact."""

    def __init__(
        self, of: int, phase: str, name: str, number: int, parent: int, thread: int, step: int
    ) -> None:
        self.id = of
        self.phase = phase
        self.name = name
        self.number = number
        """Of phase and name, in the ring."""
        self.parent = parent
        self.thread = thread
        self.step = step
        self.peaks: Dict[int, Tuple[int, int]] = {}

    def take(self, ordinal: int, levels: Levels) -> None:
        """Fold the peaks since they last began anew, which was not before this span did."""
        _, _, allocated, reserved = levels
        peak = self.peaks.get(ordinal)
        if peak is None:
            self.peaks[ordinal] = allocated, reserved
        elif allocated > peak[0] or reserved > peak[1]:
            self.peaks[ordinal] = max(allocated, peak[0]), max(reserved, peak[1])


class _Stack(threading.local):
    """The open spans of the calling thread, outermost first."""

    def __init__(self) -> None:
        self.spans: List[Span] = []


def _unread(ordinal: int) -> Levels:
    raise LookupError("device %d has no counters" % ordinal)


class Spans:
    """All spans of this process.

    ``reading`` tells which devices may be read now (none: levels lack), ``read`` reads
    one; ``begin_anew`` too, and lets its peaks begin anew if ``exact``.
    """

    def __init__(
        self,
        ring: Ring,
        reading: Reading,
        read: Callable[[int], Levels] = _unread,
        begin_anew: Callable[[int], Levels] = _unread,
        exact: bool = False,
    ) -> None:
        self.ring = ring
        self._reading, self._read, self._begin_anew = reading, read, begin_anew
        self._exact = EXACT if exact else 0
        self._now_ns = clock()
        self._ids = itertools.count(1)
        self._open: Dict[int, Span] = {}
        self._stacks = _Stack()
        self.step = 0
        """Steps begun so far; 0 before the first."""
        self._untouched = True
        """No boundary has been read yet."""
        self.raised: Optional[Tuple[int, List[Tuple[str, str, int]]]] = None
        """Identity of the last exception that ended spans; phase, name and step of those open then."""

    def stack(self) -> List[Span]:
        """Open spans of the calling thread, outermost first."""
        return self._stacks.spans

    def open_spans(self) -> List[Span]:
        """Open spans of all threads, oldest first."""
        return list(self._open.values())

    def begin(self, phase: str, name: str, late_ns: Optional[int] = None) -> Span:
        """Begin a span on the calling thread. ``late_ns``: it began then, before there was any memory."""
        stack, parent = self._stacks.spans, 0
        while stack:
            parent = stack[-1].id
            if parent in self._open:
                break
            stack.pop()  # ended on another thread
            parent = 0
        ring, of, thread, step = self.ring, next(self._ids), get_ident() & _LOW_BITS, self.step
        number = ring.numbers.get((phase, name)) or ring.name(phase, name)
        span = Span(of, phase, name, number, parent, thread, step)
        at = self._now_ns() if late_ns is None else late_ns
        found = self._boundary(self._begin_anew)
        more = len(found)
        for ordinal, (allocated, reserved, highest_allocated, highest_reserved) in found:
            more -= 1
            span.peaks[ordinal] = allocated, reserved
            if late_ns is not None:
                span.peaks[ordinal] = highest_allocated, highest_reserved
                allocated = reserved = 0
            ring.put(BEGIN, more, number, ordinal, 0, of, parent, thread, step, at,
                     allocated, reserved, MISSING, MISSING, 0)  # fmt: skip
        if not found:
            span.whole = not self._reading.active  # of a device that is in use, the peak is from before too
            ring.put(BEGIN, 0, number, NO_DEVICE, 0, of, parent, thread, step, at, *_NO_LEVELS, 0)
        stack.append(span)
        self._open[of] = span
        return span

    def end(self, span: Span, error: Optional[BaseException]) -> None:
        """End a span, and whatever was left open inside it on its thread.

        Not the user's own: those of tasks and generators that take turns on a thread end as they do.
        """
        at = self._now_ns()
        found = self._boundary(self._read)
        stack = self._stacks.spans
        told = 0 if error is None else self._tell(error, stack)
        if span in stack:  # else: begun on another thread, or ended with an interrupted one around it
            users = []
            while stack[-1] is not span:
                inner = stack.pop()
                if inner.users:
                    users.append(inner)
                else:
                    self._close(inner, at, found, told)
            stack[-1:] = reversed(users)
        self._close(span, at, found, told)

    def _close(self, span: Span, at: int, found: Found, error: int) -> None:
        of = span.id
        if self._open.pop(of, None) is None:
            return
        put, exact, more = self.ring.put, self._exact if span.whole else 0, len(found)
        for ordinal, (allocated, reserved, _, _) in found:
            more -= 1
            peak_allocated, peak_reserved = span.peaks.get(ordinal, _UNKNOWN)
            put(END, more, span.number, ordinal, exact, of, span.parent, span.thread, span.step, at,
                allocated, reserved, peak_allocated, peak_reserved, error)  # fmt: skip
        if not found:
            put(END, 0, span.number, NO_DEVICE, 0, of, span.parent, span.thread, span.step, at,
                *_NO_LEVELS, error)  # fmt: skip

    def _tell(self, error: BaseException, stack: List[Span]) -> int:
        """Note what an exception ends; its number in the ring, 0 where it is PyTorch's own way to go on."""
        kind = type(error).__name__
        if kind in PLANNED:
            return 0
        if self.raised is None or self.raised[0] != id(error):
            self.raised = id(error), [(each.phase, each.name, each.step) for each in stack]
        return self.ring.name("error", kind)

    def end_stale(self, phases: Tuple[str, ...]) -> None:
        """End spans of these phases on the calling thread: an interrupt took the code that would have."""
        for span in list(self.stack()):
            if span.phase in phases and not span.users and span in self.stack():
                self.end(span, InterruptedError())

    def _boundary(self, read: Callable[[int], Levels]) -> Found:
        ordinals = self._reading.readable
        spans = list(self._open.values()) if self._open else ()
        if not ordinals:
            for span in spans:
                span.whole = False
            return ()
        self._untouched = False
        if len(ordinals) == 1:
            found: Found = ((ordinals[0], read(ordinals[0])),)
        else:
            found = [(ordinal, read(ordinal)) for ordinal in ordinals]
        for span in spans:
            for ordinal, levels in found:
                span.take(ordinal, levels)
        return found

    def late(self, phase: str, name: str, at: int, error: Optional[BaseException]) -> None:
        """A span that has ended now and began at ``at``, before CUDA was initialised: it began with nothing.

        Its peaks are those since the first allocation: exact where no boundary came between.
        """
        untouched = self._untouched
        span = self.begin(phase, name, at)
        span.whole = untouched
        self.end(span, error)

    def keep_peaks(self, ordinal: int, levels: Levels) -> None:
        """The user is about to reset the peaks of a device: open spans take them first."""
        for span in self.open_spans():
            span.take(ordinal, levels)

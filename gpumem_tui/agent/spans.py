"""Spans of phases in this process: which are open, what is within what, and their levels and peaks.

A boundary (begin or end) reads each device of the process once and folds its peaks
into every span that is open, of all threads. Where a span begins, the allocator's
peaks begin anew: all that were open have taken theirs, and nothing else needs it. The
edge goes into the ring; nothing here does file I/O.

What is within what follows the context of the calling code: tasks of asyncio that take
turns on a thread have spans of their own, and a task is within what it was made in.
Spans of torch's calls end on their thread in the reverse order of their begin, or an
interrupt kept them from it; those that the user names end in any order, anywhere.
"""

from __future__ import annotations

import itertools
import threading
from _thread import get_ident
from contextvars import ContextVar
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

PLANNED = ("_StopRecomputationError", "GeneratorExit")
"""Exceptions that end a span in order: checkpointing has recomputed all that it needs, or nobody asks on."""


_LOW_BITS = 0xFFFFFFFF
"""Of a thread's identity, what the ring keeps."""


class Span:
    """One open span. ``peaks`` per ordinal: allocated and reserved in bytes so far."""

    open = True
    whole = True
    """Whether every boundary since its begin could be read: then its peaks are exact."""

    def __init__(
        self, of: int, phase: str, name: str, number: int, parent: int, thread: int, step: int, users: bool
    ) -> None:
        self.id = of
        self.phase = phase
        self.name = name
        self.number = number
        """Of phase and name, in the ring."""
        self.parent = parent
        self.thread = thread
        self.step = step
        self.users = users
        """Named by the user: nothing else may take it for stale."""
        self.peaks: Dict[int, Tuple[int, int]] = {}

    def take(self, ordinal: int, levels: Levels) -> None:
        """Fold the peaks since they last began anew, which was not before this span did."""
        _, _, allocated, reserved = levels
        peak = self.peaks.get(ordinal)
        if peak is None:
            self.peaks[ordinal] = allocated, reserved
        elif allocated > peak[0] or reserved > peak[1]:
            self.peaks[ordinal] = max(allocated, peak[0]), max(reserved, peak[1])


class _Calls(threading.local):
    """Spans of torch's calls that the calling thread is in, outermost first."""

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
        self._calls = _Calls()
        self._around: ContextVar[Tuple[Span, ...]] = ContextVar("gpumem_tui spans", default=())
        """What the calling code is within, outermost first; some may have ended elsewhere."""
        self.step = 0
        """Steps begun so far; 0 before the first."""
        self._untouched = True
        """No boundary has been read yet."""
        self.raised: Optional[Tuple[int, List[Tuple[str, str, int]]]] = None
        """Identity of the last exception that ended spans; phase, name and step of those open then."""

    def stack(self) -> List[Span]:
        """Open spans that the calling code is in, outermost first."""
        return [span for span in self._around.get() if span.open]

    def calls(self) -> List[Span]:
        """Open spans of torch's own calls on the calling thread, outermost first."""
        return [span for span in self._calls.spans if span.open]

    def open_spans(self) -> List[Span]:
        """Open spans of all threads, oldest first."""
        return list(self._open.values())

    def begin(self, phase: str, name: str, late_ns: Optional[int] = None, users: bool = False) -> Span:
        """Begin a span where the calling code is; ``users``: one that the user names.

        ``late_ns``: it began then, before there was any memory.
        """
        around = self._around.get()
        ring, of, thread, step = self.ring, next(self._ids), get_ident() & _LOW_BITS, self.step
        while around and self._is_over(around[-1], thread):
            around = around[:-1]
        parent = around[-1].id if around else 0
        number = ring.numbers.get((phase, name)) or ring.name(phase, name)
        span = Span(of, phase, name, number, parent, thread, step, users)
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
        if not users:
            self._calls.spans.append(span)  # first: an interrupt may come behind each of these lines
        self._open[of] = span
        self._around.set((*around, span))
        return span

    def _is_over(self, span: Span, thread: int) -> bool:
        """Ended elsewhere; or a call of torch of this thread whose end an interrupt took."""
        if not span.open:
            return True
        return not span.users and span.thread == thread and span not in self._calls.spans

    def end(self, span: Span, error: Optional[BaseException]) -> None:
        """End a span, and what torch's calls have left open within it."""
        at = self._now_ns()
        found = self._boundary(self._read)
        told = 0 if error is None else self._tell(error)
        around = self._around.get()
        if around and around[-1] is span:  # as nearly always
            self._around.set(around[:-1])
        for inner in self._left_within(span, around):
            self._close(inner, at, found, told)
        self._close(span, at, found, told)
        if span in around[:-1]:
            self._around.set(tuple(each for each in around if each.open))

    def _left_within(self, span: Span, around: Tuple[Span, ...]) -> Sequence[Span]:
        """Calls of torch that interrupts have left open within a span, innermost first; no calls any more."""
        calls = self._calls.spans
        if not span.users:
            if calls and calls[-1] is span:
                calls.pop()
                return ()
            at = calls.index(span) if span in calls else len(calls)  # not there: it began on another thread
            left, calls[at:] = calls[at + 1 :], []
        elif span in around[:-1]:
            left = [each for each in around[around.index(span) + 1 :] if each in calls]
            for each in left:
                calls.remove(each)
        else:
            return ()
        return left[::-1]

    def step_out(self, span: Span) -> None:
        """What a generator's caller does until it asks on is not within the generator's span."""
        self._around.set(tuple(each for each in self._around.get() if each is not span))

    def step_in(self, span: Span) -> None:
        """The generator goes on, in whatever context it is asked."""
        self._around.set((*self._around.get(), span))

    def _close(self, span: Span, at: int, found: Found, error: int) -> None:
        if not span.open:
            return
        span.open = False
        of = span.id
        self._open.pop(of, None)
        put, exact, more = self.ring.put, self._exact if span.whole else 0, len(found)
        for ordinal, (allocated, reserved, _, _) in found:
            more -= 1
            peak_allocated, peak_reserved = span.peaks.get(ordinal, _UNKNOWN)
            put(END, more, span.number, ordinal, exact, of, span.parent, span.thread, span.step, at,
                allocated, reserved, peak_allocated, peak_reserved, error)  # fmt: skip
        if not found:
            put(END, 0, span.number, NO_DEVICE, 0, of, span.parent, span.thread, span.step, at,
                *_NO_LEVELS, error)  # fmt: skip

    def _tell(self, error: BaseException) -> int:
        """Note what an exception ends; its number in the ring, 0 where it is PyTorch's own way to go on."""
        kind = type(error).__name__
        if kind in PLANNED:
            return 0
        if self.raised is None or self.raised[0] != id(error):
            self.raised = id(error), [(each.phase, each.name, each.step) for each in self.stack()]
        return self.ring.name("error", kind)

    def end_stale(self, phases: Tuple[str, ...]) -> None:
        """End spans of these phases on the calling thread: an interrupt took the code that would have."""
        for span in self.calls():
            if span.phase in phases and span.open:
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

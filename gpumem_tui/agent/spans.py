"""Spans of phases in this process: which are open on which thread, and their levels and peaks.

A boundary (begin or end) reads each device of the process once, folds the peaks
since the last boundary into every span that is open, of all threads, and starts the
allocator's peaks anew. The edge goes into the ring; nothing here does file I/O.
"""

from __future__ import annotations

import itertools
import threading
from typing import Callable, Dict, List, Optional, Tuple

from . import ring as rings
from .counters import Counters, Levels
from .wire import now_ns


class Span:
    """One open span. ``peaks`` per ordinal: [allocated, reserved] in bytes so far."""

    __slots__ = ("id", "name", "number", "parent", "peaks", "phase", "step", "thread", "users", "whole")

    def __init__(self, number: int, phase: str, name: str, parent: int, thread: int, step: int) -> None:
        self.id = number
        self.phase, self.name, self.number = phase, name, 0
        self.parent, self.thread, self.step = parent, thread, step
        self.peaks: Dict[int, List[int]] = {}
        self.users = False
        """Named by the user: nothing else may take it for stale."""
        self.whole = True
        """Whether every boundary since its begin could be read: then its peaks are exact."""

    def take(self, ordinal: int, levels: Levels) -> None:
        """Fold the peaks since the last boundary."""
        peak = self.peaks.get(ordinal)
        if peak is None:
            self.peaks[ordinal] = [levels.peak_allocated, levels.peak_reserved]
            return
        if levels.peak_allocated > peak[0]:
            peak[0] = levels.peak_allocated
        if levels.peak_reserved > peak[1]:
            peak[1] = levels.peak_reserved


class _Stack(threading.local):
    """The open spans of the calling thread, outermost first."""

    def __init__(self) -> None:
        self.spans: List[Span] = []


class Spans:
    """All spans of this process. ``ordinals()`` tells which devices may be read now (none: levels lack)."""

    def __init__(self, ring: rings.Ring, ordinals: Callable[[], Tuple[int, ...]]) -> None:
        self.ring = ring
        self.counters: Optional[Counters] = None
        self._ordinals = ordinals
        self._ids = itertools.count(1)
        self._open: Dict[int, Span] = {}
        self._stacks = _Stack()
        self._first: Dict[int, Levels] = {}
        self.step = 0
        """Steps begun so far; 0 before the first."""
        self.boundaries = 0
        """Boundaries at which counters were read."""
        self.before_boundary: Callable[[int], None] = lambda ordinal: None
        """Called for each device before it is read: ``--protocol strict`` waits for its work here."""

    def stack(self) -> List[Span]:
        """Open spans of the calling thread, outermost first."""
        return self._stacks.spans

    def open_spans(self) -> List[Span]:
        """Open spans of all threads, oldest first."""
        return list(self._open.values())

    def begin(self, phase: str, name: str, late_ns: Optional[int] = None) -> Span:
        """Begin a span on the calling thread. ``late_ns``: it began then, before there was any memory."""
        stack = self.stack()
        parent = stack[-1].id if stack else 0
        span = Span(next(self._ids), phase, name, parent, threading.get_ident(), self.step)
        span.number = self.ring.name(phase, name)
        at = now_ns() if late_ns is None else late_ns
        levels = self._boundary()
        for ordinal, level in levels:
            span.peaks[ordinal] = [level.allocated, level.reserved]
        if late_ns is not None:
            self._first = dict(levels)
            levels = [(ordinal, level.nothing()) for ordinal, level in levels]
        self._put(rings.BEGIN, span, at, levels, 0)
        stack.append(span)
        self._open[span.id] = span
        return span

    def end(self, span: Span, error: Optional[BaseException]) -> None:
        """End a span, and whatever was left open inside it on its thread."""
        at = now_ns()
        levels = self._boundary()
        stack = self.stack()
        kind = type(error).__name__ if error is not None else None
        if span not in stack:  # ended already, when an interrupted one below it was cleared away
            return
        while stack:
            last = stack.pop()
            self._open.pop(last.id, None)
            self._put(rings.END, last, at, levels, self.ring.name("error", kind) if kind else 0)
            if last is span:
                return

    def end_stale(self, phases: Tuple[str, ...]) -> None:
        """End spans of these phases on the calling thread: an interrupt took the code that would have."""
        for span in list(self.stack()):
            if span.phase in phases and not span.users and span in self.stack():
                self.end(span, InterruptedError())

    def _boundary(self) -> List[Tuple[int, Levels]]:
        counters = self.counters
        ordinals = self._ordinals() if counters is not None else ()
        spans = self.open_spans()
        if counters is None or not ordinals:
            for span in spans:
                span.whole = False
            return []
        self.boundaries += 1
        found = []
        for ordinal in ordinals:
            self.before_boundary(ordinal)
            levels = counters.boundary(ordinal)
            found.append((ordinal, levels))
            for span in spans:
                span.take(ordinal, levels)
        return found

    def late(self, phase: str, name: str, at: int, error: Optional[BaseException]) -> None:
        """A span that has ended now and began at ``at``, before CUDA was initialised: it began with nothing.

        Its peaks are those since the first allocation: exact where no boundary came between.
        """
        untouched = self.boundaries == 0
        span = self.begin(phase, name, at)
        for peak in span.peaks.values():
            peak[:] = [0, 0]
        for ordinal, levels in self._first.items():
            span.take(ordinal, levels)
        span.whole = untouched
        self.end(span, error)

    def keep_peaks(self, ordinal: int, levels: Levels) -> None:
        """The user is about to reset the peaks of a device: open spans take them first."""
        for span in self.open_spans():
            span.take(ordinal, levels)

    def _put(self, edge: int, span: Span, at: int, levels: List[Tuple[int, Levels]], error: int) -> None:
        put, none = self.ring.put, rings.MISSING
        if not levels:
            put(edge, 0, span.number, rings.NO_DEVICE, 0, span.id, span.parent, span.thread, span.step, at,
                none, none, none, none, error)  # fmt: skip
            return
        exact = rings.EXACT if span.whole and self.counters is not None and self.counters.reset_peaks else 0
        more = len(levels)
        for ordinal, level in levels:
            more -= 1
            peak_allocated, peak_reserved = none, none
            if edge == rings.END and ordinal in span.peaks:
                peak_allocated, peak_reserved = span.peaks[ordinal]
            put(edge, more, span.number, ordinal, exact, span.id, span.parent, span.thread, span.step, at,
                level.allocated, level.reserved, peak_allocated, peak_reserved, error)  # fmt: skip

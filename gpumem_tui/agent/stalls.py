"""A process in which nothing begins or ends any more: where its main thread is, told once.

It may compute for long, wait for requests, or wait for a peer that has died; which of
these is for the reader to judge, who knows of the other processes. Reads the frames of
the main thread; stops and disturbs nothing.
"""

from __future__ import annotations

import sys
import threading
from typing import List, Optional

from . import wire

STALL_NS = 10_000_000_000
"""So long without the begin or the end of a span is worth a line."""

MOST_FRAMES = 60


class Stalls:
    """Asked by the sampler in each of its rounds."""

    def __init__(self) -> None:
        self._last_ns: Optional[int] = None
        self._told = False

    def look(self, moved: bool, now_ns: int) -> Optional[int]:
        """When the last span began or ended, the first time that it was :data:`STALL_NS` ago."""
        if moved:
            self._last_ns, self._told = now_ns, False
        if self._last_ns is None or self._told or now_ns - self._last_ns < STALL_NS:
            return None
        self._told = True
        return self._last_ns


def stall_line(since_ns: int, phase: Optional[str], step: Optional[int]) -> bytes:
    """The journal's line, with the main thread's stack: ``file:line function``, innermost last."""
    return wire.encode("stall", wire.now_ns(), since_ns, phase, step, main_stack())


def main_stack() -> List[str]:
    """Where the main thread is now."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    stack: List[str] = []
    while frame is not None and len(stack) < MOST_FRAMES:
        stack.append("%s:%d %s" % (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return stack[::-1]

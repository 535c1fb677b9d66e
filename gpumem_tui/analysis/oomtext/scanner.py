"""A log of any size, in blocks: finds the stretches that may matter and reads only those.

Most of a log is passed over at the speed of a byte search. Memory is bounded: lines
longer than :data:`LINE_BYTES` are read in pieces, a stretch is at most
:data:`WINDOW_LINES` long, and so much of what came before it is kept as a traceback
may need.
"""

import functools
from collections import deque
from collections.abc import Iterable

from gpumem_tui.analysis.oomtext.clean import Segment, segments
from gpumem_tui.analysis.oomtext.facts import Reading
from gpumem_tui.analysis.oomtext.gather import Gathering
from gpumem_tui.analysis.oomtext.window import read_window

LINE_BYTES = 16 << 10
"""A longer line is read in pieces of this size, as if it had been wrapped."""
WINDOW_LINES = 600
AFTER_LINES = 40
"""A stretch ends so many lines after the last line that may matter."""
BEFORE_LINES = 200
_WRAPPED = 4
"""How many lines before its first certain word a wrapped message may begin."""
_GATE_BYTES = 64 << 10
_NO_BREAK_SPACE = "\u00a0".encode()

GATE = (
    b"KV ",
    b"loading took",
    b"weights take",
    b"concurrency for",
    b"emory",
    b"EMORY",
    b"llocat",
    b"bad_alloc",
    b"oom",
    b"OOM",
    b"illed",
    b"_STATUS_",
    b"cuDNN",
    b"ble to find",
    b"n engine",
    b"te this comp",
    b"NCCL",
    b"nccl",
    b"NVML_",
    b"ASSERT F",
    b"UDA error",
    b"uda error",
    b"SIGTERM",
    b"exitcode",
    b"Root Cause",
    b"ode 137",
    b"Code:",
    b" peer",
    b" enough ",
    b"quested ",
    b"hostname=",
    b"tilizat",
    b"Triton E",
    b"esource ex",
)
"""A block without any of these holds nothing that matters, and is passed over whole."""

MARKS = (
    b"KV cache memory",
    b"KV cache size",
    b"KV Cache is",
    b"loading took",
    b"weights take",
    b"concurrency for",
    b"ut of mem",
    b"of memory",
    b"OutOfMem",
    b"OF_MEMORY",
    b"MemoryAlloc",
    b"MemoryError",
    b"ried to all",
    b"to allocate",
    b"allocate memory",
    b"ready allocated",
    b"otal cap",
    b"reserved in total",
    b"allocated by PyT",
    b"unallocated",
    b"memory in use",
    b"shared memory",
    b"llocation on dev",
    b"exceed allowed",
    b"allocation failed",
    b"mapping failed",
    b"reemptively rej",
    b"omitting per",
    b"bad_alloc",
    b"backend out",
    b"other alloc",
    b"StepId",
    b"oom-kill",
    b"oom_kill",
    b"OOM",
    b"illed",
    b"us error",
    b"BLAS_STATUS_",
    b"CUDNN_STATUS_",
    b"cuDNN alg",
    b"nable to find",
    b"n engine",
    b"te this comp",
    b"NVML_SUCCESS",
    b"ASSERT FAILED",
    b"UDA error",
    b"uda error",
    b"cuDNN error",
    b"NCCL error",
    b"handled cuda",
    b"handledCuda",
    b"uda failure",
    b"CUDA calloc",
    b"CCL_DEBUG",
    b"ncclRemoteError",
    b"NCCL comm",
    b"NCCL oper",
    b"Watchdog caught",
    b"network error",
    b"by peer",
    b"by remote peer",
    b"SIGTERM",
    b"exitcode",
    b"Root Cause",
    b"ode 137",
    b"Code:",
    b"enough mem",
    b"be enough",
    b"quested ",
    b"ficient me",
    b"ResourceEx",
    b"ESOURCE_EX",
    b"esource ex",
    b"ory ; GPU=",
    b"cudaMallo",
    b"rror Code",
    b"emory utiliz",
    b"ilable memory",
    b"cache blocks",
    b"on startup",
    b"serve at l",
    b"max seq len",
    b"in KV cache",
    b"prefill tok",
    b"mem-fraction",
    b"InUse:",
    b"total_region",
    b" allocation: ",
    b"Triton Err",
)
"""A line that matters, or that a hard-wrapped one is part of, shows one of these."""

_Piece = tuple[int, int, bytes]
"""Position among all pieces, number of the line, bytes."""


class Scanner:
    """Takes a log in blocks, cut anywhere; :meth:`finish` gives what it says."""

    def __init__(self) -> None:
        self._gathering = Gathering()
        self._rest = b""
        self._line = 1
        self._bytes = 0
        self._before: deque[_Piece] = deque(maxlen=BEFORE_LINES)
        self._open: list[_Piece] = []
        self._quiet = 0
        self._done_until = 0
        self._at = 0
        self._ended = True

    def feed(self, block: bytes) -> None:
        """The next bytes of the log."""
        self._bytes += len(block)
        self._ended = block.endswith(b"\n") if block else self._ended
        for start in range(0, len(block), _GATE_BYTES):
            self._gate(block[start : start + _GATE_BYTES].replace(_NO_BREAK_SPACE, b" "))

    def finish(self) -> Reading:
        """The end of the log has come: what it says."""
        rest, self._rest = self._rest, b""
        lines = self._line - (1 if self._ended else 0)
        if rest:
            self._take(rest, bool(_hits(rest)), ends=True)
        self._close(at_end=True)
        return self._gathering.reading(lines=lines, size_bytes=self._bytes)

    def _gate(self, block: bytes) -> None:
        block = self._rest + block
        cut = block.rfind(b"\n") + 1
        if not cut and len(block) < LINE_BYTES:
            self._rest = block
            return
        if not cut:
            cut = len(block) - len(block) % LINE_BYTES
        whole, self._rest = block[:cut], block[cut:]
        if not self._open and not any(word in whole for word in GATE):
            self._skip(whole)
            return
        hits = [*_hits(whole), len(whole)]
        end = hit = 0
        for line in whole.split(b"\n"):
            end += len(line) + 1
            marked = hits[hit] < min(end, len(whole))
            while hits[hit] < min(end, len(whole)):
                hit += 1
            if end <= len(whole) or line:
                self._take(line, marked, ends=end <= len(whole))

    def _skip(self, whole: bytes) -> None:
        """Nothing here matters; its last lines are kept, for a traceback that begins in them."""
        tail = whole[-(BEFORE_LINES * 100) :].split(b"\n")[:-1]
        self._line += whole.count(b"\n")
        first = self._line - len(tail)
        for index, line in enumerate(tail):
            self._at += 1
            self._before.append((self._at, first + index, line[:LINE_BYTES]))

    def _take(self, line: bytes, marked: bool, *, ends: bool) -> None:
        for start in range(0, max(1, len(line)), LINE_BYTES):
            piece = line[start : start + LINE_BYTES]
            self._piece(piece, marked if len(line) <= LINE_BYTES else bool(_hits(piece)))
        self._line += ends

    def _piece(self, piece: bytes, marked: bool) -> None:
        self._at += 1
        here = (self._at, self._line, piece)
        if marked:
            if not self._open:
                for _ in range(min(_WRAPPED, len(self._before))):
                    self._open.insert(0, self._before.pop())
            self._quiet = 0
        elif not self._open:
            self._before.append(here)
            return
        else:
            self._quiet += 1
        self._open.append(here)
        if self._quiet >= AFTER_LINES or len(self._open) >= WINDOW_LINES:
            self._close(at_end=self._quiet >= AFTER_LINES)

    def _close(self, *, at_end: bool) -> None:
        """Read the stretch. Cut in its middle, what begins in its last lines is left to the next."""
        if not self._open:
            return
        before = functools.cache(functools.partial(_segments, tuple(self._before)))
        parts = _segments(self._open)
        until = self._open[-1][0] if at_end else self._open[-AFTER_LINES][0] - 1
        self._gathering.add(read_window(before, parts), after=self._done_until, until=until)
        self._done_until = until
        if at_end:
            self._before.extend(self._open)
            self._open = []
        else:
            self._before.extend(self._open[:-AFTER_LINES])
            self._open = self._open[-AFTER_LINES:]


def _hits(block: bytes) -> list[int]:
    """Where marks stand, in order."""
    found = []
    for mark in MARKS:
        at = block.find(mark)
        while at >= 0:
            found.append(at)
            at = block.find(mark, at + len(mark))
    return sorted(found)


def _segments(lines: Iterable[_Piece]) -> list[Segment]:
    return [segment for at, line, raw in lines for segment in segments(at, line, raw)]

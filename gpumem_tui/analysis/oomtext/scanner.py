"""A log of any size, in blocks: finds the stretches that may matter and reads only those.

Most of a log is passed over at the speed of a byte search. Memory is bounded: lines
longer than :data:`LINE_BYTES` are read in pieces, a stretch is at most
:data:`WINDOW_LINES` long, and so much of what came before it is kept as a traceback
may need.
"""

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
_WRAPPED = 3
"""How many lines before its first certain word a wrapped message may begin."""
_GATE_BYTES = 64 << 10

MARKS = (
    b"ut of mem",
    b"OutOfMem",
    b"of memory",
    b"ried to all",
    b"to allocate",
    b"otal cap",
    b"is allocated by",
    b"reserved by",
    b"reserved in",
    b" allocated",
    b"memory in use",
    b"allocation",
    b"oom",
    b"OOM",
    b"illed",
    b"bad_alloc",
    b"us error",
    b"shared memory",
    b"_STATUS_",
    b"cuDNN alg",
    b"find an engine",
    b"NCCL",
    b"nccl",
    b"uda error",
    b"uda failure",
    b"NVML_SUCCESS",
    b"omitting per",
    b"MemoryAlloc",
    b"OF_MEMORY",
    b"MemoryError",
    b"OutOfMemory",
    b"SIGTERM",
    b"SIGKILL",
    b"exitcode",
    b"Root Cause",
    b"ode 137",
    b"Code:",
    b"by peer",
    b"by remote peer",
    b"Watchdog",
    b"network error",
    b"allocate memory",
)
"""Bytes of which every message that matters shows at least one, even hard-wrapped."""

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

    def feed(self, block: bytes) -> None:
        """The next bytes of the log."""
        self._bytes += len(block)
        for start in range(0, len(block), _GATE_BYTES):
            self._gate(block[start : start + _GATE_BYTES])

    def finish(self) -> Reading:
        """The end of the log has come: what it says."""
        rest, self._rest = self._rest, b""
        lines = self._line - (0 if rest else 1)
        if rest:
            self._take(rest, _marked(rest), ends=True)
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
        if not self._open and not _marked(whole):
            self._skip(whole)
            return
        for line in whole.splitlines(keepends=True) if b"\r" not in whole else _lines(whole):
            self._take(line, _marked(line), ends=line.endswith(b"\n"))

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
            self._piece(piece, marked if len(line) <= LINE_BYTES else _marked(piece))
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
        before = _segments(self._before)
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


def _marked(block: bytes) -> bool:
    return any(mark in block for mark in MARKS)


def _lines(whole: bytes) -> list[bytes]:
    r"""Lines with their \n; a \r within a line is no end of it."""
    found = [line + b"\n" for line in whole.split(b"\n")]
    last = found.pop()[:-1]
    return [*found, last] if last else found


def _segments(lines: Iterable[_Piece]) -> list[Segment]:
    return [segment for at, line, raw in lines for segment in segments(at, line, raw)]

"""Finished spans by phase and device, cold and warm apart. Maxima of peaks; nothing is averaged.

What a phase grows by from one span to the next is the median of slopes between its
latest spans, and is given only where nearly all of them rise.
"""

from collections import deque

from gpumem_tui import records
from gpumem_tui.analysis import trend
from gpumem_tui.analysis.rankstate import PhaseRow

DURATIONS = 101
"""Durations kept for the median."""

RECENT = 64
"""Latest spans whose levels are kept for the trend."""

POINTS = 16
"""Of them, evenly chosen, so many are compared with each other."""

FEWEST = 8
"""Spans from which on something is said of their trend; as many further ones bring it up to date."""

Key = tuple[str, str, int, bool]
"""Phase, name, ordinal, cold."""


class _Row:
    __slots__ = (
        *("count", "errors", "durations", "start", "peak_allocated_bytes", "peak_reserved_bytes", "end"),
        *("exact", "last_ns", "_levels", "_trend", "_trend_count", "told"),
    )

    def __init__(self) -> None:
        self.count = self.errors = 0
        self.durations: deque[int] = deque(maxlen=DURATIONS)
        self.start: tuple[int | None, int | None] = (None, None)
        self.peak_allocated_bytes: int | None = None
        self.peak_reserved_bytes: int | None = None
        self.end: tuple[int | None, int | None] = (None, None)
        self.exact = True
        self.last_ns = 0
        self._levels: deque[tuple[int, int, int]] = deque(maxlen=RECENT)
        """(count of spans then, allocated at the end, peak of allocated)."""
        self._trend: tuple[int | None, int | None, int] = (None, None, 0)
        self._trend_count = 0
        self.told: PhaseRow | None = None
        """The row as it was last asked for; None where it has changed since."""

    def reached(self, allocated_bytes: int, reserved_bytes: int) -> None:
        """Peaks of a span, or of several."""
        if self.peak_allocated_bytes is None or allocated_bytes > self.peak_allocated_bytes:
            self.peak_allocated_bytes = allocated_bytes
        if self.peak_reserved_bytes is None or reserved_bytes > self.peak_reserved_bytes:
            self.peak_reserved_bytes = reserved_bytes

    def note(self, end_bytes: int, peak_bytes: int) -> None:
        """Levels of the span that was counted last."""
        self._levels.append((self.count, end_bytes, peak_bytes))

    def trend(self) -> tuple[int | None, int | None, int]:
        """Bytes a span by which end and peak of allocated grow (0: they do not), and over how many spans.

        None with too few spans.
        """
        if len(self._levels) >= FEWEST and self.count - self._trend_count >= FEWEST:
            self._trend_count = self.count
            over = self._levels[-1][0] - self._levels[0][0] + 1
            ends = [(count, end) for count, end, _ in self._levels]
            peaks = [(count, peak) for count, _, peak in self._levels]
            self._trend = (_growth(ends), _growth(peaks), over)
        return self._trend


def _median(durations: deque[int]) -> int | None:
    if not durations:
        return None
    ordered, half = sorted(durations), len(durations) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) // 2


def _growth(points: list[tuple[int, int]]) -> int | None:
    last = len(points) - 1
    chosen = [points[round(i * last / (POINTS - 1))] for i in range(POINTS)] if last >= POINTS else points
    if not trend.rises(chosen):
        return 0
    slope = trend.slope_of(chosen)
    return None if slope is None else slope.bytes_per_unit if slope.steady else 0


class PhaseTable:
    """All phases of one process."""

    def __init__(self) -> None:
        self._rows: dict[Key, _Row] = {}
        self._seen: set[tuple[str, str]] = set()
        self._cold: set[int] = set()
        """Open spans that are the first of their phase."""

    def _row(self, key: Key) -> _Row:
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = _Row()
        return row

    def began(self, begin: records.Begin) -> None:
        """A span has begun: the first of its phase is the cold one."""
        name = (begin.phase, begin.name)
        if name not in self._seen:
            self._seen.add(name)
            self._cold.add(begin.span)

    def add(self, begin: records.Begin, end: records.End) -> None:
        """A finished span."""
        cold = begin.span in self._cold
        if cold:
            self._cold.discard(begin.span)
        t_ns, rows, starts = end.t_ns, self._rows, begin.levels
        for ordinal, allocated, reserved, peak_allocated, peak_reserved, exact in end.levels:
            key = (begin.phase, begin.name, ordinal, cold)
            row = rows.get(key) or self._row(key)
            row.told = None
            row.count += 1
            if end.error is not None:
                row.errors += 1
            row.durations.append(t_ns - begin.t_ns)
            for of, allocated_then, reserved_then in starts:
                if of == ordinal:
                    row.start = (allocated_then, reserved_then)
                    break
            else:
                row.start = (None, None)
            row.reached(peak_allocated, peak_reserved)
            row.end = (allocated, reserved)
            if not exact:
                row.exact = False
            row.note(allocated, peak_allocated)
            row.last_ns = t_ns

    def add_folded(self, spans: records.Spans) -> None:
        """Spans of one phase that the recorder has folded."""
        self._seen.add((spans.phase, spans.name))
        if spans.ordinal is None:
            return
        row = self._row((spans.phase, spans.name, spans.ordinal, spans.cold))
        row.told = None
        row.count += spans.count
        row.errors += spans.errors
        if spans.duration_ns is not None:
            row.durations.append(spans.duration_ns[2])
        if spans.peak_allocated is not None and spans.peak_reserved is not None:
            row.reached(spans.peak_allocated[1], spans.peak_reserved[1])
        if spans.end_allocated is not None and spans.end_reserved is not None:
            row.end = (spans.end_allocated[2], spans.end_reserved[2])
            row.start = (None, None)
            if spans.peak_allocated is not None:
                row.note(spans.end_allocated[2], spans.peak_allocated[2])
        row.exact = row.exact and not spans.inexact
        row.last_ns = spans.until_ns

    def rows(self, pid: int, rank: int | None) -> list[PhaseRow]:
        """In the order in which phases first ended, cold before warm."""
        told = []
        for key, row in self._rows.items():
            if row.told is None or (row.told.pid, row.told.rank) != (pid, rank):
                row.told = self._state(pid, rank, key, row)
            told.append(row.told)
        return told

    @staticmethod
    def _state(pid: int, rank: int | None, key: Key, row: _Row) -> PhaseRow:
        phase, name, ordinal, cold = key
        end_growth, peak_growth, over = row.trend()
        return PhaseRow(
            pid=pid,
            rank=rank,
            phase=phase,
            name=name,
            ordinal=ordinal,
            cold=cold,
            count=row.count,
            errors=row.errors,
            duration_ns=_median(row.durations),
            start_allocated_bytes=row.start[0],
            start_reserved_bytes=row.start[1],
            peak_allocated_bytes=row.peak_allocated_bytes,
            peak_reserved_bytes=row.peak_reserved_bytes,
            exact=row.exact,
            end_allocated_bytes=row.end[0],
            end_reserved_bytes=row.end[1],
            last_ns=row.last_ns,
            end_growth_bytes=end_growth,
            peak_growth_bytes=peak_growth,
            growth_spans=over,
        )


class PhaseMarks:
    """How a phase table stood at some moments, evenly spread over the run; bounded."""

    MOST = 64

    def __init__(self) -> None:
        self._marks: list[tuple[int, list[PhaseRow]]] = []
        self._every_ns = 500_000_000
        self.wanted = True
        self.due_ns = 0
        """From when on the next is due, if any is wanted."""

    def due(self, t_ns: int) -> bool:
        """Whether a mark is wanted at this moment."""
        return self.wanted and t_ns >= self.due_ns

    def add(self, t_ns: int, rows: list[PhaseRow]) -> None:
        """The table as it stands at a moment."""
        self._marks.append((t_ns, rows))
        if len(self._marks) > self.MOST:
            self._marks = self._marks[::2]
            self._every_ns *= 2
        self.due_ns = self._marks[-1][0] + self._every_ns

    def at(self, t_ns: int) -> list[PhaseRow]:
        """The last rows before a moment; none before the first mark."""
        return next((rows for at_ns, rows in reversed(self._marks) if at_ns <= t_ns), [])

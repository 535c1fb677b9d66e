"""Finished spans by phase and device, cold and warm apart. Maxima of peaks; nothing is averaged."""

from collections import deque
from statistics import median

from gpumem_tui import records
from gpumem_tui.analysis.state import PhaseRow

DURATIONS = 101
"""Durations kept for the median."""

Key = tuple[str, str, int, bool]
"""Phase, name, ordinal, cold."""


def _larger(old: int | None, new: int | None) -> int | None:
    if old is None or new is None:
        return new if old is None else old
    return max(old, new)


class _Row:
    def __init__(self) -> None:
        self.count = self.errors = 0
        self.durations: deque[int] = deque(maxlen=DURATIONS)
        self.start: tuple[int | None, int | None] = (None, None)
        self.peak: tuple[int | None, int | None] = (None, None)
        self.end: tuple[int | None, int | None] = (None, None)
        self.exact = True
        self.last_ns = 0


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
        name = (begin.phase, begin.name)
        cold = begin.span in self._cold
        self._cold.discard(begin.span)
        starts = {ordinal: (allocated, reserved) for ordinal, allocated, reserved in begin.levels}
        for ordinal, allocated, reserved, peak_allocated, peak_reserved, exact in end.levels:
            row = self._row((*name, ordinal, cold))
            row.count += 1
            row.errors += end.error is not None
            row.durations.append(end.t_ns - begin.t_ns)
            row.start = starts.get(ordinal, (None, None))
            row.peak = (_larger(row.peak[0], peak_allocated), _larger(row.peak[1], peak_reserved))
            row.end = (allocated, reserved)
            row.exact = row.exact and exact
            row.last_ns = end.t_ns

    def add_folded(self, spans: records.Spans) -> None:
        """Spans of one phase that the recorder has folded."""
        self._seen.add((spans.phase, spans.name))
        if spans.ordinal is None:
            return
        row = self._row((spans.phase, spans.name, spans.ordinal, spans.cold))
        row.count += spans.count
        row.errors += spans.errors
        if spans.duration_ns is not None:
            row.durations.append(spans.duration_ns[2])
        if spans.peak_allocated is not None and spans.peak_reserved is not None:
            row.peak = (
                _larger(row.peak[0], spans.peak_allocated[1]),
                _larger(row.peak[1], spans.peak_reserved[1]),
            )
        if spans.end_allocated is not None and spans.end_reserved is not None:
            row.end = (spans.end_allocated[2], spans.end_reserved[2])
        row.last_ns = spans.until_ns

    def rows(self, pid: int, rank: int | None) -> list[PhaseRow]:
        """In the order in which phases first ended, cold before warm."""
        return [
            PhaseRow(
                pid=pid,
                rank=rank,
                phase=phase,
                name=name,
                ordinal=ordinal,
                cold=cold,
                count=row.count,
                errors=row.errors,
                duration_ns=int(median(row.durations)) if row.durations else None,
                start_allocated_bytes=row.start[0],
                start_reserved_bytes=row.start[1],
                peak_allocated_bytes=row.peak[0],
                peak_reserved_bytes=row.peak[1],
                exact=row.exact,
                end_allocated_bytes=row.end[0],
                end_reserved_bytes=row.end[1],
                last_ns=row.last_ns,
            )
            for (phase, name, ordinal, cold), row in self._rows.items()
        ]

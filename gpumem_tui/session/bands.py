"""The spans of one process as bands of time: recent ones whole, older short ones joined, a bounded number.

Joining keeps what charts need: which phases there were from when to when. Neighbours
of one depth become one band while they are short and hardly anything lies between
them; a band of several phases is called :data:`SEVERAL` and names them.
"""

from bisect import bisect_left
from functools import lru_cache
from operator import attrgetter

from msgspec.structs import replace

from gpumem_tui import records
from gpumem_tui.analysis.state import SEVERAL, Band

MOST = 1024
"""Finished bands of a process; beyond it, the older half is joined."""

GAP_NS = 2_000_000_000
"""Bands further apart are not joined, until there are too many even so."""


_TRAINING = ("forward", "backward", "optimizer", "recompute")
_FOREIGN_NS = 30_000_000_000
"""Training is joined with other phases only where bands are this short for the run."""


class Bands:
    """Grows by edges in the order in which they were written."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._rank: int | None = None
        self._open: dict[int, tuple[records.Begin, int]] = {}
        """Span → its begin and its depth."""
        self._done: list[Band] = []
        """By the time at which they ended."""
        self._bridge_ns = GAP_NS
        self.around = 0
        """How many spans that are not seen here lie around all that are."""

    def began(self, begin: records.Begin) -> None:
        """A span has begun; it is within those that are open."""
        self._open[begin.span] = (begin, self.around + len(self._open))

    def ended(self, end: records.End) -> None:
        """A span has ended; one that was not seen to begin is no band."""
        found = self._open.pop(end.span, None)
        if found is not None:
            self._add(self._band(*found, end.t_ns, end.error))

    def _band(self, begin: records.Begin, depth: int, until_ns: int | None, error: str | None) -> Band:
        return Band(
            self._pid, self._rank, begin.phase, begin.name, depth, begin.t_ns, until_ns, begin.step, error
        )

    def folded(self, spans: records.Spans) -> None:
        """Spans of one phase that the recorder has folded: a band over all of them."""
        depth = self.around + len(self._open)
        band = Band(self._pid, self._rank, spans.phase, spans.name, depth, spans.t_ns, spans.until_ns, None)
        last = self._done[-1] if self._done else None
        if last is not None and last.until_ns is not None and last.until_ns > spans.t_ns:
            self._done[-1] = _joined(last, band)
        else:
            self._add(band)

    def _add(self, band: Band) -> None:
        self._done.append(band)
        while len(self._done) > MOST:
            self._join_older_half()
            self._bridge_ns *= 2 if len(self._done) > MOST - MOST // 8 else 1

    def _join_older_half(self) -> None:
        half = len(self._done) // 2
        older = sorted(self._done[:half], key=attrgetter("since_ns"))
        kept: list[Band] = []
        latest: dict[int, int] = {}
        """Depth → where in ``kept`` its latest band is."""
        for band in older:
            depth = band.depth
            at = latest.get(depth)
            if at is not None and self._may_join(kept[at], band):
                kept[at] = _joined(kept[at], band)
                del latest[depth]  # two at a time, so that resolution is lost evenly
            else:
                latest[depth] = len(kept)
                kept.append(band)
        self._done[:half] = sorted(kept, key=attrgetter("until_ns"))

    def _may_join(self, one: Band, two: Band) -> bool:
        bridge_ns, since_ns, ended_ns = self._bridge_ns, two.since_ns, one.until_ns or one.since_ns
        if since_ns - ended_ns > bridge_ns:
            return False
        if ended_ns - one.since_ns > bridge_ns and (two.until_ns or since_ns) - since_ns > bridge_ns:
            return False
        return one.phase == two.phase != SEVERAL or (
            _is_training(one) == _is_training(two) or bridge_ns > _FOREIGN_NS
        )

    def all(self, rank: int | None) -> list[Band]:
        """Finished and open bands, oldest first, under the rank that is known by now."""
        if rank != self._rank:
            self._rank = rank
            self._done = [replace(band, rank=rank) for band in self._done]
        return [*self._done, *self._still_open()]

    def _still_open(self) -> list[Band]:
        return [self._band(begin, depth, None, None) for begin, depth in self._open.values()]

    def open_at(self, t_ns: int) -> list[Band]:
        """Bands of one phase that were open at a moment, outermost first."""
        first = bisect_left(self._done, t_ns, key=lambda band: band.until_ns or 0)
        found = [
            band
            for band in (*self._done[first:], *self._still_open())
            if band.since_ns <= t_ns and band.phase != SEVERAL
        ]
        return sorted(found, key=attrgetter("depth"))


def _is_training(band: Band) -> bool:
    phase = band.phase
    return phase in _TRAINING or (phase == SEVERAL and _begins_with_training(band.name))


@lru_cache(1024)
def _begins_with_training(names: str) -> bool:
    return names.partition(", ")[0] in _TRAINING


def _joined(one: Band, two: Band) -> Band:
    """One band over both, and what lies between them."""
    phase, name = one.phase, one.name
    if phase != two.phase or name != two.name:
        phase, name = _both(phase, name, two.phase, two.name)
    since = min(one.since_ns, two.since_ns)
    until = max(one.until_ns or since, two.until_ns or since)
    error = one.error or two.error
    return Band(one.pid, one.rank, phase, name, one.depth, since, until, one.step, error)


@lru_cache(1024)
def _both(phase: str, name: str, other: str, others: str) -> tuple[str, str]:
    """Phase and name of a band over two that differ in them."""
    names: dict[str, None] = {}
    for of, said in ((phase, name), (other, others)):
        names.update(dict.fromkeys(said.split(", ") if of == SEVERAL else [of]))
    if len(names) == 1:
        return phase if phase != SEVERAL else other, ""
    return SEVERAL, ", ".join(names)

"""The spans of one process as bands of time: recent ones whole, older short ones joined, a bounded number.

Joining keeps what charts need: which phases there were from when to when. Neighbours
of one depth become one band while they are short and hardly anything lies between
them; a band of several phases is called :data:`SEVERAL` and names them.
"""

from bisect import bisect_left
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
        self._open: dict[int, Band] = {}
        self._done: list[Band] = []
        """By the time at which they ended."""
        self._bridge_ns = GAP_NS
        self.around = 0
        """How many spans that are not seen here lie around all that are."""

    def began(self, begin: records.Begin) -> None:
        """A span has begun; it is within those that are open."""
        depth = self.around + len(self._open)
        self._open[begin.span] = Band(
            self._pid, self._rank, begin.phase, begin.name, depth, begin.t_ns, None, begin.step
        )

    def ended(self, end: records.End) -> None:
        """A span has ended; one that was not seen to begin is no band."""
        band = self._open.pop(end.span, None)
        if band is not None:
            self._add(replace(band, until_ns=end.t_ns, error=end.error))

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
            at = latest.get(band.depth)
            if at is not None and self._may_join(kept[at], band):
                kept[at] = _joined(kept[at], band)
                del latest[band.depth]  # two at a time, so that resolution is lost evenly
            else:
                latest[band.depth] = len(kept)
                kept.append(band)
        self._done[:half] = sorted(kept, key=lambda band: band.until_ns or 0)

    def _may_join(self, one: Band, two: Band) -> bool:
        ended = one.until_ns or one.since_ns
        shorter = min(ended - one.since_ns, (two.until_ns or two.since_ns) - two.since_ns)
        near = two.since_ns - ended <= self._bridge_ns and shorter <= self._bridge_ns
        return near and (_is_training(one) == _is_training(two) or self._bridge_ns > _FOREIGN_NS)

    def all(self, rank: int | None) -> list[Band]:
        """Finished and open bands, oldest first, under the rank that is known by now."""
        if rank != self._rank:
            self._rank = rank
            self._done = [replace(band, rank=rank) for band in self._done]
            self._open = {span: replace(band, rank=rank) for span, band in self._open.items()}
        return [*self._done, *self._open.values()]

    def open_at(self, t_ns: int) -> list[Band]:
        """Bands of one phase that were open at a moment, outermost first."""
        first = bisect_left(self._done, t_ns, key=lambda band: band.until_ns or 0)
        found = [
            band
            for band in (*self._done[first:], *self._open.values())
            if band.since_ns <= t_ns and band.phase != SEVERAL
        ]
        return sorted(found, key=attrgetter("depth"))


def _is_training(band: Band) -> bool:
    return band.phase in _TRAINING or (band.phase == SEVERAL and band.name.partition(", ")[0] in _TRAINING)


def _joined(one: Band, two: Band) -> Band:
    """One band over both, and what lies between them."""
    phase, name = one.phase, one.name
    if (one.phase, one.name) != (two.phase, two.name):
        names: dict[str, None] = {}
        for band in (one, two):
            names.update(dict.fromkeys(band.name.split(", ") if band.phase == SEVERAL else [band.phase]))
        phase, name = SEVERAL, ", ".join(names)
        if len(names) == 1:
            phase, name = one.phase if one.phase != SEVERAL else two.phase, ""
    since = min(one.since_ns, two.since_ns)
    until = max(one.until_ns or since, two.until_ns or since)
    return replace(one, phase=phase, name=name, since_ns=since, until_ns=until, error=one.error or two.error)

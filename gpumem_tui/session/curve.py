"""A bounded curve: raw points while they are few, folded to (low, high, last) where they grow old.

Folding joins neighbours in time only: a gap stays a gap until a point is so wide that it hardly is one.
"""

from array import array
from bisect import bisect_left

from gpumem_tui.analysis.state import Series

POINTS = 2048
"""A curve never holds more points than this."""

GAP_NS = 2_000_000_000
"""Points further apart than this are not folded into one, unless they are themselves half as wide."""


class Curve:
    """Grows at its end; ``series()`` is a frozen copy."""

    def __init__(self) -> None:
        self._since, self._t = array("q"), array("q")
        self._low, self._high, self._last = array("q"), array("q"), array("q")
        self._bridge_ns = GAP_NS

    def __len__(self) -> int:
        return len(self._t)

    def add(self, since_ns: int, t_ns: int, low: int, high: int, last: int) -> None:
        """Add a point; one that is older than the end is put out (clocks of one writer never go back)."""
        if self._t and t_ns < self._t[-1]:
            return
        self._since.append(since_ns)
        self._t.append(t_ns)
        self._low.append(low)
        self._high.append(high)
        self._last.append(last)
        while len(self._t) > POINTS:
            self._fold_older_half()
            if len(self._t) > POINTS:  # hardly anything but gaps: nothing is lost, so larger ones must go
                self._bridge_ns *= 2

    def _fold_older_half(self) -> None:
        columns = (array("q"), array("q"), array("q"), array("q"), array("q"))
        half = len(self._t) // 2
        at = 0
        while at < half:
            width = max(self._bridge_ns, 2 * (self._t[at] - self._since[at]))
            joined = at + 1 < half and self._since[at + 1] - self._t[at] <= width
            end = at + 1 if joined else at
            values = (
                self._since[at],
                self._t[end],
                min(self._low[at], self._low[end]),
                max(self._high[at], self._high[end]),
                self._last[end],
            )
            for column, value in zip(columns, values, strict=True):
                column.append(value)
            at = end + 1
        rest = (self._since, self._t, self._low, self._high, self._last)
        for column, old in zip(columns, rest, strict=True):
            column.extend(old[half:])
        self._since, self._t, self._low, self._high, self._last = columns

    def settled(self, t_ns: int, within_ns: int) -> int | None:
        """The value at a moment, if points before and after it within that time all have it."""
        start = bisect_left(self._t, t_ns - within_ns)
        values: set[int] = set()
        before = after = False
        for index in range(start, len(self._t)):
            if self._since[index] > t_ns + within_ns:
                break
            before = before or self._since[index] <= t_ns
            after = after or self._t[index] >= t_ns
            values.update((self._low[index], self._high[index]))
        return values.pop() if before and after and len(values) == 1 else None

    def series(self) -> Series:
        """A copy that does not change."""
        return Series(self._since[:], self._t[:], self._low[:], self._high[:], self._last[:])

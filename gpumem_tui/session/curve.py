"""A bounded curve: raw points while they are few, folded to (low, high, last) where they grow old.

Folding joins neighbours in time only: a gap stays a gap until a point is so wide that it hardly is one.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import overload

from gpumem_tui.analysis.rankstate import Series

POINTS = 4096
"""A curve never holds more points than this."""

OLD_SHARE = 8
"""The older half becomes about ``POINTS`` / this parts of equal length, and at most twice as many."""

GAP_NS = 2_000_000_000
"""Points further apart than this are not folded into one, unless they are themselves half as wide."""


class _Prefix(Sequence[int]):
    """The first values of an array that only grows: as good as a copy of them, and costs nothing."""

    __slots__ = ("_length", "_values")

    def __init__(self, values: "array[int]") -> None:
        self._values, self._length = values, len(values)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> "array[int]": ...
    def __getitem__(self, at: int | slice) -> "int | array[int]":
        if isinstance(at, slice):
            return self._values[slice(*at.indices(self._length))]
        if at < 0:
            at += self._length
        if not 0 <= at < self._length:
            raise IndexError(at)
        return self._values[at]

    def __iter__(self) -> Iterator[int]:
        return islice(self._values, self._length)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # as an array


class Curve:
    """Grows at its end; ``series()`` does not change. Arrays are appended to, or left for new ones."""

    def __init__(self) -> None:
        self._since, self._t = array("q"), array("q")
        self._low, self._high, self._last = array("q"), array("q"), array("q")
        self._bridge_ns = GAP_NS

    def __len__(self) -> int:
        return len(self._t)

    def add(self, since_ns: int, t_ns: int, low: int, high: int, last: int) -> None:
        """Add a point; one that is older than the end is put out (clocks of one writer never go back).

        So is one beyond 64 bits: a damaged line, which no counter has written.
        """
        if self._t and t_ns < self._t[-1]:
            return
        try:
            self._since.append(since_ns)
            self._low.append(low)
            self._high.append(high)
            self._last.append(last)
            self._t.append(t_ns)
        except OverflowError:
            for column in (self._since, self._low, self._high, self._last):
                del column[len(self._t) :]
        while len(self._t) > POINTS:
            self._fold_older_half()
            if len(self._t) > POINTS:  # hardly anything but gaps: nothing is lost, so larger ones must go
                self._bridge_ns *= 2

    def _fold_older_half(self) -> None:
        """Join neighbours until every stretch of the older half is about as fine as any other of it."""
        columns = (array("q"), array("q"), array("q"), array("q"), array("q"))
        half = len(self._t) // 2
        widest = (self._t[half - 1] - self._since[0]) // max(POINTS // OLD_SHARE, 1)
        at = 0
        while at < half:
            since, t_ns = self._since[at], self._t[at]
            low, high = self._low[at], self._high[at]
            end = at + 1
            while end < half and self._t[end] - since <= widest:
                if self._since[end] - t_ns > max(self._bridge_ns, 2 * (t_ns - since)):
                    break
                t_ns = self._t[end]
                low, high = min(low, self._low[end]), max(high, self._high[end])
                end += 1
            for column, value in zip(columns, (since, t_ns, low, high, self._last[end - 1]), strict=True):
                column.append(value)
            at = end
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
        """The curve as it is now."""
        return Series(*map(_Prefix, (self._since, self._t, self._low, self._high, self._last)))

"""The latest readings of one counter pair, whole and in order of time, found by their moment."""

from bisect import bisect_left, bisect_right, insort

Level = tuple[int, int, int]
"""(t_ns, allocated bytes, reserved bytes)."""

MOST = 8192
LENGTH_NS = 60_000_000_000
"""How many readings, and how long, are kept for pairing with those of the driver."""

_SLACK = 512
"""Readings that come before old ones are taken away again."""


class Recent:
    """Grows at its end, or close to it: edges of spans may come a little late."""

    def __init__(self) -> None:
        self._levels: list[Level] = []
        self._full = _SLACK
        """The length at which is looked for old ones."""

    def add(self, level: Level) -> None:
        """One reading."""
        levels = self._levels
        if not levels or level[0] >= levels[-1][0]:
            levels.append(level)
        else:
            insort(levels, level)
        if len(levels) > self._full:
            old_ns = levels[-1][0] - LENGTH_NS
            del levels[: max(bisect_left(levels, (old_ns, 0, 0)), len(levels) - MOST)]
            self._full = len(levels) + _SLACK

    @property
    def first_ns(self) -> int | None:
        """The moment of the oldest reading that is kept."""
        return self._levels[0][0] if self._levels else None

    def nearest(self, t_ns: int | None) -> Level | None:
        """The reading closest to a moment; the last one where no moment is given."""
        levels = self._levels
        if not levels or t_ns is None:
            return levels[-1] if levels else None
        at = bisect_left(levels, (t_ns, 0, 0))
        return min(levels[max(0, at - 1) : at + 1], key=lambda level: abs(level[0] - t_ns))

    def around(self, t_ns: int, within_ns: int) -> list[Level]:
        """The readings of that time to both sides of a moment."""
        levels = self._levels
        first = bisect_left(levels, (t_ns - within_ns, 0, 0))
        return levels[first : bisect_right(levels, t_ns + within_ns, key=lambda level: level[0])]

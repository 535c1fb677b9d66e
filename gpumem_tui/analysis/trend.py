"""A robust slope: how much something grows from one step to the next, and whether it really does.

The slope is the median of the slopes between all pairs of points (Theil and Sen), so
a few outliers do not move it. Pure; says nothing of why.
"""

from collections.abc import Sequence
from itertools import combinations, pairwise

import msgspec

MOST = 48
"""Points that are looked at: the latest."""

RISING = 0.8
"""Share of points that must lie above the one before."""


class Slope(msgspec.Struct, frozen=True):
    """Of a series of points (place, bytes)."""

    bytes_per_unit: int
    """Median of all pairwise slopes."""
    units: int
    """From the first point to the last, both counted."""
    grown_bytes: int
    """Last − first, but no more than the slope makes of it: one jump is no growth."""
    steady: bool
    """Nearly every point lies above the one before, and the slopes agree."""


def slope_of(points: Sequence[tuple[int, int]]) -> Slope | None:
    """The slope of the latest points; None with fewer than three. Places must rise."""
    from statistics import median, quantiles  # dear, and wanted by what rises alone

    points = points[-MOST:]
    if len(points) < 3:
        return None
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if b[0] > a[0]]
    if len(slopes) < 3:
        return None
    middle = median(slopes)
    low, _, high = quantiles(slopes, n=4)
    places = points[-1][0] - points[0][0]
    return Slope(
        bytes_per_unit=round(middle),
        units=places + 1,
        grown_bytes=min(points[-1][1] - points[0][1], round(middle * places)),
        steady=rises(points) and low > 0 and high - low <= middle,
    )


def rises(points: Sequence[tuple[int, int]]) -> bool:
    """Whether nearly every one of the latest points lies above the one before; cheap."""
    points = points[-MOST:]
    return sum(b[1] > a[1] for a, b in pairwise(points)) >= RISING * (len(points) - 1) > 0

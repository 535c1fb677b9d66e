"""What a curve says in each column of a chart, and at one moment. A gap stays a gap."""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from gpumem_tui.analysis.rankstate import Series
from gpumem_tui.analysis.state import DeviceState
from gpumem_tui.views.timeline import SECOND_NS, Window

Column = tuple[int, int, int]
"""(lowest, highest, last) of one column, in bytes."""


def columns(series: Series, view: Window, until_ns: int) -> list[Column | None]:
    """What a series says in every column of the window; None where it says nothing.

    A reading stands for its own spacing and no longer.
    """
    times, since = series.t_ns, series.since_ns
    drawn: list[Column | None] = []
    for number in range(view.columns):
        start = view.start_ns + number * view.column_ns
        if start > until_ns:
            drawn.append(None)
            continue
        first = bisect_left(times, start)
        stop = bisect_left(since, start + view.column_ns)
        if first < stop:
            drawn.append((min(series.low[first:stop]), max(series.high[first:stop]), series.last[stop - 1]))
        elif first and start - times[first - 1] <= _hold_ns(times, first):
            last = series.last[first - 1]
            drawn.append((last, last, last))
        else:
            drawn.append(None)
    return drawn


def _hold_ns(times: Sequence[int], end: int) -> int:
    """How long the reading before ``end`` stands: the spacing before it, with room for a late one."""
    recent = times[max(0, end - 9) : end]
    if len(recent) < 2:
        return 2 * SECOND_NS
    spacing = sorted(b - a for a, b in itertools.pairwise(recent))[(len(recent) - 1) // 2]
    return max(2 * SECOND_NS, 5 * spacing // 2)


def at(series: Series, t_ns: int) -> Column | None:
    """(low, high, last) of the point at a moment, else of the one before it; None in a gap."""
    number = bisect_right(series.since_ns, t_ns)
    if not number or (
        t_ns > series.t_ns[number - 1] and t_ns - series.t_ns[number - 1] > _hold_ns(series.t_ns, number)
    ):
        return None
    return series.low[number - 1], series.high[number - 1], series.last[number - 1]


def driver_share_bytes(device: DeviceState) -> int:
    """What of the driver's curve is the driver's own: *device used* is without it where it is known."""
    return device.ledger.driver_reserved.bytes or 0


def less(column: Column | None, share_bytes: int) -> Column | None:
    """A column without a share that does not change."""
    if column is None or not share_bytes:
        return column
    low, high, last = column
    return low - share_bytes, high - share_bytes, last - share_bytes


def add_curves(curves: Sequence[Sequence[Column | None]]) -> list[Column | None]:
    """One column list for several ranks on a card: the sum of their last values, known where all are.

    Highs of several processes need not be of one moment, so they are not added.
    """
    if len(curves) == 1:
        return list(curves[0])
    total: list[Column | None] = []
    for column in zip(*curves, strict=True):
        known = [part for part in column if part is not None]
        last = sum(part[2] for part in known)
        total.append((last, last, last) if known and len(known) == len(column) else None)
    return total

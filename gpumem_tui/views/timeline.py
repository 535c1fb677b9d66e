"""Which time a chart shows, and where in it people look: the window, the cursor, and how both move.

Pure arithmetic on nanoseconds of the recording's clock. A window is a whole number of
columns of a readable width; it moves in small hops, so that what was drawn mostly stays
where it is, and its right edge is now, never the future by more than a hop.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gpumem_tui import units

SECOND_NS = 1_000_000_000
SPANS_S = (10, 30, 60, 300, 900, 3600, 21600, 0)
"""Lengths of the window that a key steps through, in seconds; 0 is the whole run."""

FIRST_SPAN = SPANS_S.index(300)

SHORTEST_S = 15
"""The whole of a run is at least this long, in seconds: its first seconds do not fill a chart.

From then on the window grows with the run, by a quarter or a third at a time, up to the one that is wanted.
"""

_HOP = 24
"""A window moves by about this part of itself at once."""

_STEPS = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
_COLUMNS_NS = tuple(
    round(step * unit_ns)
    for unit_ns, steps in (
        (SECOND_NS // 100, _STEPS),
        (SECOND_NS // 10, _STEPS),
        (SECOND_NS, (10, 12, 15, 20, 25, 30, 40, 50)),
        (60 * SECOND_NS, (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50)),
        (3600 * SECOND_NS, (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 18, 24)),
    )
    for step in steps
)
"""Widths of a column while the whole of a run is shown, which grows: neighbours differ by a quarter or so."""


class Window(NamedTuple):
    """The time that a chart shows: ``columns`` columns of ``column_ns`` from ``start_ns``."""

    start_ns: int
    column_ns: int
    columns: int

    @property
    def end_ns(self) -> int:
        """Where its last column ends."""
        return self.start_ns + self.columns * self.column_ns

    def column_of(self, t_ns: int) -> int:
        """The column of a moment; outside of ``range(columns)`` if the window does not show it."""
        return (t_ns - self.start_ns) // self.column_ns


def window(started_ns: int, edge_ns: int, columns: int, span_s: int, latest_ns: int | None = None) -> Window:
    """A window of about ``span_s`` seconds (0: the whole run, up to ``latest_ns``) that ends at ``edge_ns``.

    A run shorter than that is shown whole, from its start on, in a window of :data:`SHORTEST_S` at least.
    """
    columns = max(1, columns)
    elapsed = max(0, edge_ns - started_ns)
    whole = max(SHORTEST_S, (elapsed if latest_ns is None else latest_ns - started_ns) / SECOND_NS + 1)
    if span_s and span_s < whole:
        column_ns = _close(span_s * SECOND_NS // columns)
    else:
        column_ns = next((ns for ns in _COLUMNS_NS if ns * columns >= whole * SECOND_NS), 0)
        column_ns = column_ns or -(-int(whole + 1) // (86400 * columns)) * 86400 * SECOND_NS
    hop = max(1, columns // _HOP) * column_ns
    beyond = elapsed - columns * column_ns + 1
    return Window(started_ns + max(0, -(-beyond // hop)) * hop, column_ns, columns)


def _close(column_ns: int) -> int:
    """The next larger number of two digits and zeros."""
    unit: int = 10 ** max(0, len(str(column_ns)) - 2)
    return -(-column_ns // unit) * unit


def span_name(span_s: int) -> str:
    """``last 5 min`` or ``whole run``."""
    return f"last {length(span_s)}" if span_s else "whole run"


def length(span_s: int) -> str:
    """``5 min``."""
    return units.format_seconds(span_s).replace(" 0 s", "").replace(" 00 min", "")


class Timeline:
    """Where in a run people look. ``cursor_ns`` None is now."""

    def __init__(self) -> None:
        self.cursor_ns: int | None = None
        self._zoom = FIRST_SPAN
        self._edge_ns: int | None = None
        """The right edge of the window while there is a cursor."""
        self._view = Window(0, SECOND_NS, 1)
        """The window that was asked for last."""
        self._seen_ns = 0
        """Up to when the picture at the cursor tells of the run."""
        self.started_ns = self.latest_ns = 0
        self.held_behind_ns = 0
        """How far behind the cursor was when it came to where it stands."""

    @property
    def span_s(self) -> int:
        """Length of the window in seconds; 0 is the whole run."""
        return SPANS_S[self._zoom]

    def know(self, started_ns: int, latest_ns: int) -> None:
        """How far the run has come: the last moment that there is to see."""
        self.started_ns, self.latest_ns = started_ns, max(started_ns, latest_ns)

    def window(self, columns: int) -> Window:
        """What a chart of so many columns shows."""
        edge_ns = self.latest_ns if self._edge_ns is None else self._edge_ns
        view = window(self.started_ns, edge_ns, columns, self.span_s, self.latest_ns)
        cursor = self.cursor_ns
        if cursor is not None and not 0 <= view.column_of(cursor) < view.columns:
            self._edge_ns = self._around(cursor, view)
            view = window(self.started_ns, self._edge_ns, columns, self.span_s, self.latest_ns)
        self._view = view
        return view

    def _around(self, t_ns: int, view: Window) -> int:
        """An edge with which a moment stands in the middle, as far as there is time on both sides."""
        return min(self.latest_ns, t_ns + view.columns // 2 * view.column_ns)

    @property
    def shown(self) -> Window:
        """The window that was asked for last."""
        return self._view

    @property
    def until_ns(self) -> int:
        """Up to when a chart has something to show."""
        return self.latest_ns if self.cursor_ns is None else self._seen_ns

    def saw(self, t_ns: int) -> None:
        """The picture at the cursor was read when the run had come that far."""
        self._seen_ns = t_ns

    @property
    def behind_ns(self) -> int:
        """How far the cursor is from the last moment; 0 without one."""
        return 0 if self.cursor_ns is None else self.latest_ns - self.cursor_ns

    def hold(self) -> None:
        """A cursor at the last moment; the window stays as it is."""
        if self.cursor_ns is None:
            self.cursor_ns = self._edge_ns = self._seen_ns = self.latest_ns
            self.held_behind_ns = 0

    def live(self) -> None:
        """No cursor: the window follows the run."""
        self.cursor_ns = self._edge_ns = None

    def move(self, columns: int) -> None:
        """Move the cursor by columns; from now on, where there is none."""
        self.hold()
        self.jump((self.cursor_ns or 0) + columns * self._view.column_ns)

    def jump(self, t_ns: int) -> None:
        """The cursor goes to a moment, within the run; the window goes with it only if it must."""
        self.hold()
        self.cursor_ns = max(self.started_ns, min(t_ns, self.latest_ns))
        self.held_behind_ns = self.behind_ns
        self._follow()

    def point(self, column: int) -> None:
        """The cursor goes to the end of a column of the last window: everything in it has happened."""
        self.jump(self._view.start_ns + (column + 1) * self._view.column_ns - 1)

    def zoom(self, step: int) -> None:
        """A longer or shorter window; the cursor stays where it stands in it."""
        self._zoom = max(0, min(self._zoom + step, len(SPANS_S) - 1))
        if self.cursor_ns is not None:
            before = self._view
            after = window(self.started_ns, self.latest_ns, before.columns, self.span_s, self.latest_ns)
            right = before.columns - before.column_of(self.cursor_ns) - 1
            self._edge_ns = min(self.latest_ns, self.cursor_ns + right * after.column_ns)
        self._follow()

    def _follow(self) -> None:
        """Let the window go where it must at once: the next key need not wait until a chart is drawn."""
        self.window(self._view.columns)

    def next_of(self, moments: Sequence[int], step: int) -> bool:
        """The cursor goes to the next (1) or previous (-1) of some moments; whether there was one."""
        here = self.latest_ns + 1 if self.cursor_ns is None else self.cursor_ns
        ahead = [t for t in moments if (t > here if step > 0 else t < here) and t >= self.started_ns]
        if not ahead:
            return False
        self.jump(min(ahead) if step > 0 else max(ahead))
        return True

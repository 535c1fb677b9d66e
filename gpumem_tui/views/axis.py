"""The axis of a chart: readable times of day where they are, events, the cursor, and now at the end."""

import time
from collections.abc import Mapping, Sequence

from gpumem_tui.analysis.state import RunFacts
from gpumem_tui.views.strokes import runs
from gpumem_tui.views.text import Span
from gpumem_tui.views.timeline import SECOND_NS, Window

_TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
NOW = "now"


def axis(
    view: Window,
    until: int,
    marks: Mapping[int, str],
    cursor: int | None,
    facts: RunFacts,
    *,
    live: bool,
) -> list[Span]:
    """One row of cells; nothing stands beyond column ``until``, for that is the future."""
    cells = [Span("─", "rule")] * until + [Span(" ")] * (view.columns - until)
    taken = {column for column in (*marks, cursor) if column is not None and 0 <= column < until}
    if live and until > len(NOW) and not taken & set(range(until - len(NOW), until)):
        cells[until - len(NOW) : until] = [Span(char, "dim") for char in NOW]
        taken |= set(range(until - len(NOW), until))
    for column, text in _ticks(view, until, facts):
        cells[column] = Span("┴", "rule") if column not in taken else cells[column]
        span = range(column + 1, column + 1 + len(text))
        if span.stop <= until and not taken & set(span):
            cells[column + 1 : span.stop] = [Span(char, "dim") for char in text]
    for column, role in marks.items():
        if 0 <= column < until:
            cells[column] = Span("▲", role)
    if cursor is not None and cursor < view.columns:
        cells[cursor] = Span("┃", "focus") if cursor not in marks else Span("▲", f"{marks[cursor]}")
    return runs(cells)


def _ticks(view: Window, until: int, facts: RunFacts) -> Sequence[tuple[int, str]]:
    """Columns of round times of day, and how they read."""
    offset_ns = facts.started_wall_ns - facts.started_ns
    for tick_s in _TICKS_S:
        size = 8 if tick_s < 60 else 5
        if tick_s * SECOND_NS >= (size + 4) * view.column_ns:
            break
    local_ns = time.localtime((view.start_ns + offset_ns) / 1e9).tm_gmtoff * SECOND_NS + offset_ns
    tick_ns = tick_s * SECOND_NS
    first = -(-(view.start_ns + local_ns) // tick_ns)
    found = []
    while (column := view.column_of(first * tick_ns - local_ns)) < until:
        moment = time.gmtime(first * tick_s)
        found.append((column, time.strftime("%H:%M:%S" if tick_s < 60 else "%H:%M", moment)))
        first += 1
    return found

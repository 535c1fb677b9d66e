"""A device's memory over time as rows of characters: columns, levels, axis. Arithmetic only.

The chart moves by a quarter of its window at a time, so that what was drawn stays
where it is. Levels stand from zero on one scale (allocated before reserved before
device used), they are not stacked. A column without a reading stays empty and is
marked; a reading stands for its own spacing and no longer, nothing is interpolated.
"""

import itertools
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gpumem_tui import units
from gpumem_tui.analysis.state import Curve, DeviceState, RunState, Series, Severity
from gpumem_tui.views import present
from gpumem_tui.views.text import EIGHTHS, TEXTURE, Line, Span, ends, fit, right

SECOND_NS = 1_000_000_000
SPANS_S = (60, 300, 900, 3600, 21600, 0)
"""Lengths of the window that a key steps through, in seconds; 0 is the whole run."""

_SHORTEST_S = 60
"""A window is at least this long, in seconds: a run's first seconds do not fill the chart."""

_COLUMN_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_GUTTER = 8

LEVELS = (("device used", "used"), ("reserved", "cached"), ("allocated", "allocated"))
"""What is drawn, from the back to the front: (name on screen, role)."""


class Window(NamedTuple):
    """The time that a chart shows: ``columns`` columns of ``column_ns`` from ``start_ns``."""

    start_ns: int
    column_ns: int
    columns: int

    def column_of(self, t_ns: int) -> int:
        """The column of a moment; outside of ``range(columns)`` if the window does not show it."""
        return (t_ns - self.start_ns) // self.column_ns


def window(started_ns: int, now_ns: int, columns: int, span_s: int) -> Window:
    """A window of about ``span_s`` seconds (0: the whole run) that holds ``now_ns``.

    A run shorter than that is shown whole, on a minute at least. Columns are whole,
    readable numbers of seconds, so that they widen a few times only while a run grows;
    the start only moves by a quarter of the window.
    """
    columns = max(1, columns)
    elapsed = max(0, now_ns - started_ns)
    whole = max(_SHORTEST_S, elapsed / SECOND_NS * 1.001 + 1)
    seconds = min(span_s, whole) if span_s else whole
    column_s = next((s for s in _COLUMN_S if s * columns >= seconds), None)
    if column_s is None:
        column_s = -(-int(seconds + 1) // (86400 * columns)) * 86400
    column_ns = column_s * SECOND_NS
    shift = max(1, columns // 4) * column_ns
    beyond = elapsed - columns * column_ns + 1
    pages = max(0, -(-beyond // shift))
    return Window(started_ns + pages * shift, column_ns, columns)


Column = tuple[int, int, int]
"""(lowest, highest, last) of one column, in bytes."""


def columns(series: Series, view: Window, until_ns: int) -> list[Column | None]:
    """What a series says in every column of the window; None where it says nothing."""
    times, since = series.t_ns, series.since_ns
    hold = _hold_ns(times)
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
        elif first and start - times[first - 1] <= hold:
            last = series.last[first - 1]
            drawn.append((last, last, last))
        else:
            drawn.append(None)
    return drawn


def _hold_ns(times: Sequence[int]) -> int:
    """How long a reading stands: the spacing of the latest ones, with room for a late one."""
    recent = times[-9:]
    if len(recent) < 2:
        return 2 * SECOND_NS
    spacing = sorted(b - a for a, b in itertools.pairwise(recent))[(len(recent) - 1) // 2]
    return max(2 * SECOND_NS, 5 * spacing // 2)


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


class Plot(msgspec.Struct, frozen=True):
    """Everything a chart draws, before it is characters."""

    view: Window
    until: int
    """Number of columns that have begun."""
    top_bytes: int
    used: list[Column | None]
    reserved: list[Column | None]
    allocated: list[Column | None]
    marks: dict[int, str]
    """Columns with events worth a mark, and the role of the mark."""


def plot(device: DeviceState, state: RunState, cells: int, span_s: int) -> Plot:
    """The chart of one device in ``cells`` columns of text, its gutter among them."""
    facts = state.facts
    now = state.now_ns if facts.ended_ns is None else max(facts.ended_ns, facts.started_ns)
    view = window(facts.started_ns, now, cells - _GUTTER, span_s)

    def of(curves: Sequence[Curve], name: str) -> list[Column | None]:
        if not curves:
            return [None] * view.columns
        return add_curves([columns(getattr(curve, name), view, now) for curve in curves])

    used = columns(device.driver_used, view, now)
    reserved, allocated = of(device.curves, "reserved"), of(device.curves, "allocated")
    top, _ = present.device_total(device)
    if top is None:
        seen = [c[1] for c in (*used, *reserved, *allocated) if c is not None]
        top = max(seen, default=0)
    marks: dict[int, str] = {}
    for event in state.events:
        column = view.column_of(event.t_ns)
        if event.severity is not Severity.INFO and event.device in (None, device.index):
            marks[column] = "failure" if "failure" in (event.severity.value, marks.get(column)) else "warning"
    until = min(view.columns, view.column_of(now) + 1)
    return Plot(view, until, max(1, top), used, reserved, allocated, marks)


def _slots(drawing: Plot, column: int, count: int) -> list[str]:
    """Roles of one column from the bottom up, in ``count`` slots."""
    slots = ["text"] * count
    for values, role in (
        (drawing.used, "used"),
        (drawing.reserved, "cached"),
        (drawing.allocated, "swing"),
    ):
        value = values[column]
        if value is not None:
            _fill(slots, value[1], drawing.top_bytes, role)
    value = drawing.allocated[column]
    if value is not None:
        _fill(slots, value[0], drawing.top_bytes, "allocated")
    return slots


def _fill(slots: list[str], size: int, top: int, role: str) -> None:
    filled = min(len(slots), round(max(0, size) * len(slots) / top))
    if size > 0 and filled == 0:
        filled = 1
    slots[:filled] = [role] * filled


def draw(drawing: Plot, state: RunState, rows: int, *, textured: bool) -> list[Line]:
    """``rows`` rows of plot with the axis below them as the last one.

    ``textured`` draws whole cells in the textures of the terms, for terminals without
    colour; otherwise cells are split in eighths by colour.
    """
    height = max(1, rows - 1)
    grid: list[list[Span]] = [[] for _ in range(height)]
    for column in range(drawing.view.columns):
        if column >= drawing.until:
            cells = [Span(" ")] * height
        elif all(v[column] is None for v in (drawing.used, drawing.reserved, drawing.allocated)):
            cells = [Span("┄", "dim"), *[Span(" ")] * (height - 1)]
        else:
            slots = _slots(drawing, column, height * 8)
            cells = [_cell(slots[r * 8 : r * 8 + 8], textured) for r in range(height)]
        for row, cell in enumerate(cells):
            grid[row].append(cell)
    lines = []
    for row in reversed(range(height)):
        label = _label(row, height, drawing.top_bytes)
        lines.append((Span(f"{label} ", "dim"), *_runs(grid[row])))
    lines.append(_axis(drawing, state))
    return lines[-rows:]


def _label(row: int, height: int, top: int) -> str:
    """The axis label of a row, for the level of its upper edge: at the top, and in the middle."""
    if row == height - 1:
        return right(units.format_gib(top, precision=1), _GUTTER - 2) + "┤"
    if height >= 4 and row == (height + 1) // 2 - 1:
        return right(units.format_gib(round(top * (row + 1) / height), precision=1), _GUTTER - 2) + "┤"
    return " " * (_GUTTER - 2) + "│"


def _cell(slots: list[str], textured: bool) -> Span:
    bottom, top = slots[0], slots[7]
    if textured:
        # The fuller half decides; what is thin still shows where nothing else does.
        role = max(dict.fromkeys(slots), key=slots.count)
        role = "allocated" if role == "swing" else role
        return Span(" " if role == "text" else TEXTURE[role], role)
    if bottom == top:
        return Span(" ") if bottom == "text" else Span("█", bottom)
    split = next(i for i, role in enumerate(slots) if role != bottom)
    if slots[split] != top:
        # Three levels meet in one cell: the middle one goes to whichever neighbour leaves it visible.
        bottom, split = (slots[split], slots.index(top)) if split < 3 else (bottom, split)
    return Span(EIGHTHS[split], bottom if top == "text" else f"{bottom}/{top}")


def _runs(cells: Sequence[Span]) -> list[Span]:
    """Neighbours of one role joined."""
    runs: list[Span] = []
    for cell in cells:
        if runs and runs[-1].role == cell.role:
            runs[-1] = Span(runs[-1].text + cell.text, cell.role)
        else:
            runs.append(cell)
    return runs


def _axis(drawing: Plot, state: RunState) -> Line:
    """Zero, ticks with their time of day, and marks of events."""
    view = drawing.view
    seconds = view.column_ns < 60 * SECOND_NS
    size = 8 if seconds else 5
    every = -(-(size + 6) // 5) * 5
    cells = [Span("─", "rule")] * view.columns
    marks = {column: role for column, role in drawing.marks.items() if 0 <= column < view.columns}
    for column in range(0, view.columns - size, every):
        moment = present.wall_clock(state.facts, view.start_ns + column * view.column_ns, seconds=seconds)
        cells[column] = Span("┴", "rule")
        if not marks.keys() & set(range(column + 1, column + 1 + size)):
            cells[column + 1 : column + 1 + size] = [Span(char, "dim") for char in moment]
    for column, role in marks.items():
        cells[column] = Span("▲", role)
    return (Span("0".rjust(_GUTTER - 2) + "└ ", "dim"), *_runs(cells))


def legend(device: DeviceState) -> Line:
    """What the levels are, with the glyphs in which they are drawn."""
    spans: list[Span] = []
    for name, role in reversed(LEVELS):
        several = "Σ " if role != "used" and len(device.curves) > 1 else ""
        spans += [Span(TEXTURE[role], role), Span(f" {several}{name}  ", "dim")]
    total, _ = present.device_total(device)
    spans.append(Span("GiB, no total known" if total is None else "GiB, top is total", "dim"))
    return tuple(spans)


def span_name(span_s: int) -> str:
    """``last 5 min`` or ``whole run``."""
    return (
        f"last {units.format_seconds(span_s).replace(' 0 s', '').replace(' 00 min', '')}"
        if span_s
        else "whole run"
    )


def chart(
    device: DeviceState, state: RunState, cells: int, rows: int, *, span_s: int, textured: bool = False
) -> list[Line]:
    """The whole panel in exactly ``rows`` lines of ``cells`` cells: title with legend, plot, axis."""
    if rows <= 0 or cells <= 0:
        return []
    card = present.device_title(device) if cells >= 110 else f"GPU {device.index}"
    young = state.now_ns - state.facts.started_ns < span_s * SECOND_NS
    name = f" {card}  {span_name(0 if young else span_s)} "
    key = () if cells < 78 else (Span(" "), *legend(device))
    title = ends((Span("──", "rule"), Span(name, "title")), key, cells, "─")
    if rows == 1 or cells < _GUTTER + 4:
        return [fit(title, cells), *[fit((), cells)] * (rows - 1)]
    body = draw(plot(device, state, cells, span_s), state, rows - 1, textured=textured)
    return [fit(line, cells) for line in (title, *body)]

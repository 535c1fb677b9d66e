"""A device's memory over time as rows of characters: levels, phases under them, an axis with its events.

Levels stand from zero on one scale (allocated before reserved before device used),
they are not stacked. A column without a reading stays empty and is marked; nothing is
interpolated. Three styles: blocks in colour, lines in braille, textures without colour.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gpumem_tui import units
from gpumem_tui.analysis.state import Band, Curve, DeviceState, RunState, Severity
from gpumem_tui.views import bands, curves, present, strokes
from gpumem_tui.views.axis import axis
from gpumem_tui.views.curves import Column, add_curves, columns, driver_share_bytes, less
from gpumem_tui.views.text import SWATCH, Line, Span, clean, ends, fit, right
from gpumem_tui.views.timeline import SECOND_NS, Timeline, Window, length, span_name

STYLES = ("block", "braille", "texture")
"""How levels may be drawn; a key steps through them."""

GUTTER = 8
"""Cells left of the plot."""

LEVELS = (("device used", "used"), ("reserved", "cached"), ("allocated", "allocated"))
"""What is drawn, from the back to the front: (name on screen, role)."""

_UNSURE_NS = 10_000_000_000
"""How long before the last moment something may still become known."""

_LEAST_ROWS = 3
"""Rows of plot that phases leave to it."""


class BandRow(NamedTuple):
    """The phases of one rank over time."""

    label: str
    words: list[str]


class Plot(msgspec.Struct, frozen=True):
    """Everything a chart draws, before it is characters."""

    device: int
    pids: tuple[int, ...]
    share_bytes: int
    """Of the driver itself, which is not in ``used``."""
    until_ns: int
    view: Window
    fine: Window
    """The same time in columns half as wide, for braille."""
    until: int
    """Number of columns that have begun."""
    top_bytes: int
    whole: bool
    """Whether the plot goes up to all that the card has."""
    used: list[Column | None]
    reserved: list[Column | None]
    allocated: list[Column | None]
    marks: dict[int, str]
    """Columns with events worth a mark, and the role of the mark."""
    cursor: int | None
    """The column of the cursor."""
    unread: int
    """Number of columns of which nothing has been read yet: neither levels nor gaps."""
    rows: list[BandRow]


def plot(
    device: DeviceState,
    state: RunState,
    view: Window,
    *,
    until_ns: int,
    cursor_ns: int | None,
    style: str,
    latest: RunState,
    before: Plot | None = None,
    close: bool = False,
) -> Plot:
    """The chart of one device over a window; ``until_ns`` is the last moment that there is to see.

    ``close``: of a card that stays nearly empty, only as much as its levels need.

    Marks are also those of the latest picture, for they may lie after the cursor. Of the chart
    ``before`` over the same window, only columns that may have changed are made anew.
    """
    scale = 2 if style == "braille" else 1
    fine = Window(view.start_ns, view.column_ns // scale, view.columns * scale)
    unread = 0 if state.unread_before_ns is None else max(0, view.column_of(state.unread_before_ns))
    pids = tuple(curve.pid for curve in device.curves)
    kept, share = 0, driver_share_bytes(device)
    if before is not None and before.fine == fine and cursor_ns is None and before.cursor is None:
        now = (device.index, pids, unread, share)
        same = (before.device, before.pids, before.unread, before.share_bytes) == now
        kept = max(0, view.column_of(before.until_ns - _UNSURE_NS)) if same else 0
    rest = Window(fine.start_ns + kept * view.column_ns, fine.column_ns, fine.columns - kept * scale)

    def of(several: Sequence[Curve], name: str) -> list[Column | None]:
        known = [] if before is None else getattr(before, name)[: kept * scale]
        if not several:
            return [*known, *[None] * rest.columns]
        return [*known, *add_curves([columns(getattr(curve, name), rest, until_ns) for curve in several])]

    known = [] if before is None else before.used[: kept * scale]
    used = [*known, *(less(column, share) for column in columns(device.driver_used, rest, until_ns))]
    reserved, allocated = of(device.curves, "reserved"), of(device.curves, "allocated")
    whole, _ = present.device_total(device)
    highest = max((c[1] for c in (*used, *reserved, *allocated) if c is not None), default=0)
    top = highest if whole is None else _nearer(whole, highest) if close else whole
    marks: dict[int, str] = {}
    for event in (*latest.events, *latest.marked, *(state.marked if state is not latest else ())):
        column = view.column_of(event.t_ns)
        if event.severity is not Severity.INFO and event.device in (None, device.index):
            marks[column] = "failure" if "failure" in (event.severity.value, marks.get(column)) else "warning"
    for failure in latest.failures:
        if failure.device is None or latest.devices[failure.device].index == device.index:
            marks[view.column_of(failure.t_ns)] = "failure"
    cursor = None if cursor_ns is None else view.column_of(cursor_ns)
    return Plot(
        device=device.index,
        pids=pids,
        share_bytes=share,
        until_ns=until_ns,
        view=view,
        fine=fine,
        until=min(view.columns, view.column_of(until_ns) + 1),
        top_bytes=max(1, top),
        whole=whole is None or top == whole,
        used=used,
        reserved=reserved,
        allocated=allocated,
        marks=marks,
        cursor=cursor if cursor is not None and 0 <= cursor < view.columns else None,
        unread=unread,
        rows=[
            _band_row(
                curve,
                state.bands,
                Window(rest.start_ns, view.column_ns, view.columns - kept),
                until_ns,
                before.rows[number].words[:kept] if before is not None and kept else [],
            )
            for number, curve in enumerate(device.curves)
        ],
    )


_NEARER = 4
"""A chart of a card that stays nearly empty shows so small a part of it, or that part of that part …"""

_FULL = 0.9
"""… as its levels do not fill by more than this."""


def _nearer(whole: int, highest: int) -> int:
    top = whole
    while highest and highest <= top / _NEARER * _FULL:
        top //= _NEARER
    return top


def _band_row(
    curve: Curve, all_bands: Sequence[Band], rest: Window, until_ns: int, known: list[str]
) -> BandRow:
    mine = [
        band
        for band in all_bands
        if band.pid == curve.pid and (band.until_ns is None or band.until_ns >= rest.start_ns)
    ]
    name = present.rank_name(curve.rank, curve.pid)
    words = [*known, *bands.words(mine, rest, until_ns)]
    return BandRow(name if len(name) < GUTTER else str(curve.pid), words)


def draw(
    drawing: Plot, state: RunState, rows: int, *, style: str, live: bool, known: strokes.Rows
) -> list[Line]:
    """``rows`` rows: the plot, phases below it as far as there is room, the axis as the last one.

    ``known`` is of the charts that were drawn before.
    """
    shown = drawing.rows[: max(0, rows - 1 - _LEAST_ROWS)]
    shown = [row for row in shown if any(row.words)]
    height = max(1, rows - 1 - len(shown))
    braille = style == "braille"
    columns = strokes.braille(drawing, height) if braille else strokes.blocks(drawing, height, style)
    strokes.say(columns, min(drawing.unread, drawing.until), "still being read")
    if drawing.cursor is not None:
        strokes.cross(columns, drawing.cursor)
    grid = known.joined(columns, max(drawing.until, (drawing.cursor or 0) + 1))
    if height > 1 and drawing.whole:
        top = [column[-1] for column in columns]
        strokes.limit(top, drawing.until)
        grid[-1] = strokes.runs(top)
    lines: list[Line] = []
    for row in reversed(range(height)):
        label = "0".rjust(GUTTER - 2) + "└" if shown and not row else _label(row, height, drawing.top_bytes)
        lines.append((Span(f"{label} ", "dim"), *grid[row]))
    for each in shown:
        words = bands.row(each.words, textured=style == "texture")
        lines.append((Span(f"{right(each.label, GUTTER - 1)} ", "dim"), *words))
    named = axis(drawing.view, drawing.until, drawing.marks, drawing.cursor, state.facts, live=live)
    zero = " " * GUTTER if shown else "0".rjust(GUTTER - 2) + "└ "
    lines.append((Span(zero, "dim"), *named))
    return lines[-rows:]


def _label(row: int, height: int, top: int) -> str:
    """The axis label of a row: of even parts of the scale, the one that lies in it, up to its upper edge."""
    parts = 1 if height < 4 else 2 if height < 12 else 4
    for part in range(1, parts + 1):
        if row + 1 == -(-height * part // parts):
            precision = 1 if top >= 4 * units.GIB else 2 if top >= units.GIB else 3
            return right(units.format_gib(round(top * part / parts), precision=precision), GUTTER - 2) + "┤"
    return " " * (GUTTER - 2) + "│"


def legend(device: DeviceState, *, swing: bool = False) -> Line:
    """What the levels are, with the glyphs in which they are drawn; ``swing``: as blocks in colour."""
    spans: list[Span] = []
    for name, role in reversed(LEVELS):
        several = "Σ " if role != "used" and len(device.curves) > 1 else ""
        spans += [Span(SWATCH[role], role), Span(f" {several}{name}  ", "dim")]
        if swing and role == "allocated":
            spans += [Span(SWATCH[role], "swing"), Span(" its highs  ", "dim")]
    total, _ = present.device_total(device)
    spans.append(Span("GiB, no total known" if total is None else "GiB", "dim"))
    return tuple(spans)


def readout(device: DeviceState, state: RunState, t_ns: int, *, names: bool) -> Line:
    """The levels at one moment, as exactly as they are kept, and what the rank was doing."""
    spans: list[Span] = []
    for name, role in reversed(LEVELS):
        if role == "used":
            values = [less(curves.at(device.driver_used, t_ns), driver_share_bytes(device))]
        else:
            values = [curves.at(getattr(curve, name), t_ns) for curve in device.curves]
        figure = _figure(values)
        spans += [Span(f" {SWATCH[role]}", role), Span(f" {name}" if names else "", "dim")]
        spans.append(Span(f" {figure}", "missing" if figure == "—" else "strong"))
    spans.append(Span(" GiB ", "dim"))
    pids = {curve.pid for curve in device.curves}
    for rank in state.ranks:
        if rank.pid in pids:
            phase = " › ".join(clean(span.phase) for span in rank.spans)
            step = "" if rank.step is None else f"step {rank.step}"
            spans.append(Span(" " + ", ".join(word for word in (phase, step) if word), "phase"))
            break
    return tuple(spans)


def _figure(values: Sequence[Column | None]) -> str:
    """One figure; a range where the moment lies in a folded point of one curve."""
    if not values or any(value is None for value in values):
        return "—"
    known = [value for value in values if value is not None]
    if len(known) == 1 and known[0][0] != known[0][1]:
        return f"{units.format_gib(known[0][0])}…{units.format_gib(known[0][1])}"
    return units.format_gib(sum(value[2] for value in known))


class Sheet:
    """One chart that is drawn again and again: what cannot have changed is not made anew."""

    def __init__(self) -> None:
        self._before: Plot | None = None
        self._rows = strokes.Rows()

    def draw(
        self,
        device: DeviceState,
        state: RunState,
        cells: int,
        rows: int,
        *,
        timeline: Timeline,
        style: str = "block",
        latest: RunState | None = None,
    ) -> list[Line]:
        """The whole panel in exactly ``rows`` lines of ``cells`` cells: title, plot, phases, axis.

        ``state`` is the picture at the cursor, ``latest`` that of now where it is another one.
        """
        if rows <= 0 or cells <= 0:
            return []
        view = timeline.window(cells - GUTTER)
        card = present.device_title(device) if cells >= 110 else f"GPU {device.index}"
        cursor_ns = timeline.cursor_ns
        if cursor_ns is None:
            young = timeline.latest_ns - timeline.started_ns < timeline.span_s * SECOND_NS
            name = f" {card}  {span_name(0 if young else timeline.span_s)} "
            key = () if cells < 78 else (Span(" "), *legend(device, swing=style == "block" and cells >= 100))
        else:
            shown = length(timeline.span_s) if timeline.span_s else span_name(0)
            name = f" {card}  {shown} " if cells >= 100 else f" GPU {device.index} "
            key = readout(device, state, cursor_ns, names=cells >= 100)
        title = ends((Span("──", "rule"), Span(name, "title")), key, cells, "─")
        if rows == 1 or cells < GUTTER + 4:
            return [fit(title, cells), *[fit((), cells)] * (rows - 1)]
        drawing = plot(
            device,
            state,
            view,
            until_ns=timeline.until_ns,
            cursor_ns=cursor_ns,
            style=style,
            latest=latest or state,
            before=self._before,
            close=True,
        )
        self._before = drawing
        if not drawing.whole:
            name = f"{name[:-1]}, to {units.format_bytes(drawing.top_bytes)} "
            title = ends((Span("──", "rule"), Span(name, "title")), key, cells, "─")
        live = cursor_ns is None and state.facts.ended_ns is None
        body = draw(drawing, state, rows - 1, style=style, live=live, known=self._rows)
        return [fit(line, cells) for line in (title, *body)]


def chart(
    device: DeviceState,
    state: RunState,
    cells: int,
    rows: int,
    *,
    timeline: Timeline,
    style: str = "block",
) -> list[Line]:
    """One chart, drawn once."""
    return Sheet().draw(device, state, cells, rows, timeline=timeline, style=style)

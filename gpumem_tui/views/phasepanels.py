"""Phases, composition and inputs as lines of given width, for the live view and plain text alike.

Owns which columns of the phase table fit and which are left out; refuses wording (``phases``).
"""

from collections.abc import Sequence
from typing import NamedTuple

from gpumem_tui import units
from gpumem_tui.analysis.state import RunState
from gpumem_tui.views import phases
from gpumem_tui.views.bar import bar
from gpumem_tui.views.panels import term_rows
from gpumem_tui.views.phases import PhaseView, SpreadView
from gpumem_tui.views.text import Line, Span, fit, left, right, width

_FIGURE = 6
"""Least cells of a figure's column, so that the table does not move as figures grow."""

_SHORT = {"allocated": "alloc", "reserved": "resv"}

_COUNTERS = ("allocated", "reserved")

_PHASE = 16
_NAME = 24
"""Most cells of a phase and of a name; longer ones are cut."""


class Column(NamedTuple):
    """A column of the phase table."""

    key: str
    """A field of :class:`PhaseView`."""
    head: str
    role: str
    group: str = ""
    """``allocated`` or ``reserved``: the counter that it belongs to."""
    told: str = ""
    """How it is called where it is left out."""


COLUMNS = (
    Column("rank", "rank", "strong", told="rank"),
    Column("phase", "phase", "phase"),
    Column("name", "name", "dim", told="name"),
    Column("device", "GPU", "text", told="GPU"),
    Column("kind", "", "dim"),
    Column("count", "n", "text", told="n"),
    Column("start_allocated", "start", "text", "allocated", "allocated start"),
    Column("peak_allocated", "peak", "strong", "allocated"),
    Column("end_allocated", "end", "text", "allocated", "allocated end"),
    Column("start_reserved", "start", "text", "reserved", "reserved start"),
    Column("peak_reserved", "peak", "strong", "reserved", "reserved peak"),
    Column("end_reserved", "end", "text", "reserved", "reserved end"),
    Column("median", "median", "text", told="median"),
    Column("growth", "growth", "warning", told="growth"),
    Column("errors", "err", "failure", told="errors"),
)

_DROPPED = (
    "name", "start_allocated", "start_reserved", "end_reserved", "median", "end_allocated",
    "device", "count", "rank", "growth", "peak_reserved", "errors",
)  # fmt: skip
"""What gives way in a narrow terminal, in this order."""


class Table(NamedTuple):
    """The phase table for one width."""

    head: list[Line]
    rows: list[Line]
    dropped: str
    """What found no room; empty if everything did."""


def phase_table(state: RunState, cells: int, order: str = phases.ORDERS[0]) -> Table:
    """Finished spans by rank, phase and device, or in another order; columns give way until it fits."""
    views = phases.phase_views(state, order)
    if not views:
        return Table([], [fit((Span("   no phase has ended yet", "dim"),), cells)], "")
    kept, dropped = fitted_columns(views, cells)
    widths = [_column_width(column, views) for column in kept]
    heads = [
        Span(f" {_aligned(column, column.head, size)}", "dim")
        for column, size in zip(kept, widths, strict=True)
    ]
    rows = [fit(_row(view, kept, widths), cells) for view in views]
    rows += [fit((Span(f" {text}", "remark"),), cells) for text in phases.phase_remarks(state)]
    return Table([fit(_groups(kept, widths), cells), fit(heads, cells)], rows, ", ".join(dropped))


_REMARK = 26
"""Cells of a heading that its rule and how many rows are out of view may take."""


def titled(title: str, dropped: str, cells: int) -> str:
    """A heading of a table that says which of its columns have no room: their names, else how many."""
    if not dropped:
        return title
    named = f"{title}; no room for {dropped}"
    if width(named) + _REMARK <= cells:
        return named
    count = dropped.count(", ") + 1
    return f"{title}; no room for {count} column{'s' if count > 1 else ''}"


def whole_width(state: RunState) -> int:
    """Cells of the phase table, and of the ranks compared, with everything in them."""
    views, compared = phases.phase_views(state), phases.spread_views(state)
    table = sum(1 + _column_width(column, views) for column in _told_of(views)) if views else 0
    return max(table, 7 + _spread_label(compared) + 2 * _spread_column(compared) if compared else 0)


def _told_of(views: Sequence[PhaseView]) -> list[Column]:
    """The columns that have something to tell."""
    return [
        c
        for c in COLUMNS
        if c.key not in ("errors", "name", "growth") or any(getattr(v, c.key) for v in views)
    ]


def fitted_columns(views: Sequence[PhaseView], cells: int) -> tuple[list[Column], list[str]]:
    """The columns that fit, and the names of those that do not.

    An empty column is not shown at all; of a single process, which it is gives way first.
    """
    kept = _told_of(views)
    order = list(_DROPPED)
    if _names_tell_apart(views):
        order.insert(order.index("device"), order.pop(order.index("name")))
    if len({view.rank for view in views}) == 1:
        order.insert(0, order.pop(order.index("rank")))
    dropped = []
    while order and sum(1 + _column_width(column, views) for column in kept) > cells:
        key = order.pop(0)
        gone = next((column for column in kept if column.key == key), None)
        if gone is not None:
            kept.remove(gone)
            dropped.append(gone.told)
    return kept, dropped


def _names_tell_apart(views: Sequence[PhaseView]) -> bool:
    """Whether rows would look the same without their names: two optimizers, say."""
    return len({(v.rank, v.phase, v.device, v.kind) for v in views}) < len(views)


def _column_width(column: Column, views: Sequence[PhaseView]) -> int:
    size = max(width(column.head), *(width(getattr(view, column.key)) for view in views))
    if column.group or column.key == "median":
        return max(_FIGURE, size)
    most = {"phase": _PHASE, "name": _NAME}.get(column.key, size)
    return min(size, most)


def _aligned(column: Column, text: str, size: int) -> str:
    numeric = bool(column.group) or column.key in ("count", "median", "errors", "growth")
    return right(text, size) if numeric else left(text, size)


def _groups(kept: Sequence[Column], widths: Sequence[int]) -> Line:
    """The line above the head: which columns are of which counter."""
    spans: list[Span] = []
    group, room = "", 0

    def close() -> None:
        if group:
            label = next((text for text in (f"{group} GiB", group, _SHORT[group]) if len(text) < room), "")
            spans.append(Span(label.rjust(room), "dim"))
        elif room:
            spans.append(Span(" " * room))

    for column, size in zip(kept, widths, strict=True):
        if column.group != group:
            close()
            group, room = column.group, 0
        room += size + 1
    close()
    return tuple(spans)


def _row(view: PhaseView, kept: Sequence[Column], widths: Sequence[int]) -> Line:
    spans = []
    for column, size in zip(kept, widths, strict=True):
        text = getattr(view, column.key)
        role = "missing" if text == units.MISSING else column.role
        if column.key == "kind" and text == "cold":
            role = "remark"
        spans.append(Span(f" {_aligned(column, text, size)}", role))
    return tuple(spans)


def spread_lines(state: RunState, cells: int) -> list[Line]:
    """The ranks compared: a line for each phase that several have finished; reserved where there is room."""
    views = phases.spread_views(state)
    if not views:
        return []
    label, one = _spread_label(views), _spread_column(views)
    counters = list(_COUNTERS)
    if 1 + label + 6 + 2 * one > cells:
        counters.pop()
    head = [Span(" " * (1 + label + 6))]
    below = [Span(" " * (1 + label + 6))]
    for counter in counters:
        head.append(Span(left(f"peak {counter} GiB", one), "dim"))
        below += [Span(left(f"{right(word, _FIGURE)} rank", one // 2), "dim") for word in ("most", "least")]
    lines = [fit(head, cells), fit(below, cells)]
    for view in views:
        spans = [Span(f" {left(view.phase, label)} ", "phase"), Span(left(view.kind, 5), "dim")]
        for counter in counters:
            for word in ("most", "least"):
                figure, who = getattr(view, f"{word}_{counter}"), getattr(view, f"{word}_{counter}_by")
                spans.append(Span(right(figure, _FIGURE), "strong" if word == "most" else "text"))
                spans.append(Span(left(f" {who}", one // 2 - _FIGURE), "dim"))
        lines.append(fit(spans, cells))
    return lines


def _spread_label(views: Sequence[SpreadView]) -> int:
    return min(_PHASE + 8, max(width(view.phase) for view in views))


def _spread_column(views: Sequence[SpreadView]) -> int:
    """Cells of most and least of one counter, with their ranks."""
    by = (getattr(v, f"{n}_{c}_by") for v in views for n in ("most", "least") for c in _COUNTERS)
    return 2 * (_FIGURE + 1 + max(4, *map(width, by)) + 2)


def current_lines(state: RunState, cells: int) -> list[Line]:
    """One line for each rank: its step, and the phases that it is in."""
    views = phases.current_views(state)
    if not views:
        waiting = "no process of this run has used PyTorch yet" if state.facts.ended_ns is None else "none"
        return [fit((Span(f"   {waiting}", "dim"),), cells)]
    title, step, speed = (max(width(getattr(v, key)) for v in views) for key in ("title", "step", "speed"))
    lines = []
    for view in views:
        spans = [Span(f"   {left(view.title, title)}  ", "strong")]
        if step:
            spans.append(Span(f"{left(view.step, step)}  "))
        if speed:
            spans.append(Span(f"{right(view.speed, speed)}  ", "dim"))
        spans.append(Span(view.phase, view.role if view.role != "text" else "phase"))
        if view.note:
            spans.append(Span(f"{'  ' if view.phase else ''}{view.note}", view.role))
        lines.append(fit(spans, cells))
    return lines


def composition_lines(state: RunState, cells: int, *, airy: bool = False) -> list[Line]:
    """For each rank and device: a title, the bar, its parts; nothing where nobody has looked.

    ``airy``: with a blank row below each bar.
    """
    lines: list[Line] = []
    for view in phases.composition_views(state):
        parts = [(part.key, part.bytes) for part in view.parts]
        lines.append(fit((Span(f" {view.title}"),), cells))
        lines.append(fit((Span(" "), *bar(parts, view.allocated_bytes, cells - 2)), cells))
        lines += [fit((), cells)] * airy
        lines += term_rows(view.parts, cells)
        if view.note:
            lines.append(fit((Span(f"   {view.note}", "remark"),), cells))
    return lines


def input_lines(state: RunState, cells: int) -> list[Line]:
    """One line for each kind of input of a root module; nothing where none was seen."""
    views = phases.input_views(state)
    if not views:
        return []
    rank, phase, count = (max(width(getattr(v, key)) for v in views) for key in ("rank", "phase", "count"))
    return [
        fit(
            (
                Span(f"   {left(view.rank, rank)}  ", "strong"),
                Span(f"{left(view.phase, min(phase, _NAME + 8))}  ", "phase"),
                Span(f"{right(view.count, count)}  "),
                Span(view.input, "dim"),
            ),
            cells,
        )
        for view in views
    ]

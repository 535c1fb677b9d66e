"""The driver's view as lines of given width: cards as rows or as a grid, remarks, processes.

The same lines are drawn by the live view and printed as text. Owns which columns there
are at which width; wording is ``toprows``'s.
"""

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from gpumem_tui import units
from gpumem_tui.analysis.family import Branch
from gpumem_tui.analysis.ledger import Term
from gpumem_tui.analysis.top import TopDevice, TopProcess, TopState, nobodys_bytes
from gpumem_tui.views import toprows
from gpumem_tui.views.bar import bar
from gpumem_tui.views.text import (
    SWATCH,
    Line,
    Span,
    brief_command,
    clean,
    ends,
    fit,
    left,
    plain,
    right,
    width,
)

NAMED_CELLS = 132
"""From this width on each card's name stands in its row; below it, in the header if all have the same."""

GRIDS = (38, 19)
"""Narrowest columns of the grid of cards: with a bar, and with figures alone."""


class Column(NamedTuple):
    """One column of a table."""

    title: str
    cells: int
    least: int
    """Width of the screen from which on it is shown."""


_DEVICE = (
    Column("used", 8, 0),
    Column("total", 8, 0),
    Column("free", 8, 60),
    Column("driver", 7, 92),
    Column("nobody", 8, 104),
    Column("load", 6, 50),
    Column("°C", 4, 76),
    Column("W", 5, 84),
    Column("MHz", 6, 112),
    Column("procs", 6, 66),
)
_PROCESS = (
    Column("GPU", 4, 0),
    Column("pid", 9, 0),
    Column("user", 11, 44),
    Column("memory", 10, 0),
    Column("change", 10, 72),
    Column("host", 9, 110),
    Column("started", 7, 96),
    Column("type", 4, 124),
    Column("where", 18, 140),
)

LONGEST_REASON = 18
"""Cells that the reason for a process's missing figure gets at most."""

_NUMERIC = ("pid", "memory", "change", "host")


def header(state: TopState, cells: int, *, dated: bool = False) -> Line:
    """The first line: which machine, when if ``dated``, which driver, which cards; SIMULATED at its end."""
    cards = [device for device in state.devices if device.parent is None]
    start = [Span(" top", "strong"), Span(f"  {clean(state.host)}", "text")]
    if dated:
        start.append(Span(time.strftime("  %Y-%m-%d %H:%M:%S", time.localtime(state.wall_ns / 1e9)), "text"))
    if state.driver_version:
        start.append(Span(f"  driver {clean(state.driver_version)}", "dim"))
    told = toprows.driver_sentence(state)
    if told:
        start.append(Span(f"  {told}", "warning"))
    elif state.devices:
        start.append(Span(f"  {len(cards)} {'card' if len(cards) == 1 else 'cards'}", "dim"))
        names = {card.name for card in cards if card.name}
        if len(names) == 1 and cells < NAMED_CELLS:
            start.append(Span(f": {clean(names.pop())}", "dim"))
    if state.simulated is None:
        return fit(start, cells)
    return ends(start, (Span(" SIMULATED ", "badge"),), cells)


# --- cards ----------------------------------------------------------------------------------------


def device_table(
    state: TopState, cells: int, selected: int | None = None
) -> tuple[list[Line], list[list[Line]]]:
    """(head, one block of one line for each card)."""
    columns = [column for column in _DEVICE if cells >= column.least]
    name = max((width(clean(device.name or "")) for device in state.devices), default=0)
    name = min(name, 24) if cells >= NAMED_CELLS else 0
    room = cells - 6 - sum(column.cells for column in columns) - (name + 1 if name else 0)
    head = [Span(" GPU  ", "dim")]
    if name:
        head.append(Span(left("name", name) + " ", "dim"))
    head += _legend(room)
    head += [Span(right(column.title, column.cells), "dim") for column in columns]
    rows, held = [], _by_device(state)
    for device in state.devices:
        mark = "▸" if device.index == selected else " "
        spans = [Span(mark, "focus"), Span(left(device.label, 4), "title"), Span(" ")]
        if name:
            spans.append(Span(left(clean(device.name or units.MISSING), name) + " ", "dim"))
        spans += _bar(device, held.get(device.index, ()), room)
        cells_of = _device_cells(device, len(held.get(device.index, ())))
        spans += [Span(right(cells_of[c.title][0], c.cells), cells_of[c.title][1]) for c in columns]
        rows.append([fit(spans, cells)])
    return [fit(head, cells)], rows


def _by_device(state: TopState) -> dict[int, list[TopProcess]]:
    found: dict[int, list[TopProcess]] = {}
    for process in state.processes:
        found.setdefault(process.device, []).append(process)
    return found


def _legend(room: int) -> list[Span]:
    """What the textures of the bar mean, as far as there is room."""
    spans: list[Span] = []
    used = 0
    for key, word in (("opaque", "our runs"), ("others", "others"), ("driver", "driver"), ("free", "free")):
        size = len(word) + 3
        if used + size > room:
            break
        spans += [Span(SWATCH[key], key), Span(f" {word} ", "dim")]
        used += size
    return [*spans, Span(" " * max(0, room - used))]


def _bar(device: TopDevice, rows: Sequence[TopProcess], cells: int) -> list[Span]:
    if cells <= 0:
        return []
    total = device.ledger.total
    if total.bytes is None:
        return [Span(left(f"— {toprows.reason(total)}", cells), "missing")]
    return list(fit(bar(toprows.bar_parts(device, rows), total.bytes, cells - 1), cells))


def _device_cells(device: TopDevice, count: int) -> dict[str, tuple[str, str]]:
    """Text and role of each column."""
    ledger = device.ledger
    procs = str(count)
    if device.processes_reason is not None:
        procs = f"{count}+" if device.processes_missing else units.MISSING
    nobody = ledger.unattributed
    return {
        "used": _gib(ledger.device_used),
        "total": _gib(ledger.total),
        "free": _gib(ledger.free),
        "driver": _gib(ledger.driver_reserved),
        "nobody": _gib(nobody, loud=nobodys_bytes(device) is not None),
        "load": _number(device.utilization, " %"),
        "°C": _number(device.temperature),
        "W": _number(None if device.power_mw is None else round(device.power_mw / 1000)),
        "MHz": _number(device.clock_mhz),
        "procs": (procs, "missing" if procs == units.MISSING else "text"),
    }


def _gib(term: Term, *, loud: bool = False) -> tuple[str, str]:
    role = "missing" if term.bytes is None else "warning" if loud else "text"
    return units.format_gib(term.bytes), role


def _number(value: int | None, unit: str = "") -> tuple[str, str]:
    return (units.MISSING, "missing") if value is None else (f"{value}{unit}", "text")


def device_grid(state: TopState, cells: int, least: int = GRIDS[0]) -> list[Line]:
    """Many cards, several to a line, each in ``least`` cells or more: index, bar, used of total, load."""
    per_line = max(1, cells // least)
    column = cells // per_line
    words = "GiB used/total load" if column >= GRIDS[0] else "used/total"
    title = fit((Span(" GPU "), Span(right(words, column - 5))), column)
    lines: list[Line] = [fit((Span(plain(title) * per_line, "dim"),), cells)]
    held = _by_device(state)
    for start in range(0, len(state.devices), per_line):
        spans: list[Span] = []
        for device in state.devices[start : start + per_line]:
            spans += fit(_grid_cell(device, held.get(device.index, ()), column), column)
        lines.append(fit(spans, cells))
    return lines


def _grid_cell(device: TopDevice, rows: Sequence[TopProcess], cells: int) -> list[Span]:
    ledger = device.ledger
    figures = f"{units.format_gib(ledger.device_used.bytes)}/{units.format_gib(ledger.total.bytes)}"
    load = units.MISSING if device.utilization is None else f"{device.utilization}%"
    if cells < GRIDS[0]:
        figures = figures if len(figures) <= cells - 5 else units.format_gib(ledger.device_used.bytes)
        role = "missing" if ledger.total.bytes is None else "text"
        return [Span(f" {left(device.label, 4)}", "title"), Span(right(figures, cells - 5), role)]
    room = cells - 5 - 14 - 5 - 1
    role = "missing" if ledger.total.bytes is None else "text"
    return [
        Span(f" {left(device.label, 4)}", "title"),
        *_bar(device, rows, room),
        Span(right(figures, 14), role),
        Span(right(load, 5), "dim"),
    ]


def remark_lines(state: TopState, cells: int) -> list[Line]:
    """What must be known about the cards, a line each; cards of which the same is true share one."""
    alike: dict[tuple[str, str], list[str]] = {}
    for device in state.devices:
        for role, text in toprows.remarks(device):
            alike.setdefault((role, text.partition(": ")[2]), []).append(device.label)
    return [
        fit((Span(f"   GPU {_labels(labels)}: {text}", role),), cells)
        for (role, text), labels in alike.items()
    ]


def _labels(labels: list[str]) -> str:
    return ",".join(labels) if len(labels) < 6 else f"{labels[0]} and {len(labels) - 1} more"


# --- processes ------------------------------------------------------------------------------------


def process_table(
    state: TopState,
    branches: Sequence[Branch],
    cells: int,
    selected: int | None = None,
    *,
    watched: bool = True,
) -> tuple[Line, list[Line]]:
    """(head, one line for each row); ``selected`` is a position. A single picture is not ``watched``."""
    columns = [
        _with_room(c, state.processes) if c.title == "memory" else c
        for c in _PROCESS
        if cells >= c.least and (watched or c.title != "change")
    ]
    used = sum(column.cells + 1 for column in columns) + 1
    head = [Span(" ")]
    for column in columns:
        pad = right if column.title in _NUMERIC else left
        head.append(Span(pad(column.title, column.cells) + " ", "dim"))
    head.append(Span("command", "dim"))
    labels = {device.index: device.label for device in state.devices}
    rows = [
        _branch_row(branch, state, columns, labels, cells, cells - used, position == selected)
        for position, branch in enumerate(branches)
    ]
    return fit(head, cells), rows


def _with_room(memory: Column, processes: Sequence[TopProcess]) -> Column:
    """The column of figures, as wide as the longest reason for a missing one."""
    longest = max((width(_missing(p)) for p in processes if p.used.bytes is None), default=0)
    return memory._replace(cells=max(memory.cells, min(longest, LONGEST_REASON)))


def _missing(process: TopProcess) -> str:
    return f"{units.MISSING} {toprows.reason(process.used)}"


def nothing_line(state: TopState, cells: int) -> Line:
    """Why there is no process to be shown."""
    unread = [device for device in state.devices if device.processes_reason is not None]
    reasons = ", ".join(sorted({d.processes_reason.value for d in unread if d.processes_reason is not None}))
    if not state.complete:
        text = "reading …"
    elif not state.devices:
        text = toprows.driver_sentence(state) or "no card"
    elif len(unread) == len(state.devices):
        text = f"not known: {reasons}"
    elif unread:
        text = f"none; not known of GPU {_labels([device.label for device in unread])}: {reasons}"
    else:
        text = "none"
    return fit((Span(f"   {text}", "dim"),), cells)


def _branch_row(
    branch: Branch,
    state: TopState,
    columns: Sequence[Column],
    labels: dict[int, str],
    cells: int,
    room: int,
    chosen: bool,
) -> Line:
    lead = toprows.lead(branch.lasts)
    launcher, process = branch.launcher, branch.process
    if process is None:
        assert launcher is not None
        known = {"pid": str(launcher.pid), "user": clean(launcher.user)}
        blanks = tuple((known.get(column.title, ""), "dim") for column in columns)
        what = lead + brief_command(launcher.command or launcher.name)
        return _laid_out(tuple(columns), blanks, (what, "dim"), cells, max(0, room), chosen)
    role = "phase" if process.run is not None else "text" if process.mine else "dim"
    if process.zombie or not process.visible:
        role = "warning" if process.zombie else "remark"
    texts = tuple(_process_cell(column.title, process, state, labels) for column in columns)
    return _laid_out(tuple(columns), texts, (lead + toprows.what(process), role), cells, max(0, room), chosen)


@lru_cache(maxsize=1024)
def _laid_out(
    columns: tuple[Column, ...],
    texts: tuple[tuple[str, str], ...],
    what: tuple[str, str],
    cells: int,
    room: int,
    chosen: bool,
) -> Line:
    """A row of texts in their columns; most rows are the same as a second ago."""
    spans = [Span("▸" if chosen else " ", "focus")]
    for column, (text, role) in zip(columns, texts, strict=True):
        pad = right if column.title in _NUMERIC else left
        spans.append(Span(pad(text, column.cells) + " ", role))
    spans.append(Span(left(what[0], room), what[1]))
    return fit(spans, cells)


def _process_cell(
    title: str, process: TopProcess, state: TopState, labels: dict[int, str]
) -> tuple[str, str]:
    own = "strong" if process.mine or process.run is not None else "text"
    if title == "GPU":
        return labels.get(process.device, str(process.device)), "text"
    if title == "pid":
        return str(process.pid), own
    if title == "user":
        return toprows.who(process), own if process.visible else "remark"
    if title == "memory":
        if process.used.bytes is None:
            return _missing(process), "missing"
        return units.format_bytes(process.used.bytes), own
    if title == "change":
        text = toprows.growth(process)
        return text, "warning" if (process.growth_bytes or 0) > 0 else "dim"
    if title == "host":
        return units.format_bytes(process.rss_bytes), "dim"
    if title == "started":
        return toprows.started(process, state), "dim"
    if title == "type":
        return process.kind, "dim"
    return toprows.place(process), "dim"

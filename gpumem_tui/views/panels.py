"""Panels as lines of given width: devices with their ledger, ranks, processes, events, notes.

The same lines are drawn by the live view and printed as plain text. Owns layout in
rows and columns; refuses wording (``present``) and colours (palettes).
"""

from collections.abc import Sequence

from gpumem_tui import units
from gpumem_tui.analysis.state import DeviceState, RunState
from gpumem_tui.views import holders, present
from gpumem_tui.views.bar import bar
from gpumem_tui.views.text import TERMS, TEXTURE, Line, Span, clean, ends, fit, left, line_width, right, width

FULL, COMPACT = "full", "compact"

_FIGURE = 7
"""Cells of a figure in GiB with two decimals, and a space before it."""

_SHORT = dict(zip(TERMS, ("alloc", "cache", "outs", "other", "driv", "unatt", "free"), strict=True))
_LONG = dict(zip(TERMS, ("alloc", "cached", "outside", "others", "driver", "unattr", "free"), strict=True))
_SHORT["opaque"] = _LONG["opaque"] = "used"


def rule(title: str, cells: int, remark: str = "", *, focused: bool = False) -> Line:
    """A heading: its title in a thin line, a remark at its right end."""
    mark = "▸ " if focused else "──"
    start = (Span(mark, "focus" if focused else "rule"), Span(f" {title} ", "title"))
    end = (Span(f" {remark} ", "dim"), Span("──", "rule")) if remark else ()
    return ends(start, end, cells, "─")


def header(state: RunState, cells: int, *, moment: bool = False) -> Line:
    """The first line: which run, how far, where; SIMULATED or RECORDED at its right end.

    With ``moment``, an ended run's ledgers say of when they are, where there is room.
    """
    facts = state.facts
    start = _run(state)
    word = present.badge(facts)
    if moment and moment_fits(state, cells):
        start.append(Span(f"  {present.moment_sentence(facts)}", "remark"))
    elif facts.host:
        start.append(Span(f"  on {clean(facts.host)}", "dim"))
    if not word:
        return (
            ends(start, (Span(clean(" ".join(facts.command)) + " ", "dim"),), cells)
            if cells >= 120
            else (fit(start, cells))
        )
    return ends(start, (Span(f" {word} ", "badge"),), cells)


def moment_fits(state: RunState, cells: int) -> bool:
    """Whether the header has room for the moment that an ended run's ledgers show, and there is one."""
    told = present.moment_sentence(state.facts)
    badge = present.badge(state.facts)
    return bool(told) and line_width(tuple(_run(state))) + width(f"  {told}   {badge} ") <= cells


def _run(state: RunState) -> list[Span]:
    facts = state.facts
    role = "failure" if facts.exit_code not in (None, 0) else present.life_role(facts.life)
    return [Span(f" {clean(facts.run)}", "strong"), Span("  "), Span(present.run_sentence(state), role)]


def devices_full(state: RunState, cells: int, selected: int | None = None) -> list[list[Line]]:
    """Every device as a block of lines: title, bar, terms, remarks."""
    return [device_block(device, state, cells, device.index == selected) for device in state.devices]


def device_block(device: DeviceState, state: RunState, cells: int, selected: bool = False) -> list[Line]:
    """One device: title with usage, the ledger bar, its terms and what must be known about them."""
    terms = present.device_terms(device, state)
    usage = present.device_usage(device)
    mark = Span("▸ ", "focus") if selected else Span("──", "rule")
    title = ends(
        (mark, Span(f" {present.device_title(device)} ", "title")),
        (Span(f" {usage} ", "text"), Span("──", "rule")),
        cells,
        "─",
    )
    total, _ = present.device_total(device)
    figures = [(term.key, term.bytes) for term in terms]
    lines = [title, fit((Span(" "), *bar(figures, total, cells - 2)), cells)]
    lines += term_rows(terms, cells)
    lines += [
        fit((Span(f"   {remark}", "remark"),), cells) for remark in present.device_remarks(device, state)
    ]
    return lines


def term_rows(terms: Sequence[present.TermView], cells: int) -> list[Line]:
    """Glyph, name and figure of every term, in aligned columns: all in one row, or fewer."""
    for per_row in (len(terms), 4, 3, 2, 1):
        names = [max(len(term.label) for term in terms[column::per_row]) for column in range(per_row)]
        if sum(names) + per_row * (_FIGURE + 4) <= cells:
            break
    rows = []
    for start in range(0, len(terms), per_row):
        row: list[Span] = []
        for term, name in zip(terms[start : start + per_row], names, strict=False):
            row += [Span(" "), Span(TEXTURE[term.key], term.key), Span(f" {left(term.label, name)}", "dim")]
            row += [Span(right(term.figure, _FIGURE), _figure_role(term)), Span(" ")]
        if start + per_row >= len(terms):
            row.append(Span(" GiB", "dim"))
        rows.append(fit(row, cells))
    return rows


def _figure_role(term: present.TermView) -> str:
    if term.bytes is None:
        return "missing"
    if term.bytes < 0 or (term.label == "unattributed" and term.bytes):
        return "warning"
    return "text" if term.bytes else "dim"


def devices_compact(state: RunState, cells: int, selected: int | None = None) -> list[list[Line]]:
    """Devices as a table of one row each, with a head that names the terms by glyph."""
    column = 7 if cells < 100 else 9
    names = _SHORT if cells < 100 else _LONG
    keys = _keys(state)
    numbers = column * len(keys)
    room = cells - numbers - 5
    head = [Span(" GPU" if room >= 8 else " GP", "dim")]
    head.append(Span(" " * max(0, room), "dim"))
    head.append(Span(" ", "dim"))
    for key in keys:
        name = names[key]
        head += [Span(" " * (column - 1 - len(name))), Span(TEXTURE[key], key), Span(name, "dim")]
    rows = [_compact_row(device, state, cells, room, column, keys, selected) for device in state.devices]
    return [[fit(head, cells)], *([row] for row in rows)]


def _keys(state: RunState) -> tuple[str, ...]:
    """The terms of the table: those of every card, and *used* where an allocator cannot be read."""
    if not any(share.opaque for device in state.devices for share in device.ledger.ranks):
        return TERMS
    after = TERMS.index("outside") + 1
    return (*TERMS[:after], "opaque", *TERMS[after:])


def _compact_row(
    device: DeviceState,
    state: RunState,
    cells: int,
    room: int,
    column: int,
    keys: Sequence[str],
    selected: int | None,
) -> Line:
    terms = present.device_terms(device, state)
    total, _ = present.device_total(device)
    spans = [
        Span("▸" if device.index == selected else " ", "focus"),
        Span(right(str(device.index), 3) + " ", "title"),
    ]
    if room > 0:
        spans += bar([(term.key, term.bytes) for term in terms], total, room)
    by_key = {term.key: term for term in terms}
    for key in keys:
        if key in by_key:
            spans.append(Span(right(by_key[key].figure, column), _figure_role(by_key[key])))
        else:
            spans.append(Span(" " * column))
    return fit(spans, cells)


def rank_lines(state: RunState, cells: int) -> list[Line]:
    """One line for each rank: where, step, counters, phase, remarks."""
    rows = holders.rank_rows(state)
    if not rows:
        waiting = "no process of this run has used PyTorch yet" if state.facts.ended_ns is None else "none"
        return [fit((Span(f"   {waiting}", "dim"),), cells)]
    name = max(len(row.title) for row in rows)
    step = max(len(row.step) for row in rows)
    speed = max(len(row.speed) for row in rows)
    where = max(len(row.where) for row in rows)
    lines = []
    for row in rows:
        spans = [
            Span(f"   {left(row.title, name)}  ", "strong"),
            Span(f"GPU {left(row.where or '—', where)}  "),
        ]
        if step:
            spans.append(Span(f"{left(row.step, step)}  "))
        if speed and cells >= 100:
            spans.append(Span(f"{right(row.speed, speed)}  ", "dim"))
        if cells >= 60:
            figures = f"{units.format_gib(row.allocated_bytes)} of {units.format_gib(row.reserved_bytes)}"
            spans.append(Span(f"{right(figures, 14)} GiB  ", "text"))
        spans.append(Span(row.phase, row.role if row.role != "text" else "phase"))
        if row.note:
            spans.append(
                Span(f"{'  ' if row.phase else ''}{row.note}", row.role if row.role != "text" else "warning")
            )
        lines.append(fit(spans, cells))
    return lines


def process_lines(state: RunState, cells: int) -> list[Line]:
    """One line for each process on a card: ours by rank, everybody else by user."""
    rows = holders.process_rows(state)
    if not rows:
        why = state.driver_reason.value if state.driver_reason is not None else "none that the driver names"
        return [fit((Span(f"   {why}", "dim"),), cells)]
    who = min(12, max(len(row.who) for row in rows))
    pid = max(len(str(row.pid)) for row in rows)
    lines = []
    for row in rows:
        figure = f"{right(units.format_gib(row.used_bytes), 6)} GiB" if not row.why else f"— ({row.why})"
        lines.append(
            fit(
                (
                    Span(f"   GPU {left(str(row.device), 2)} ", "text"),
                    Span(f"{left(row.who, who)}  ", "strong" if row.ours else "others"),
                    Span(f"{right(str(row.pid), pid)}  ", "dim"),
                    Span(f"{left(figure, 10)}  ", "missing" if row.why else "text"),
                    Span(f"{left(row.growth, 14)}  " if cells >= 62 else "", "warning"),
                    Span(row.command, "dim"),
                ),
                cells,
            )
        )
    return lines


def event_lines(state: RunState, cells: int, *, moment: bool = True) -> list[Line]:
    """Notes on the recording first, then events, the latest on top.

    ``moment``: also of when an ended run's ledgers are, where the header has no room for it.
    """
    lines = [fit((Span(f"   {text}", role),), cells) for role, text in present.run_notes(state)]
    told = present.moment_sentence(state.facts) if moment else ""
    if told:
        lines.append(fit((Span(f"   {told}", "remark"),), cells))
    for event in reversed(state.events):
        at = present.wall_clock(state.facts, event.t_ns)
        spans = (
            Span(f"   {at}  ", "dim"),
            Span(present.event_sentence(event), present.event_role(event)),
        )
        lines.append(fit(spans, cells))
    return lines or [fit((Span("   nothing yet", "dim"),), cells)]

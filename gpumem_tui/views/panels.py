"""Panels as lines of given width: devices with their ledger, ranks, processes, events, notes.

The same lines are drawn by the live view and printed as plain text. Owns layout in
rows and columns; refuses wording (``present``) and colours (palettes).
"""

from collections.abc import Sequence

from gpumem_tui import units
from gpumem_tui.analysis.state import DeviceState, Event, RunState
from gpumem_tui.views import holders, present
from gpumem_tui.views.bar import bar
from gpumem_tui.views.prose import brief
from gpumem_tui.views.text import (
    SWATCH,
    TERMS,
    Line,
    Span,
    clean,
    cut,
    ends,
    fit,
    left,
    line_width,
    right,
    width,
)

FULL, COMPACT = "full", "compact"

_FIGURE = 7
"""Cells of a figure in GiB with two decimals, and a space before it."""

SAME_NS = 1_000_000_000
"""Events that say the same and are no further apart are told once."""

_SHORT = dict(zip(TERMS, ("alloc", "cached", "outs.", "others", "driver", "unatt.", "free"), strict=True))
_LONG = dict(zip(TERMS, ("alloc", "cached", "outside", "others", "driver", "unattr", "free"), strict=True))
_SHORT["opaque"] = _LONG["opaque"] = "used"


def rule(title: str, cells: int, remark: str = "", *, focused: bool = False, key: Line = ()) -> Line:
    """A heading: its title and perhaps a key in a thin line, a remark at its right end."""
    mark = "▸ " if focused else "──"
    named = (Span(f" {title} ", "title"), *((*key, Span(" ")) if key else ()))
    start = (Span(mark, "focus" if focused else "rule"), *named)
    end = (Span(f" {remark} ", "dim"), Span("──", "rule")) if remark else ()
    return ends(start, end, cells, "─")


def header(state: RunState, cells: int, *, moment: bool = False) -> Line:
    """The first line: which run, how far, where; SIMULATED or RECORDED at its right end.

    With ``moment``, an ended run's ledgers say of when they are, where there is room.
    """
    facts = state.facts
    word = present.badge(facts)
    room = cells - (width(word) + 3 if word else 0)
    start = _run(state, room)
    where = f"  on {clean(facts.host)}"
    if moment and moment_fits(state, cells):
        start.append(Span(f"  {present.moment_sentence(facts)}", "remark"))
    elif facts.host and line_width(tuple(start)) + width(where) <= room:
        start.append(Span(where, "dim"))
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
    return bool(told) and line_width(tuple(_run(state, cells))) + width(f"  {told}   {badge} ") <= cells


def _run(state: RunState, cells: int) -> list[Span]:
    """Name and state of a run; how long it took gives way where there is no room."""
    facts = state.facts
    role = "failure" if facts.exit_code not in (None, 0) else present.life_role(facts.life)
    name, sentence = f" {clean(facts.run)}", present.run_sentence(state)
    if width(name) + 2 + width(sentence) > cells:
        sentence = sentence.rpartition(", ")[0] or sentence
    return [Span(name, "strong"), Span("  "), Span(sentence, role)]


def devices_full(
    state: RunState, cells: int, selected: int | None = None, *, airy: bool = False
) -> list[list[Line]]:
    """Every device as a block of lines: title, bar, terms, remarks."""
    return [device_block(each, state, cells, each.index == selected, airy=airy) for each in state.devices]


def device_block(
    device: DeviceState, state: RunState, cells: int, selected: bool = False, *, airy: bool = False
) -> list[Line]:
    """One device: title with usage, the ledger bar, its terms and what must be known about them.

    ``airy``: with a blank row below the bar, that it does not touch the textures of its terms.
    """
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
    lines += [fit((), cells)] * airy
    lines += term_rows(terms, cells)
    lines += [
        fit((Span(f"   {remark}", "remark"),), cells)
        for remark in present.device_remarks(device, state, skew=False)
    ]
    return lines


FULL_SHARE = 0.95
"""Of a card, from which on a word about it is a warning."""


def fullest(devices: Sequence[DeviceState]) -> Span:
    """How full the fullest of some devices is: ``at most 62 % used``; of those whose figures are known."""
    known = []
    for device in devices:
        total, _ = present.device_total(device)
        used = device.ledger.device_used.bytes
        if used is not None and total:
            known.append((used / total, used, total))
    if not known:
        return Span("")
    share, used, total = max(known)
    role = "warning" if share >= FULL_SHARE else "dim"
    return Span(f"at most {units.format_share(used, total)} used", role)


def term_rows(terms: Sequence[present.TermView], cells: int) -> list[Line]:
    """Glyph, name and figure of every term, in aligned columns: all in one row, or fewer."""
    for per_row in (len(terms), *(number for number in (4, 3, 2, 1) if number < len(terms))):
        names = [max(len(term.label) for term in terms[column::per_row]) for column in range(per_row)]
        unit = width(" GiB") if len(terms) % per_row == 0 else 0  # else it has the room of a term
        if sum(names) + per_row * (_FIGURE + 4) + unit <= cells:
            break
    rows = []
    for start in range(0, len(terms), per_row):
        row: list[Span] = []
        for term, name in zip(terms[start : start + per_row], names, strict=False):
            there = "rule" if term.bytes == 0 else term.key  # what is not there does not catch the eye
            row += [Span(" "), Span(SWATCH[term.key], there), Span(f" {left(term.label, name)}", "dim")]
            row += [Span(right(_figure(term), _FIGURE), _figure_role(term)), Span(" ")]
        if start + per_row >= len(terms):
            row.append(Span(" GiB", "dim"))
        rows.append(fit(row, cells))
    return rows


def _figure(term: present.TermView) -> str:
    return f"≈{term.figure}" if term.rough and term.bytes is not None else term.figure


def _figure_role(term: present.TermView) -> str:
    if term.bytes is None:
        return "missing"
    if term.bytes < 0 or (term.label == "unattributed" and term.bytes):
        return "warning"
    return "text" if term.bytes else "dim"


_LEAST_BAR = 8
"""Cells that a bar needs to say anything."""

_GIVE_WAY = ("unattributed", "driver", "outside", "others", "cached")
"""Columns of the table that a narrow terminal has no room for, the first to go first."""


def devices_compact(state: RunState, cells: int, selected: int | None = None) -> list[list[Line]]:
    """Devices as a table of one row each, with a head that names the terms by glyph."""
    column = 8 if cells < 100 else 10
    names = _SHORT if cells < 100 else _LONG
    keys = [*_keys(state)]
    for key in _GIVE_WAY:
        if 5 + column * len(keys) <= cells:
            break
        keys = [each for each in keys if each != key]
    numbers = column * len(keys)
    room = cells - numbers - 5
    room = room if room >= _LEAST_BAR else 0
    head = [Span(" GPU ", "dim"), Span(left("GiB" if room else "", room), "dim")]
    for key in keys:
        name = f" {names[key]}" if column > _FIGURE + 2 else names[key]
        head += [Span(" " * (column - 1 - len(name))), Span(SWATCH[key], key), Span(name, "dim")]
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
    if room:
        spans += bar([(term.key, term.bytes) for term in terms], total, room)
    by_key = {term.key: term for term in terms}
    for key in keys:
        if key in by_key:
            spans.append(Span(right(_figure(by_key[key]), column), _figure_role(by_key[key])))
        else:
            spans.append(Span(" " * column))
    return fit(spans, cells)


RANK_FIGURES = 60
"""Cells from which on a rank's line has its allocated and reserved."""


def rank_lines(state: RunState, cells: int) -> list[Line]:
    """One line for each rank: where, step, counters, phase, remarks."""
    rows = holders.rank_rows(state)
    if not rows:
        waiting = "no process of this run has used PyTorch yet" if state.facts.ended_ns is None else "none"
        return [fit((Span(f"   {waiting}", "dim"),), cells)]
    name = max(len(row.title) for row in rows)
    step = max(len(row.step) for row in rows)
    speed = max(len(row.speed) for row in rows) if cells >= 100 else 0
    where = max(len(row.where) for row in rows)
    several = any(row.several for row in rows)
    note = max(width(row.note) for row in rows)
    figures = cells >= RANK_FIGURES
    whole = (
        12 + name + where + (step + 2) * bool(step) + (20 + 8 * several) * figures + _LEAST_PHASE + 2 + note
    )
    if note and whole > cells:  # a note is worth more than the step, which other screens tell too
        step = 0
    lines = []
    for row in rows:
        spans = [
            Span(f"   {left(row.title, name)}  ", "strong"),
            Span(f"GPU {left(row.where or '—', where)}  "),
        ]
        if step:
            spans.append(Span(f"{left(row.step, step)}  "))
        if speed:
            spans.append(Span(f"{right(row.speed, speed)}  ", "dim"))
        if figures:
            held = f"{units.format_gib(row.allocated_bytes)} of {units.format_gib(row.reserved_bytes)}"
            spans.append(Span(f"{right(held, 14)} GiB  ", "text"))
            if several:
                spans.append(Span("in all  " if row.several else "        ", "dim"))
        spans += _doings(row, cells - line_width(tuple(spans)))
        lines.append(fit(spans, cells))
    return lines


_LEAST_PHASE = 10
"""Cells that a phase is given beside a note; a fixed number, for phases change all the time."""


def _doings(row: holders.RankView, room: int) -> list[Span]:
    """The phase of a rank and what must be known of it; the phase gives way, its outer ones first."""
    note = f"{'  ' if row.phase else ''}{row.note}" if row.note else ""
    room = max(_LEAST_PHASE, room - width(note))
    phase = row.phase if width(row.phase) <= room else cut(row.phase.rpartition(" › ")[2], room)
    spans = [Span(phase, row.role if row.role != "text" else "phase")]
    return [*spans, Span(note, row.role if row.role != "text" else "warning")] if note else spans


def process_lines(state: RunState, cells: int, order: str = holders.ORDERS[0]) -> list[Line]:
    """One line for each process on a card: ours by rank, everybody else by user."""
    rows = holders.process_rows(state, order)
    if not rows:
        why = state.driver_reason.value if state.driver_reason is not None else "none that the driver names"
        return [fit((Span(f"   {why}", "dim"),), cells)]
    who = min(12, max(len(row.who) for row in rows))
    device = max(2, *(len(str(row.device)) for row in rows))
    pid = max(len(str(row.pid)) for row in rows)
    growth = min(14, max(len(row.growth) for row in rows)) if cells >= 62 else 0
    lines = []
    for row in rows:
        figure = f"{right(units.format_gib(row.used_bytes), 6)} GiB" if not row.why else f"— ({row.why})"
        lines.append(
            fit(
                (
                    Span(f"   GPU {left(str(row.device), device)} ", "text"),
                    Span(f"{left(row.who, who)}  ", "strong" if row.ours else "others"),
                    Span(f"{right(str(row.pid), pid)}  ", "dim"),
                    Span(f"{left(figure, 10)}  ", "missing" if row.why else "text"),
                    Span(f"{left(row.growth, growth)}  " if growth else "", "warning"),
                    Span(row.command, "dim"),
                ),
                cells,
            )
        )
    return lines


_LEAST_WORDS = 20
"""Cells that are left to what happened, before how often."""


def event_lines(state: RunState, cells: int, *, moment: bool = True) -> list[Line]:
    """Notes on the recording first, then events, the latest on top.

    ``moment``: also of when an ended run's ledgers are, where the header has no room for it.
    """
    lines = [fit((Span(f"   {text}", role),), cells) for role, text in present.run_notes(state)]
    told = present.moment_sentence(state.facts) if moment else ""
    if told:
        lines.append(fit((Span(f"   {told}", "remark"),), cells))
    for event, times in _told_once(tuple(reversed(state.events))):
        at = present.wall_clock(state.facts, event.t_ns)
        after = f"  {times} ×" if times > 1 else ""
        after += f"  and {event.more:,} more soon after" if event.more else ""
        sentence = present.event_sentence(event)
        room = cells - width(f"   {at}  ") - width(after)
        spans = (
            Span(f"   {at}  ", "dim"),
            Span(brief(sentence, room) if room > _LEAST_WORDS else sentence, present.event_role(event)),
            Span(after, "dim"),
        )
        lines.append(fit(spans, cells))
    if state.earlier_events:
        earlier = f"   {state.earlier_events:,} earlier: go back in time (←, E)"
        lines.append(fit((Span(earlier, "dim"),), cells))
    return lines or [fit((Span("   nothing yet", "dim"),), cells)]


def _told_once(events: Sequence[Event]) -> list[tuple[Event, int]]:
    """Neighbours that say the same within a second, once each, with how often."""
    told: list[tuple[Event, int]] = []
    for event in events:
        if told:
            last, times = told[-1]
            same = present.event_sentence(event) == present.event_sentence(last) and not event.more
            if same and abs(last.t_ns - event.t_ns) < SAME_NS and event.severity is last.severity:
                told[-1] = (last, times + 1)
                continue
        told.append((event, 1))
    return told

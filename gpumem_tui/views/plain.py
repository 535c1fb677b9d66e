"""A run as plain text: what ``attach --once`` and a run without a terminal print.

Every term of every ledger with its source and age, ranks, phases, what allocated is made
of, inputs, processes, latest events. Owns the order of the parts; the parts themselves
are ``panels`` and ``phasepanels``.
"""

from gpumem_tui import units
from gpumem_tui.analysis.ledger import Basis
from gpumem_tui.analysis.state import DeviceState, RunState
from gpumem_tui.views import failurepanels, panels, phasepanels, phases, present
from gpumem_tui.views.bar import bar
from gpumem_tui.views.foresight import foresight_sentences
from gpumem_tui.views.text import TEXTURE, Line, Span, cut, plain, to_ascii

EVENTS = 8
"""How many of the latest events are printed."""


def render(state: RunState, *, cells: int = 80, ascii: bool = False) -> str:
    """The whole picture in lines of at most ``cells`` cells, ending with a newline."""
    cells = max(20, cells)
    lines: list[Line] = [panels.header(state, cells)]
    lines.extend((Span(f" {text}"),) for text in _banner(state))
    lines.extend((Span(f" note: {note}"),) for _, note in present.run_notes(state))
    moment = present.moment_sentence(state.facts)
    if moment:
        lines.append((Span(f" {moment}"),))
    lines += failurepanels.alert_lines(state, cells)
    for device in state.devices:
        lines += [(), *_device(device, state, cells)]
    if not state.devices:
        lines += [(), (Span(" no card is known"),)]
    lines += [(), (Span(" ranks"),), *panels.rank_lines(state, cells)]
    lines += _phases(state, cells)
    lines += [(), (Span(" processes on the cards"),), *panels.process_lines(state, cells)]
    if state.events:
        lines += [(), (Span(" events, the latest last"),)]
        for event in state.events[-EVENTS:]:
            moment = present.wall_clock(state.facts, event.t_ns)
            lines.append((Span(f"   {moment}  {present.event_sentence(event)}"),))
    texts = [cut(plain(line), cells).rstrip() for line in lines]
    return "".join(f"{to_ascii(text) if ascii else text}\n" for text in texts)


def _banner(state: RunState) -> list[str]:
    facts = state.facts
    lines = []
    if facts.simulated is not None:
        lines.append(f"SIMULATED {facts.simulated}: the cards are not real. Assumed sizes:")
        lines += [f"  {assumed}" for assumed in present.assumptions(facts)]
        lines += foresight_sentences(facts.foresight)
    if facts.recorded:
        lines.append("RECORDED: this is a bundled recording, nothing runs")
    return lines


def _device(device: DeviceState, state: RunState, cells: int) -> list[Line]:
    terms = present.device_terms(device, state)
    total, whose = present.device_total(device)
    figures = [(term.key, term.bytes) for term in terms]
    lines: list[Line] = [
        (Span(f" {present.device_title(device)}"), Span(f"  {present.device_usage(device)}")),
        (Span(" "), *bar(figures, total, cells - 2)),
    ]
    for term in terms:
        told = _told(term, state)
        lines.append((Span(f"   {TEXTURE[term.key]} {term.label:<13}{_figure(term)}  {told}".rstrip()),))
    figure = f"{units.format_gib(total):>8} GiB" if total is not None else f"{units.MISSING:>8}    "
    lines.append((Span(f"   = {'total':<13}{figure}  {whose}"),))
    lines += [(Span(f"   {remark}"),) for remark in present.skew_remarks(device.ledger)]
    return lines


def _phases(state: RunState, cells: int) -> list[Line]:
    """The phase table, composition and inputs; each only where there is something."""
    lines: list[Line] = []
    if state.phases:
        table = phasepanels.phase_table(state, cells)
        lines += [(), (Span(" phases"),), *table.head, *table.rows]
        if table.dropped:
            lines.append((Span(f" no room for: {table.dropped}"),))
    compared = phasepanels.spread_lines(state, cells)
    if compared:
        lines += [(), (Span(" ranks compared"),), *compared]
    views = phases.composition_views(state)
    if views:
        lines += [(), (Span(" what allocated is made of"),)]
    for view in views:
        lines.append((Span(f"   {view.title}"),))
        lines += [
            (Span(f"   {TEXTURE[part.key]} {part.label:<16}{_figure(part)}  {_told(part, state)}".rstrip()),)
            for part in view.parts
        ]
        if view.note:
            lines.append((Span(f"   {view.note}"),))
    inputs = phasepanels.input_lines(state, cells)
    if inputs:
        lines += [(), (Span(" inputs of root modules"),), *inputs]
    return lines


def _figure(term: present.TermView) -> str:
    return f"{term.figure:>8}    " if term.missing else f"{term.figure:>8} GiB"


def _told(term: present.TermView, state: RunState) -> str:
    """Age, then why or whence: a reason where there is no figure, otherwise its source."""
    if term.bytes is None:
        return term.note
    age = ""
    if term.age_ns is not None and state.facts.ended_ns is None:
        age = "now" if term.age_ns < 50_000_000 else f"{units.format_seconds(term.age_ns / 1e9)} ago"
    whence = f"= {term.source}" if term.basis is Basis.COMPUTED else term.source
    if term.basis is Basis.ASSUMED:
        whence = f"assumed: {term.source}"
    return f"{age:<11}{whence}{f' ({term.note})' if term.note else ''}"

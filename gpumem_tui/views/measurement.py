"""A measurement as a sheet: one row for each span, allocated and reserved apart."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpumem_tui.analysis.measurement import Span
from gpumem_tui.analysis.state import RunState
from gpumem_tui.units import MISSING, format_bytes, format_seconds
from gpumem_tui.views import present
from gpumem_tui.views.report.sheet import Cell, Column, Item, Sheet, Words, size, table
from gpumem_tui.views.text import clean


def sheet_of(state: RunState, spans: Sequence[Span], asked: Mapping[str, Any]) -> Sheet:
    """What was measured, and what was asked for."""
    facts = state.facts
    where = ", ".join(f"{d.name or 'device'} ({format_bytes(d.ledger.total.bytes)})" for d in state.devices)
    items: list[Item] = [
        Words(f"Measured on {clean(where) or MISSING}, protocol strict."),
        Words(", ".join(f"{name} {value}" for name, value in asked.items() if value not in (None, False))),
    ]
    if facts.exit_code:
        items.append(Words(f"It did not end in order: {facts.ending}.", "failure"))
    if spans:
        items.append(table("Every repeat by itself, in order", _columns(spans), _rows(spans)))
        items.append(
            Words("Peaks are maxima of two counters within a span; they need not have happened together.")
        )
    else:
        items.append(Words("No phase came to its end: nothing was measured.", "warning"))
    if any(span.error for span in spans):
        items.append(Words("≥: reached before the error; what the phase would need is not known from it."))
    items += [Words(f"Assumed: {line}.") for line in present.assumptions(facts)]
    return Sheet(clean(facts.run), present.badge(facts), tuple(items), (), f"recorded as {clean(facts.run)}")


def _columns(spans: Sequence[Span]) -> list[Column]:
    columns = [
        Column("phase"),
        Column("n", right=True),
        Column(""),
        Column("allocated at start", right=True, keep=2),
        Column("peak allocated", right=True),
        Column("allocated at end", right=True, keep=5),
        Column("reserved at start", right=True, keep=1),
        Column("peak reserved", right=True),
        Column("reserved at end", right=True, keep=4),
        Column("took", right=True, keep=6),
    ]
    return [*columns, Column("error")] if any(span.error for span in spans) else columns


def _rows(spans: Sequence[Span]) -> list[list[Cell | str]]:
    failed = any(span.error for span in spans)
    return [_row(span) + ([Cell(span.error or "", role="failure")] if failed else []) for span in spans]


def _row(span: Span) -> list[Cell | str]:
    bound = not span.exact or span.error is not None
    return [
        span.phase,
        str(span.number),
        "cold" if span.cold else "warm",
        size(span.start_allocated_bytes, "not read"),
        size(span.peak_allocated_bytes, bound=bound),
        size(span.end_allocated_bytes),
        size(span.start_reserved_bytes, "not read"),
        size(span.peak_reserved_bytes, bound=bound),
        size(span.end_reserved_bytes),
        format_seconds(span.duration_ns / 1e9),
    ]

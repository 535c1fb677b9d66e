"""Panels of one device: what changed, its ledger with source and age of every term, its share of a run.

The same wording as ``present``; owns columns and their widths. Refuses to compare
moments that were not read: a change is between two readings of one counter.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import msgspec

from gpumem_tui import units
from gpumem_tui.analysis.ledger import Basis
from gpumem_tui.analysis.rankstate import Series
from gpumem_tui.analysis.state import DeviceState, RunState
from gpumem_tui.views import curves, present
from gpumem_tui.views.curves import Column
from gpumem_tui.views.text import SWATCH, Line, Span, clean, fit, left, line_width, right, width

LEVELS = (("allocated", "allocated"), ("reserved", "cached"), ("device used", "used"))
"""Curves whose changes are told: (name, role)."""


_SOURCED = 56
"""Cells from which on a term of the ledger has room for where it comes from."""


def ledger_lines(device: DeviceState, state: RunState, cells: int, *, held: bool = False) -> list[Line]:
    """One line a term: figure, age where it is stale, where it comes from; then the total and remarks.

    ``held``: at a cursor, so that what is fresh is of then and not of now, as it is once a run has ended.
    """
    lines: list[Line] = []
    fresh = "then" if held or state.facts.ended_ns is not None else "now"
    terms = present.device_terms(device, state)
    name = max(width(term.label) for term in terms)
    for term in terms:
        figure = f"{right(term.figure, 8)} GiB" if term.bytes is not None else f"{right('—', 8)}    "
        lines.append(
            fit(
                (
                    Span("   "),
                    Span(SWATCH[term.key], "rule" if term.bytes == 0 else term.key),
                    Span(f" {left(term.label, name)}"),
                    Span(figure, "missing" if term.missing else "strong"),
                    Span(f"  {left(_age(term, fresh), 10)}", "warning" if _is_stale(term) else "dim"),
                    Span(
                        f" {_whence(term)}" if cells >= _SOURCED or term.note else "",
                        "remark" if term.note else "dim",
                    ),
                ),
                cells,
            )
        )
    total, whose = present.device_total(device)
    said = f"{right(units.format_gib(total), 8)} {'GiB' if total is not None else '   '}"
    lines.append(
        fit((Span(f"   = {left('total', name)}"), Span(said), Span(f"  {whose}'s word", "dim")), cells)
    )
    lines += [
        fit((Span(f"   {remark}", "remark"),), cells) for remark in present.device_remarks(device, state)
    ]
    return lines


def _is_stale(term: present.TermView) -> bool:
    return term.age_ns is not None and term.age_ns >= present.STALE_NS


def _age(term: present.TermView, fresh: str) -> str:
    """Nothing ticks while readings are fresh."""
    if term.age_ns is None:
        return ""
    return f"{present.coarse(term.age_ns)} ago" if _is_stale(term) else fresh


def _whence(term: present.TermView) -> str:
    if term.bytes is None:
        return term.note
    kind = {Basis.COMPUTED: "= ", Basis.ASSUMED: "assumed: "}.get(term.basis, "")
    return f"{kind}{term.source}{f' ({term.note})' if term.note else ''}"


def change_lines(device: DeviceState, state: RunState, since_ns: int, now_ns: int, cells: int) -> list[Line]:
    """What each level was and is, between what it moved, and which processes grew or came."""
    lines: list[Line] = []
    for name, role in LEVELS:
        series = [device.driver_used] if role == "used" else [getattr(each, name) for each in device.curves]
        share = curves.driver_share_bytes(device) if role == "used" else 0
        now = [curves.less(curves.at(each, now_ns), share) for each in series]
        if not series or any(value is None for value in now):
            lines.append(
                fit((Span(f"   {SWATCH[role]} ", role), Span(f"{name:<12}"), Span("—", "missing")), cells)
            )
            continue
        began_ns = max([since_ns, *(each.since_ns[0] for each in series)])
        then = [curves.less(curves.at(each, began_ns), share) for each in series]
        lines.append(fit((Span("   "), Span(SWATCH[role], role), *_change(name, then, now)), cells))
        if len(series) == 1:
            bounds = _range(series[0], began_ns, now_ns)
            low, high = (units.format_gib(bound - share) for bound in bounds)
            ends = {units.format_gib(value[2]) for value in (*then, *now) if value is not None}
            if not {low, high} <= ends:  # then it went neither above nor below where it began and is
                told = Span(f"  between {low} and {high}", "dim")
                told_too = (*_trimmed(lines[-1]), told)
                lines[-1] = fit(told_too, cells) if line_width(told_too) <= cells else lines[-1]
    for row in state.processes:
        if row.device != device.index or not row.growth_bytes:
            continue
        who = present.rank_name(row.rank, row.pid) if row.ours else f"{clean(row.user) or 'other'} {row.pid}"
        sign = "+" if row.growth_bytes > 0 else ""
        text = f"{who}: {sign}{units.format_bytes(row.growth_bytes)} in the last minute"
        lines.append(fit((Span(f"   {text}", "text" if row.ours else "others"),), cells))
    return lines


def _trimmed(line: Line) -> Line:
    return line[:-1] if line and not line[-1].text.strip() else line


def _change(name: str, then: Sequence[Column | None], now: Sequence[Column | None]) -> list[Span]:
    total = sum(value[2] for value in now if value is not None)
    if any(value is None for value in then):
        return [Span(f" {name:<12}"), Span(f"{units.format_gib(total):>8} GiB", "strong")]
    before = sum(value[2] for value in then if value is not None)
    change = total - before
    sign = "+" if change > 0 else ""
    began = f"{units.format_gib(before)} → " if change else ""
    return [
        Span(f" {name:<12}"),
        Span(f"{sign + units.format_gib(change):>8} GiB", "strong" if change else "dim"),
        Span(f"   {began}{units.format_gib(total)}"),
    ]


def _range(series: Series, since_ns: int, until_ns: int) -> tuple[int, int]:
    """Least and most of a curve over a stretch in which it has a point."""
    first = min(bisect_left(series.t_ns, since_ns), len(series.t_ns) - 1)
    stop = max(first + 1, bisect_right(series.since_ns, until_ns))
    return min(series.low[first:stop]), max(series.high[first:stop])


def narrowed(state: RunState, device: DeviceState) -> RunState:
    """The same picture with only those ranks, phases, compositions and processes that are on one device."""
    pids = {share.pid for share in device.ledger.ranks} | {curve.pid for curve in device.curves}
    ranks = []
    ordinals: dict[int, set[int]] = {}
    for rank in state.ranks:
        if rank.pid not in pids:
            continue
        here = {level.ordinal for level in rank.levels if level.uuid == device.uuid}
        ordinals[rank.pid] = here
        kept = tuple(each for each in rank.composition if each.ordinal in here or device.uuid is None)
        ranks.append(msgspec.structs.replace(rank, composition=kept))
    rows = tuple(row for row in state.processes if row.device == device.index)
    phases = tuple(row for row in state.phases if row.ordinal in ordinals.get(row.pid, ()))
    return msgspec.structs.replace(state, ranks=tuple(ranks), processes=rows, phases=phases)

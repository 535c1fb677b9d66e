"""Phases, composition and inputs of every rank, as what people read: rows, words, remarks.

Owns their order (cold beside warm), the words and what must be known about a figure.
Refuses widths and layout (``phasepanels``), and never makes a figure of its own.
"""

from collections.abc import Callable, Sequence

import msgspec

from gpumem_tui import units
from gpumem_tui.analysis.ledger import Basis
from gpumem_tui.analysis.rankstate import CompositionState, PhaseRow, RankState
from gpumem_tui.analysis.spread import Holder, spreads
from gpumem_tui.analysis.state import RunState
from gpumem_tui.views import holders, present
from gpumem_tui.views.text import clean

OLD_NS = 60_000_000_000
"""What memory is made of is looked at twice a minute; a picture older than this says so."""


class PhaseView(msgspec.Struct, frozen=True):
    """One phase of one rank on one device, cold or warm, as texts; figures are in GiB."""

    rank: str
    phase: str
    name: str
    device: str
    kind: str
    """``cold`` (the first span of its phase in a process) or ``warm`` (all later ones)."""
    count: str
    start_allocated: str
    peak_allocated: str
    end_allocated: str
    start_reserved: str
    peak_reserved: str
    end_reserved: str
    median: str
    errors: str
    """Empty where there was none."""
    growth: str
    """By how much a span leaves more behind, or needs more, than the one before; empty where it does not."""


ORDERS = ("rank", "peak", "time", "growth")
"""How phases may be ordered; the first is the usual way. A missing figure comes last."""


_FIRST: dict[str, Callable[[PhaseRow], int | None]] = {
    "rank": lambda _: 0,
    "peak": lambda row: row.peak_allocated_bytes,
    "time": lambda row: row.duration_ns,
    "growth": lambda row: row.end_growth_bytes or row.peak_growth_bytes,
}


def phase_views(state: RunState, order: str = ORDERS[0]) -> list[PhaseView]:
    """All rows by rank, phases in the order in which they first ended, warm right below cold.

    In another order, those with the largest figure come first: highest peak of allocated,
    longest median, steepest growth.
    """
    first = _FIRST[order]
    rows = sorted(ordered(state.phases), key=lambda row: 1 if (size := first(row)) is None else -size)
    decimals = present.decimals_for(
        size
        for row in state.phases
        for size in (row.peak_allocated_bytes, row.peak_reserved_bytes, row.end_reserved_bytes)
    )
    where = places(state)
    return [_phase_view(row, where, decimals) for row in rows]


def ordered(rows: Sequence[PhaseRow]) -> list[PhaseRow]:
    """By rank; phases in the order in which they first ended, warm right below cold."""
    first: dict[tuple[int, str, str, int], int] = {}
    for number, row in enumerate(rows):
        first.setdefault((row.pid, row.phase, row.name, row.ordinal), number)
    return sorted(
        rows,
        key=lambda row: (
            row.rank is None,
            row.rank or 0,
            row.pid,
            first[row.pid, row.phase, row.name, row.ordinal],
            not row.cold,
        ),
    )


def _phase_view(row: PhaseRow, places: dict[tuple[int, int], str], decimals: int) -> PhaseView:
    def figure(size: int | None, *, bound: bool = False) -> str:
        return present.gib(size, decimals, bound=bound)

    return PhaseView(
        rank=f"pid {row.pid}" if row.rank is None else str(row.rank),
        phase=clean(row.phase),
        name="" if row.name == row.phase else clean(row.name),
        device=places.get((row.pid, row.ordinal), f"cuda:{row.ordinal}"),
        kind="cold" if row.cold else "warm",
        count=f"{row.count:,}",
        start_allocated=figure(row.start_allocated_bytes),
        peak_allocated=figure(row.peak_allocated_bytes, bound=not row.exact),
        end_allocated=figure(row.end_allocated_bytes),
        start_reserved=figure(row.start_reserved_bytes),
        peak_reserved=figure(row.peak_reserved_bytes, bound=not row.exact),
        end_reserved=figure(row.end_reserved_bytes),
        median=units.format_seconds(None if row.duration_ns is None else row.duration_ns / 1e9),
        errors=str(row.errors) if row.errors else "",
        growth=_growth(row),
    )


def _growth(row: PhaseRow) -> str:
    growth = row.end_growth_bytes or row.peak_growth_bytes
    return f"+{units.format_bytes(growth)}" if growth else ""


def places(state: RunState) -> dict[tuple[int, int], str]:
    """The driver's index of a rank's device, by (pid, ordinal), where a UUID ties them."""
    indices = {device.uuid: device.index for device in state.devices if device.uuid is not None}
    return {
        (rank.pid, level.ordinal): str(indices[level.uuid])
        for rank in state.ranks
        for level in rank.levels
        if level.uuid in indices
    }


def phase_remarks(state: RunState) -> list[str]:
    """What must be known to read the table: bounds, and figures that are not there."""
    remarks = []
    if state.unread_before_ns is not None:
        at = present.wall_clock(state.facts, state.unread_before_ns)
        remarks.append(f"spans since about {at}; earlier ones, and the cold ones, are still being read")
    if any(not row.exact for row in state.phases):
        remarks.append("≥ at least that much: memory moved while the peak was read")
    if any(
        None in (row.start_allocated_bytes, row.peak_allocated_bytes, row.end_allocated_bytes)
        for row in state.phases
    ):
        remarks.append(f"{units.MISSING} not read then, or folded away with the spans it belonged to")
    grown = [row for row in state.phases if row.end_growth_bytes or row.peak_growth_bytes]
    if grown:
        spans = max(row.growth_spans for row in grown)
        remarks.append(f"growth: a span, over the latest {spans}")
    elif followed := [row.growth_spans for row in state.phases if row.peak_growth_bytes == 0]:
        remarks.append(
            f"no phase steadily needs or leaves more from span to span (the latest {max(followed):,})"
        )
    if any(row.count > 1 for row in state.phases):
        remarks.append("start, end: of the latest span")
    return remarks


def growing(state: RunState) -> str:
    """Which phases steadily need or leave more, for a heading: ``eval grows``; empty where none does."""
    names = {clean(row.phase): None for row in state.phases if row.end_growth_bytes or row.peak_growth_bytes}
    if len(names) > 1:
        return f"{len(names)} phases grow"
    return "".join(f"{name} grows" for name in names)


class SpreadView(msgspec.Struct, frozen=True):
    """One phase on several ranks: who needs most, who least; figures are in GiB."""

    phase: str
    kind: str
    ranks: str
    most_allocated: str
    most_allocated_by: str
    least_allocated: str
    least_allocated_by: str
    most_reserved: str
    most_reserved_by: str
    least_reserved: str
    least_reserved_by: str


def spread_views(state: RunState) -> list[SpreadView]:
    """Phases that several ranks have finished; nothing where there is one rank only."""
    found = spreads(ordered(state.phases))
    decimals = present.decimals_for(spread.least_allocated.bytes for spread in found)

    def told(holder: Holder, exact: bool) -> tuple[str, str]:
        who = f"{holder.rank}" if holder.rank is not None else f"pid {holder.pid}"
        return present.gib(holder.bytes, decimals, bound=not exact), who

    views = []
    for one in found:
        both = (one.most_allocated, one.least_allocated, one.most_reserved, one.least_reserved)
        figures = [text for holder in both for text in told(holder, one.exact)]
        for least, most in ((2, 0), (6, 4)):
            if figures[least] == figures[most]:
                figures[least + 1] = "all"
        label = clean(holders.span_name(one.phase, one.name))
        views.append(SpreadView(label, "cold" if one.cold else "warm", str(one.ranks), *figures))
    return views


class CurrentView(msgspec.Struct, frozen=True):
    """What one rank is doing now."""

    title: str
    step: str
    speed: str
    phase: str
    note: str
    role: str


def current_views(state: RunState) -> list[CurrentView]:
    """Every rank with its open spans, outermost first."""
    views = []
    for row in holders.rank_rows(state):
        speed = "" if state.facts.ended_ns is not None else row.speed
        note = "" if row.role == "text" else row.note
        phase = row.phase or ("" if row.role == "failure" else "between phases")
        views.append(CurrentView(row.title, row.step, speed, phase, note, row.role))
    return views


class CompositionView(msgspec.Struct, frozen=True):
    """What allocated memory of one rank on one device is made of."""

    title: str
    """``rank 0  GPU 0: 8.90 GiB allocated after step 120``."""
    allocated_bytes: int | None
    parts: tuple[present.TermView, ...]
    note: str
    """What must be known about the figures; empty if all is well."""


PARTS = (
    ("parameters", "parameters", "parameters_bytes"),
    ("gradients", "gradients", "gradients_bytes"),
    ("optimizer", "optimizer state", "optimizer_bytes"),
    ("buffers", "buffers", "buffers_bytes"),
    ("caches", "KV cache", "caches_bytes"),
    ("live", "other live", "other_bytes"),
)
"""(texture, label, field) of every part, in the order in which it is shown; a cache where there is one."""


def composition_views(state: RunState) -> list[CompositionView]:
    """By rank and device; nothing where nobody has looked yet."""
    where = places(state)
    ranks = sorted(state.ranks, key=lambda rank: (rank.rank is None, rank.rank or 0, rank.pid))
    return [_composition(rank, one, where, state) for rank in ranks for one in rank.composition]


def _composition(
    rank: RankState, one: CompositionState, places: dict[tuple[int, int], str], state: RunState
) -> CompositionView:
    shown = [part for part in PARTS if part[0] != "caches" or one.caches_bytes]
    sizes = [getattr(one, field) for _, _, field in shown]
    decimals = present.decimals_for([*sizes, one.allocated_bytes])
    age_ns = max(0, state.now_ns - one.t_ns)
    parts = []
    for (key, label, _), size in zip(shown, sizes, strict=True):
        computed = key == "live"
        note = "the walk over all tensors was not complete" if size is None else ""
        parts.append(
            present.TermView(
                key=key,
                label=label,
                bytes=size,
                note=note,
                source="allocated − the parts above" if computed else _stored(one, label, decimals),
                basis=Basis.COMPUTED if computed else Basis.OBSERVED,
                age_ns=age_ns,
                missing=size is None,
                bound=not one.complete and not computed,
                decimals=decimals,
            )
        )
    allocated = present.gib(one.allocated_bytes, decimals)
    after = "" if one.step is None else f" after step {one.step:,}"
    where = places.get((rank.pid, one.ordinal))
    device = f"cuda:{one.ordinal}" if where is None else f"GPU {where}"
    return CompositionView(
        title=f"{present.rank_name(rank.rank, rank.pid)}  {device}: {allocated} GiB allocated{after}",
        allocated_bytes=one.allocated_bytes,
        parts=tuple(parts),
        note="; ".join(_composition_notes(rank, one, age_ns)),
    )


def _stored(one: CompositionState, label: str, decimals: int) -> str:
    """What a part is read from, and its dtypes where there is more than one."""
    kind = "caches" if label == "KV cache" else label
    dtypes = [(dtype, size) for of, dtype, size in one.dtypes if of == kind]
    if len(dtypes) < 2:
        return "storages, each once" + "".join(f", {dtype}" for dtype, _ in dtypes)
    parts = (f"{dtype} {present.gib(size, decimals)}" for dtype, size in sorted(dtypes, key=lambda d: -d[1]))
    return ", ".join(parts)


def _composition_notes(rank: RankState, one: CompositionState, age_ns: int) -> list[str]:
    notes = []
    if not one.complete:
        notes.append("≥ the walk over all tensors ran out of time: lower bounds")
    later = rank.step is not None and one.step is not None and rank.step > one.step
    if later and age_ns > OLD_NS:
        age = units.format_seconds(age_ns / 1e9)
        notes.append(f"as it was {age} ago, after step {one.step:,}; the rank is at step {rank.step:,}")
    return notes


class InputView(msgspec.Struct, frozen=True):
    """Tensors that entered a root module, and how often."""

    rank: str
    phase: str
    input: str
    count: str


def input_views(state: RunState) -> list[InputView]:
    """By rank, then as they come: of each phase, the most frequent first."""
    ranks = sorted(state.ranks, key=lambda rank: (rank.rank is None, rank.rank or 0, rank.pid))
    return [
        InputView(
            rank=present.rank_name(rank.rank, rank.pid),
            phase=holders.span_name(row.phase, row.name),
            input=clean(row.input),
            count=f"{row.count:,} ×",
        )
        for rank in ranks
        for row in rank.inputs
    ]

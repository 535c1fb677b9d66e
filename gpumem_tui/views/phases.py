"""Phases, composition and inputs of every rank, as what people read: rows, words, remarks.

Owns their order (cold beside warm), the words and what must be known about a figure.
Refuses widths and layout (``phasepanels``), and never makes a figure of its own.
"""

from collections.abc import Sequence

import msgspec

from gpumem_tui import units
from gpumem_tui.analysis.ledger import Basis
from gpumem_tui.analysis.state import CompositionState, PhaseRow, RankState, RunState
from gpumem_tui.views import holders, present
from gpumem_tui.views.text import clean


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


def phase_views(state: RunState) -> list[PhaseView]:
    """All rows by rank, phases in the order in which they first ended, warm right below cold."""
    decimals = present.decimals_for(
        size
        for row in state.phases
        for size in (row.peak_allocated_bytes, row.peak_reserved_bytes, row.end_reserved_bytes)
    )
    places = _places(state)
    return [_phase_view(row, places, decimals) for row in _ordered(state.phases)]


def _ordered(rows: Sequence[PhaseRow]) -> list[PhaseRow]:
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
    )


def _places(state: RunState) -> dict[tuple[int, int], str]:
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
    if any(not row.exact for row in state.phases):
        remarks.append("≥ at least that much: memory moved while the peak was read")
    if any(
        None in (row.start_allocated_bytes, row.peak_allocated_bytes, row.end_allocated_bytes)
        for row in state.phases
    ):
        remarks.append(f"{units.MISSING} not read then, or folded away with the spans it belonged to")
    return remarks


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
    ("live", "other live", "other_bytes"),
)
"""(texture, label, field) of every part, in the order in which it is shown."""


def composition_views(state: RunState) -> list[CompositionView]:
    """By rank and device; nothing where nobody has looked yet."""
    places = _places(state)
    ranks = sorted(state.ranks, key=lambda rank: (rank.rank is None, rank.rank or 0, rank.pid))
    return [_composition(rank, one, places, state) for rank in ranks for one in rank.composition]


def _composition(
    rank: RankState, one: CompositionState, places: dict[tuple[int, int], str], state: RunState
) -> CompositionView:
    sizes = [getattr(one, field) for _, _, field in PARTS]
    decimals = present.decimals_for([*sizes, one.allocated_bytes])
    age_ns = max(0, state.now_ns - one.t_ns)
    parts = []
    for (key, label, _), size in zip(PARTS, sizes, strict=True):
        computed = key == "live"
        note = "the walk over all tensors was not complete" if size is None else ""
        parts.append(
            present.TermView(
                key=key,
                label=label,
                bytes=size,
                note=note,
                source="allocated − the four above" if computed else "storages, each once",
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
        note="" if one.complete else "≥ the walk over all tensors ran out of time: lower bounds",
    )


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

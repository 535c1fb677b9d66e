"""Who holds the cards: ranks and processes as rows of what people read.

Owns their order and words; refuses widths and colours, as ``present`` does.
"""

from collections.abc import Iterable

import msgspec

from gpumem_tui import units
from gpumem_tui.analysis.state import Life, ProcessRow, RankState, RunState
from gpumem_tui.views import present
from gpumem_tui.views.text import clean

LONG_NS = 10_000_000_000
"""A phase open for longer than this is shown with how long."""


class RankView(msgspec.Struct, frozen=True):
    """One rank, as one row."""

    title: str
    where: str
    """The GPUs that it holds."""
    step: str
    phase: str
    allocated_bytes: int | None
    reserved_bytes: int | None
    note: str
    role: str
    pid: int
    speed: str


def rank_rows(state: RunState) -> list[RankView]:
    """Every process of the workload that speaks, by rank."""
    indices = {device.uuid: device.index for device in state.devices if device.uuid is not None}
    order = sorted(state.ranks, key=lambda r: (r.rank is None, r.rank or 0, r.pid))
    return [_rank_row(rank, indices, state.now_ns) for rank in order]


def _rank_row(rank: RankState, indices: dict[str, int], now_ns: int) -> RankView:
    places = []
    for level in rank.levels:
        index = None if level.uuid is None else indices.get(level.uuid)
        places.append(f"cuda:{level.ordinal}" if index is None else str(index))
    phase = " › ".join(span_name(span.phase, span.name) for span in rank.spans)
    if rank.spans and rank.life is Life.RUNNING and now_ns - rank.spans[-1].since_ns > LONG_NS:
        phase += f", {present.coarse(now_ns - rank.spans[-1].since_ns)}"
    notes = [clean(word) for word in rank.words]
    if rank.life not in (Life.RUNNING, Life.ENDED):
        notes.insert(0, rank.life.value)
        if rank.life is Life.SILENT:
            notes[0] = f"silent for {present.coarse(now_ns - rank.spoke_ns)}"
    elif rank.life is Life.ENDED:
        phase = "ended"
    retries = sum(level.alloc_retries or 0 for level in rank.levels)
    if retries:
        notes.append("1 allocation retry" if retries == 1 else f"{retries} allocation retries")
    return RankView(
        title=present.rank_name(rank.rank, rank.pid),
        where=",".join(places),
        step="" if rank.step is None else f"step {rank.step}",
        phase=phase,
        allocated_bytes=_total(level.allocated_bytes for level in rank.levels),
        reserved_bytes=_total(level.reserved_bytes for level in rank.levels),
        note="; ".join(notes),
        role=present.life_role(rank.life),
        pid=rank.pid,
        speed="" if rank.steps_per_second is None else f"{rank.steps_per_second:.3g}/s",
    )


def span_name(phase: str, name: str) -> str:
    """``forward Transformer``; the phase alone where it has no name of its own."""
    return clean(phase) if name in ("", phase) else f"{clean(phase)} {clean(name)}"


def _total(values: Iterable[int | None]) -> int | None:
    """A sum, missing as soon as one part of it is."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return sum(known) if known and len(known) == len(listed) else None


class ProcessView(msgspec.Struct, frozen=True):
    """One process on one card, as one row."""

    device: int
    pid: int
    who: str
    """``rank 0`` for ours, the user's name for others."""
    used_bytes: int | None
    why: str
    """Why its figure is missing; empty where it is there."""
    growth: str
    command: str
    ours: bool


def process_rows(state: RunState) -> list[ProcessView]:
    """Who holds the cards: by device, ours first, then by size."""
    order = sorted(state.processes, key=lambda p: (p.device, not p.ours, -(p.used_bytes or 0), p.pid))
    return [_process_row(process) for process in order]


def _process_row(process: ProcessRow) -> ProcessView:
    growth = ""
    if process.growth_bytes:
        sign = "+" if process.growth_bytes > 0 else ""
        growth = f"{sign}{units.format_bytes(process.growth_bytes)}/min"
    command = clean(process.command or process.name)
    if not process.visible:
        command = "not visible from here (another container or pid namespace)"
    who = present.rank_name(process.rank, process.pid) if process.ours and process.rank is not None else ""
    return ProcessView(
        device=process.device,
        pid=process.pid,
        who=who or ("ours" if process.ours else clean(process.user) or "other"),
        used_bytes=process.used_bytes,
        why=process.reason.value if process.reason is not None else "",
        growth=growth,
        command=command,
        ours=process.ours,
    )

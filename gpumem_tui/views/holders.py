"""Who holds the cards: ranks and processes as rows of what people read.

Owns their order and words; refuses widths and colours, as ``present`` does.
"""

from collections.abc import Callable, Iterable

import msgspec

from gpumem_tui import units
from gpumem_tui.analysis.rankstate import Levels, Life, RankState
from gpumem_tui.analysis.state import DeviceState, ProcessRow, RunState
from gpumem_tui.views import present
from gpumem_tui.views.text import brief_command, clean

LONG_NS = 10_000_000_000
"""A phase open for longer than this is shown with how long."""


class RankView(msgspec.Struct, frozen=True):
    """One rank, as one row."""

    title: str
    where: str
    """The GPUs that it holds: ``0-2,5``."""
    step: str
    phase: str
    allocated_bytes: int | None
    """On all of its GPUs; of the readings that the ledgers show, so that both agree."""
    reserved_bytes: int | None
    note: str
    role: str
    pid: int
    speed: str
    several: bool
    """Whether the figures are of more than one GPU."""


def rank_rows(state: RunState) -> list[RankView]:
    """Every process of the workload that speaks, by rank."""
    devices = {device.uuid: device for device in state.devices if device.uuid is not None}
    order = sorted(state.ranks, key=lambda r: (r.rank is None, r.rank or 0, r.pid))
    return [_rank_row(rank, devices, state.now_ns) for rank in order]


def _rank_row(rank: RankState, devices: dict[str, DeviceState], now_ns: int) -> RankView:
    known, unknown, figures = [], [], []
    for level in rank.levels:
        device = None if level.uuid is None else devices.get(level.uuid)
        if device is None:
            unknown.append(f"cuda:{level.ordinal}")
        else:
            known.append(device.index)
        figures.append(_figures(level, device, rank.pid))
    phase = " › ".join(span_name(span.phase, span.name) for span in rank.spans)
    if rank.spans and rank.life is Life.RUNNING and now_ns - rank.spans[-1].since_ns > LONG_NS:
        phase += f", {present.coarse(now_ns - rank.spans[-1].since_ns)}"
    notes = [clean(word) for word in rank.words]
    if rank.life not in (Life.RUNNING, Life.ENDED):
        notes.insert(0, present.end_word(rank) or rank.life.value)
        if rank.life is Life.SILENT:
            notes[0] = f"silent for {present.coarse(now_ns - rank.spoke_ns)}"
    elif rank.life is Life.ENDED:
        phase = "ended"
    retries = sum(level.alloc_retries or 0 for level in rank.levels)
    if retries:
        notes.append("1 allocation retry" if retries == 1 else f"{retries} allocation retries")
    return RankView(
        title=present.rank_name(rank.rank, rank.pid),
        where=",".join([*_ranges(known), *unknown]),
        step="" if rank.step is None else f"step {rank.step}",
        phase=phase,
        allocated_bytes=_total(allocated for allocated, _ in figures),
        reserved_bytes=_total(reserved for _, reserved in figures),
        note="; ".join(notes),
        role=present.life_role(rank.life),
        pid=rank.pid,
        speed="" if rank.steps_per_second is None else f"{rank.steps_per_second:.3g}/s",
        several=len(rank.levels) > 1,
    )


def _figures(level: Levels, device: DeviceState | None, pid: int) -> tuple[int | None, int | None]:
    """(allocated, reserved) as the device's ledger shows them; else as the rank said last."""
    shares = () if device is None else device.ledger.ranks
    for share in shares:
        if share.pid == pid and share.allocated.bytes is not None and share.reserved.bytes is not None:
            return share.allocated.bytes, share.reserved.bytes
    return level.allocated_bytes, level.reserved_bytes


def _ranges(indices: Iterable[int]) -> list[str]:
    """``0-2`` and ``5`` for 0, 1, 2 and 5."""
    runs: list[list[int]] = []
    for index in sorted(set(indices)):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]


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


ORDERS = ("card", "size", "growth", "newest")
"""How processes may be ordered; the first is the usual way. A missing figure comes last."""


_FIRST: dict[str, Callable[[ProcessRow], int]] = {
    "card": lambda _: 0,
    "size": lambda p: -(p.used_bytes or 0),
    "growth": lambda p: -(p.growth_bytes or 0),
    "newest": lambda p: -p.since_ns,
}


def process_rows(state: RunState, order: str = ORDERS[0]) -> list[ProcessView]:
    """Who holds the cards: by device, ours first, then by size; or over all devices in another order."""
    first = _FIRST[order]
    listed = sorted(
        state.processes, key=lambda p: (first(p), p.device, not p.ours, -(p.used_bytes or 0), p.pid)
    )
    return [_process_row(process) for process in listed]


def _process_row(process: ProcessRow) -> ProcessView:
    growth = ""
    if process.growth_bytes:
        sign = "+" if process.growth_bytes > 0 else ""
        growth = f"{sign}{units.format_bytes(process.growth_bytes)}/min"
    command = brief_command(process.command or process.name)
    if not process.visible:
        command = "not visible from here (another container or pid namespace)"
        if process.rank is not None and process.identified_by is not None:
            command = f"recognised by {process.identified_by}; its pid here is another"
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

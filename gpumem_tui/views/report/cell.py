"""A measured cell of a notebook as a short sheet: what its phases held, and the ledger after it."""

from collections.abc import Sequence

import msgspec

from gpumem_tui import units
from gpumem_tui.analysis.rankstate import PhaseRow
from gpumem_tui.analysis.state import DeviceState, RunState
from gpumem_tui.views import present
from gpumem_tui.views.report import observed
from gpumem_tui.views.report.ledgers import device_items
from gpumem_tui.views.report.sheet import Item, Sheet, Words
from gpumem_tui.views.text import clean


def sheet_of(
    title: str,
    state: RunState,
    devices: Sequence[DeviceState],
    rows: Sequence[PhaseRow],
    seconds: float | None,
    notes: Sequence[str] = (),
) -> Sheet:
    """``seconds``: how long it took; None for a look at the ledger alone."""
    items: list[Item] = []
    if seconds is not None:
        items.append(Words(f"took {units.format_seconds(seconds)}", "headline"))
        spans = msgspec.structs.replace(state, phases=tuple(rows), ranks=_closed(state))
        items += observed.phase_section(spans).items if rows else _without_spans(state, devices)
    for device in devices:
        items += device_items(device, state)
    items += [Words(clean(note), "warning") for note in notes]
    return Sheet(clean(title), present.badge(state.facts), tuple(items), (), "")


def _without_spans(state: RunState, devices: Sequence[DeviceState]) -> Sequence[Item]:
    """A cell before which this process had used no device, or that used none itself."""
    if not devices:
        return (Words("PyTorch has used no device yet: there is nothing to measure."),)
    pids = {share.pid for device in devices for share in device.ledger.ranks}
    ranks = tuple(rank for rank in state.ranks if rank.pid in pids)
    first = Words("CUDA was initialised in this cell: its peaks are those of the whole process so far.")
    return (first, *observed.level_section(msgspec.structs.replace(state, ranks=ranks)).items)


def _closed(state: RunState) -> tuple[object, ...]:
    """The ranks without their open spans: those are of what comes after the cell."""
    return tuple(msgspec.structs.replace(rank, spans=()) for rank in state.ranks)

"""The computed part of a report: every device's ledger, as a bar and as a table with sources."""

from gpumem_tui import units
from gpumem_tui.analysis.ledger import Basis
from gpumem_tui.analysis.state import DeviceState, RunState
from gpumem_tui.views import present
from gpumem_tui.views.report.sheet import Bar, Cell, Column, Item, Section, Words, raw, size, table
from gpumem_tui.views.text import clean

EQUATION = (
    "total = free + driver-reserved + Σ our ranks (allocated + cached + outside PyTorch) "
    "+ Σ other processes + unattributed"
)

_COLUMNS = (
    Column("term"),
    Column("size", right=True),
    Column("bytes", right=True, keep=3),
    Column("basis", keep=2),
    Column("formula or source", keep=1),
)


def ledger_sections(state: RunState) -> list[Section]:
    """One section for each device; one that says so where there is none."""
    if not state.devices:
        why = "no device is known" if state.driver_reason is None else state.driver_reason.value
        return [Section("Where every byte is", (Words(f"No ledger: {why}.", "warning"),))]
    return [Section(present.device_title(device), device_items(device, state)) for device in state.devices]


def device_items(device: DeviceState, state: RunState) -> tuple[Item, ...]:
    """Bar, table and remarks of one device."""
    terms = present.device_terms(device, state)
    total, whose = present.device_total(device)
    rows: list[list[Cell | str]] = []
    for term in terms:
        name = present.MEANINGS.get(term.key, "")
        source = f"{term.source} ({term.note})" if term.note and term.bytes is not None else term.source
        rows.append(
            [term.label, size(term.bytes, term.note), raw(term.bytes), term.basis.value, source or name]
        )
    rows.append(["= total", size(total, "not read yet"), raw(total), Basis.OBSERVED.value, whose])
    if device.torch_total_bytes is not None and device.torch_total_bytes != total:
        differs = size(device.torch_total_bytes), raw(device.torch_total_bytes)
        rows.append(["total as PyTorch sees it", *differs, Basis.OBSERVED.value, "cudaMemGetInfo"])
    parts = tuple((term.key, term.label, term.bytes) for term in terms)
    keys = (*(term.key for term in terms), *("" for _ in rows[len(terms) :]))
    remarks = present.device_remarks(device, state)
    return (
        Bar(f"GPU {device.index}: {present.device_usage(device)}", parts, total),
        table(f"Ledger of GPU {device.index}", _COLUMNS, rows, keys),
        *(Words(clean(remark), "warning") for remark in remarks),
        *_ranks(device),
    )


def _ranks(device: DeviceState) -> list[Item]:
    """Holders one by one, where the ledger's terms are sums of several."""
    ledger = device.ledger
    if len(ledger.ranks) + len(ledger.others) < 2:
        return []
    columns = (
        Column("holder"),
        Column("allocated", right=True),
        Column("cached", right=True, keep=3),
        Column("outside PyTorch", right=True),
        Column("process used", right=True, keep=4),
    )
    rows: list[list[Cell | str]] = []
    for share in ledger.ranks:
        figures = (share.allocated, share.cached, share.outside, share.used)
        rows.append(
            [
                present.rank_name(share.rank, share.pid),
                *(size(term.bytes, term.reason.value if term.reason else "") for term in figures),
            ]
        )
    for other in ledger.others:
        name = f"{clean(other.name) or 'process'} {other.pid}"
        why = other.used.reason.value if other.used.reason else ""
        blank = units.MISSING
        rows.append([name, blank, blank, blank, size(other.used.bytes, why)])
    return [table(f"Holders of GPU {device.index}", columns, rows)]

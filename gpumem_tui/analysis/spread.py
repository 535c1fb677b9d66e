"""The same phase on several ranks: which rank needs most and which least. Pure."""

from collections.abc import Callable, Sequence

import msgspec

from gpumem_tui.analysis.rankstate import PhaseRow


class Holder(msgspec.Struct, frozen=True):
    """One rank's figure."""

    bytes: int
    pid: int
    rank: int | None
    ordinal: int


class Spread(msgspec.Struct, frozen=True):
    """Peaks of one phase over the ranks that ran it. The two counters are compared each for itself."""

    phase: str
    name: str
    cold: bool
    """Only where no rank has a later span than its first."""
    ranks: int
    exact: bool
    most_allocated: Holder
    least_allocated: Holder
    most_reserved: Holder
    least_reserved: Holder


def spreads(rows: Sequence[PhaseRow]) -> list[Spread]:
    """Of every phase that at least two processes have finished, in the order of the rows."""
    groups: dict[tuple[str, str], list[PhaseRow]] = {}
    for row in rows:
        if row.peak_allocated_bytes is not None and row.peak_reserved_bytes is not None:
            groups.setdefault((row.phase, row.name), []).append(row)
    found = []
    for (phase, name), group in groups.items():
        warm = [row for row in group if not row.cold]
        chosen = warm or group
        pids = {row.pid for row in chosen}
        if len(pids) < 2:
            continue
        found.append(
            Spread(
                phase=phase,
                name=name,
                cold=not warm,
                ranks=len(pids),
                exact=all(row.exact for row in chosen),
                most_allocated=_holder(max, chosen, "peak_allocated_bytes"),
                least_allocated=_holder(min, chosen, "peak_allocated_bytes"),
                most_reserved=_holder(max, chosen, "peak_reserved_bytes"),
                least_reserved=_holder(min, chosen, "peak_reserved_bytes"),
            )
        )
    return found


def _holder(choose: Callable[..., PhaseRow], rows: Sequence[PhaseRow], field: str) -> Holder:
    """Of equal ones the lowest rank, and a numbered one before one without."""
    order = sorted(rows, key=lambda row: (row.rank is None, row.rank or 0, row.pid, row.ordinal))
    row = choose(order, key=lambda row: getattr(row, field))
    return Holder(getattr(row, field), row.pid, row.rank, row.ordinal)

"""Runs side by side: what differs, phases cold with cold and warm with warm, and what a card excludes. Pure.

Differences are of one counter in one phase between runs, never of two counters or of
two moments of one run. Of a bound, or of a peak that a failed span may have cut short,
no difference is made. Refuses verdicts on cards that nobody has tried.
"""

from collections.abc import Sequence

import msgspec

from gpumem_tui.analysis.factors import Factor, changed_words, factors_of
from gpumem_tui.analysis.rankstate import PhaseRow
from gpumem_tui.analysis.state import RunState
from gpumem_tui.units import format_bytes

COMMANDS_DIFFER = "the commands differ in more than one thing"
"""Begins the warning that goes on with the words that differ."""


class Figures(msgspec.Struct, frozen=True):
    """One phase in one run."""

    count: int
    errors: int
    exact: bool
    duration_ns: int | None
    start_allocated_bytes: int | None
    peak_allocated_bytes: int | None
    end_allocated_bytes: int | None
    start_reserved_bytes: int | None
    peak_reserved_bytes: int | None
    end_reserved_bytes: int | None


class PhasePair(msgspec.Struct, frozen=True):
    """One phase of one rank on one device, cold or warm, in every run."""

    rank: int | None
    phase: str
    name: str
    ordinal: int
    cold: bool
    runs: tuple[Figures | None, ...]
    """None where a run has no such span."""

    def difference(self, run: int, field: str) -> int | None:
        """A counter in a run minus the same in the first; None where that would say nothing."""
        first, other = self.runs[0], self.runs[run]
        if first is None or other is None or first.errors or other.errors:
            return None
        if field.startswith("peak") and not (first.exact and other.exact):
            return None
        before, after = getattr(first, field), getattr(other, field)
        return None if before is None or after is None else int(after) - int(before)

    def slowdown(self, run: int) -> float | None:
        """Median duration in a run over that in the first."""
        first, other = self.runs[0], self.runs[run]
        if first is None or other is None or not first.duration_ns or other.duration_ns is None:
            return None
        return other.duration_ns / first.duration_ns


class Whole(msgspec.Struct, frozen=True):
    """One rank on one device over its whole life, in one run."""

    rank: int | None
    ordinal: int
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    alloc_retries: int | None
    ooms: int | None
    empty_cache: int
    """Calls that were seen: at least so many."""


class Constraint(msgspec.Struct, frozen=True):
    """What a card of another size says of one run. The three words are stable."""

    capacity_bytes: int
    run: int
    word: str
    """``excluded``, ``undecided`` or ``not excluded``."""
    because: str


class Comparison(msgspec.Struct, frozen=True):
    """All of it. Runs are named by their position."""

    names: tuple[str, ...]
    simulated: tuple[str | None, ...]
    recorded: tuple[bool, ...]
    endings: tuple[str | None, ...]
    factors: tuple[Factor, ...]
    warnings: tuple[str, ...]
    phases: tuple[PhasePair, ...]
    wholes: tuple[tuple[Whole, ...], ...]
    """Of each run."""
    constraints: tuple[Constraint, ...]

    @property
    def differing(self) -> tuple[Factor, ...]:
        """Factors of which two known values differ."""
        return tuple(factor for factor in self.factors if factor.differs)


def compare(states: Sequence[RunState], capacities_bytes: Sequence[int] = ()) -> Comparison:
    """Two runs or more, the first of which is what the others are held against."""
    factors = factors_of(states)
    wholes = tuple(_wholes(state) for state in states)
    return Comparison(
        names=tuple(state.facts.run for state in states),
        simulated=tuple(state.facts.simulated for state in states),
        recorded=tuple(state.facts.recorded for state in states),
        endings=tuple(state.facts.ending for state in states),
        factors=factors,
        warnings=tuple(_warnings(states, factors)),
        phases=_phases(states),
        wholes=wholes,
        constraints=tuple(
            _constraint(capacity, run, wholes[run], _cut_short(states[run]))
            for capacity in capacities_bytes
            for run in range(len(states))
        ),
    )


def counted(factors: Sequence[Factor]) -> list[Factor]:
    """The factors that count as differences of their own."""
    differing = [factor for factor in factors if factor.differs]
    chosen = [factor for factor in differing if not factor.seen]
    return chosen or differing


def _warnings(states: Sequence[RunState], factors: Sequence[Factor]) -> list[str]:
    warnings = []
    different = counted(factors)
    if len(different) > 1:
        names = ", ".join(factor.name for factor in different)
        warnings.append(
            f"{len(different)} factors differ ({names}): "
            "a difference in memory cannot be put down to one of them"
        )
    if any(factor.name == "command" for factor in different):
        words = changed_words([state.facts.command for state in states])
        if len(words) > 1:
            warnings.append(f"{COMMANDS_DIFFER}: {', '.join(words)}")
    unknown = [factor.name for factor in factors if factor.unknown]
    if unknown:
        warnings.append(f"known of some runs only, perhaps different: {', '.join(unknown)}")
    if all(s.facts.identity is None or s.facts.identity.revision.commit is None for s in states):
        warnings.append("the code of these runs is not identified (no git revision): it may differ")
    dirty = [s.facts.run for s in states if s.facts.identity is not None and s.facts.identity.revision.dirty]
    if dirty:
        warnings.append(
            f"files differed from the commit in {', '.join(dirty)}: "
            "the code may differ although the commit does not"
        )
    going = [state.facts.run for state in states if state.facts.ended_ns is None]
    if going:
        warnings.append(f"still going on, or lost: {', '.join(going)}; peaks may be higher yet")
    if any(state.facts.simulated for state in states):
        warnings.append("durations on simulated cards say nothing of real ones")
    return warnings


def _phases(states: Sequence[RunState]) -> tuple[PhasePair, ...]:
    tables = [_table(state.phases) for state in states]
    keys = dict.fromkeys(key for table in tables for key in table)
    order = {(key[:4]): number for number, key in reversed(list(enumerate(keys)))}
    ordered = sorted(keys, key=lambda key: (key[0] is None, key[0] or 0, order[key[:4]], not key[5], key[4]))
    return tuple(
        PhasePair(rank, phase, name, ordinal, cold, tuple(table.get(key) for table in tables))
        for key in ordered
        for rank, phase, name, ordinal, _, cold in [key]
    )


_Key = tuple[int | None, str, str, int, int, bool]
"""Rank, phase, name, ordinal, number among processes without a rank, cold."""


def _table(rows: Sequence[PhaseRow]) -> dict[_Key, Figures]:
    numbers: dict[int, int] = {}
    for row in rows:
        if row.rank is None:
            numbers.setdefault(row.pid, len(numbers))
    return {
        (row.rank, row.phase, row.name, row.ordinal, numbers.get(row.pid, 0), row.cold): Figures(
            count=row.count,
            errors=row.errors,
            exact=row.exact,
            duration_ns=row.duration_ns,
            start_allocated_bytes=row.start_allocated_bytes,
            peak_allocated_bytes=row.peak_allocated_bytes,
            end_allocated_bytes=row.end_allocated_bytes,
            start_reserved_bytes=row.start_reserved_bytes,
            peak_reserved_bytes=row.peak_reserved_bytes,
            end_reserved_bytes=row.end_reserved_bytes,
        )
        for row in rows
    }


def _wholes(state: RunState) -> tuple[Whole, ...]:
    found = []
    for rank in sorted(state.ranks, key=lambda rank: (rank.rank is None, rank.rank or 0, rank.pid)):
        peaks = {peak.ordinal: peak for peak in rank.peaks}
        levels = {level.ordinal: level for level in rank.levels}
        for ordinal in sorted(peaks.keys() | levels.keys()):
            peak, level = peaks.get(ordinal), levels.get(ordinal)
            found.append(
                Whole(
                    rank=rank.rank,
                    ordinal=ordinal,
                    peak_allocated_bytes=None if peak is None else peak.peak_allocated_bytes,
                    peak_reserved_bytes=None if peak is None else peak.peak_reserved_bytes,
                    alloc_retries=None if level is None else level.alloc_retries,
                    ooms=None if level is None else level.ooms,
                    empty_cache=dict(rank.marks).get("empty_cache", 0),
                )
            )
    return tuple(found)


def _cut_short(state: RunState) -> str:
    """Why the peaks of a run are not those of the whole of it; empty where it ended in order."""
    if state.facts.ended_ns is None:
        return "it has not ended, and its peaks may be higher yet"
    if state.facts.exit_code:
        return f"it failed ({state.facts.ending}), and what it would have come to is not known"
    return ""


def _constraint(capacity: int, run: int, wholes: Sequence[Whole], cut_short: str) -> Constraint:
    """Live tensors beyond the card exclude it; nothing seen elsewhere proves that a run would fit."""
    allocated = max(
        (w.peak_allocated_bytes for w in wholes if w.peak_allocated_bytes is not None), default=None
    )
    reserved = max((w.peak_reserved_bytes for w in wholes if w.peak_reserved_bytes is not None), default=None)
    size = format_bytes(capacity)
    if allocated is None or reserved is None:
        return Constraint(capacity, run, "undecided", "the peaks of this run are not known")
    if allocated > capacity:
        because = f"live tensors of one rank came to {format_bytes(allocated)}, more than {size}"
        return Constraint(capacity, run, "excluded", because)
    if reserved > capacity:
        because = (
            f"live tensors came to {format_bytes(allocated)}, the allocator held {format_bytes(reserved)}: "
            "it would have to give cached memory back, and fragmentation decides"
        )
        return Constraint(capacity, run, "undecided", because)
    if cut_short:
        because = f"peak reserved came to {format_bytes(reserved)}, but {cut_short}"
        return Constraint(capacity, run, "undecided", because)
    because = (
        f"peak reserved {format_bytes(reserved)} is below {size}; context, workspaces, NCCL "
        "and other processes come on top, and a trial decides"
    )
    return Constraint(capacity, run, "not excluded", because)

"""A sweep as a sheet: every attempt in order, failures among them, then what they say."""

from gpumem_tui.analysis.sweep import Attempt, Outcome, Sweep, is_done, planned
from gpumem_tui.records.revision import Revision
from gpumem_tui.units import format_seconds
from gpumem_tui.views.report.sheet import Cell, Column, Item, Sheet, Words, size, table
from gpumem_tui.views.text import clean

_REACHED = (Outcome.OUT_OF_MEMORY, Outcome.FAILED, Outcome.INTERRUPTED)
"""Outcomes that leave open what the value would have needed."""


def sheet_of(sweep: Sweep, kept_in: str) -> Sheet:
    """``kept_in``: the folder of the sweep."""
    columns = (
        Column("n", right=True),
        Column("values"),
        Column("outcome"),
        Column("peak allocated", right=True),
        Column("peak reserved", right=True, keep=8),
        Column("device used", right=True, keep=7),
        Column("took", right=True, keep=6),
    )
    items: list[Item] = [Words(clean(" ".join(sweep.command)))]
    if sweep.revision is not None:
        items.append(Words(_code(sweep.revision)))
    items += [_resumed(sweep, number) for number in range(len(sweep.resumed))]
    if len(sweep.variables) > 1:
        items.append(Words("One variable at a time; the others stay at their first value."))
    items.append(table("Attempts in their order", columns, [_row(attempt) for attempt in sweep.attempts]))
    items += [Words(f"{boundary.sentence}.", "headline") for boundary in sweep.boundaries]
    if sweep.stopped is not None:
        items.append(Words(f"Not all was tried: {sweep.stopped}.", "warning"))
    elif missing := _missing(sweep):
        said = "it goes on, or was lost: gpumem-tui sweep --resume goes on with one that was"
        items.append(Words(f"Not tried yet: {clean(missing)}; {said}.", "warning"))
    items.append(
        Words("Peaks: of the highest process and device; two maxima of two counters, never subtracted.")
    )
    items.append(Words("Device used: highest reading of total − free, with others and the driver's share."))
    if any(_missed(attempt) for attempt in sweep.attempts):
        items.append(Words("≥ in device used alone: no reading fell on its peak; a process reserved more."))
    if any(attempt.outcome in _REACHED for attempt in sweep.attempts):
        items.append(Words("≥: reached before it ended; what that value would need is not known from it."))
    badge = f"SIMULATED {sweep.simulated}" if sweep.simulated else ""
    return Sheet(f"sweep {sweep.name}", badge, tuple(items), (), f"kept in {kept_in}")


def _code(revision: Revision) -> str:
    if revision.commit is None:
        return f"The code is not identified ({clean(revision.reason or 'not known')})."
    changed = {True: " with changed files", False: "", None: "; whether files had changed is not known"}
    return f"Code: commit {clean(revision.commit[:12])}{changed[revision.dirty]}."


def _missing(sweep: Sweep) -> str:
    """The listed steps that have no attempt which speaks for them; the first few by name."""
    steps = [step for step in planned(sweep.variables, sweep.cases) if not is_done(sweep.attempts, step)]
    named = ", ".join(step.said() for step in steps[:3])
    return f"{named} and {len(steps) - 3} more" if len(steps) > 3 else named


def _resumed(sweep: Sweep, number: int) -> Words:
    """Where it was gone on with, and what had become another since: then values say less of each other."""
    now = sweep.resumed[number]
    before = sweep.resumed[number - 1] if number else sweep
    after = f"attempt {now.after}" if now.after else "its start"
    changed = [
        word
        for word, was, is_now in (
            ("code", before.revision, now.revision),
            ("host", before.host, now.host),
            ("gpumem-tui", before.version, now.version),
        )
        if was != is_now
    ]
    if not changed:
        return Words(f"Resumed after {after}.")
    return Words(f"Resumed after {after}, with another {', another '.join(changed)}.", "warning")


def _highest(attempt: Attempt) -> tuple[int | None, int | None, int | None]:
    """Peak allocated, peak reserved, device used: of whichever process and device is highest."""
    return (
        max((peak.peak_allocated_bytes for peak in attempt.peaks), default=None),
        max((peak.peak_reserved_bytes for peak in attempt.peaks), default=None),
        max((value for value in attempt.device_used_bytes if value is not None), default=None),
    )


def _missed(attempt: Attempt) -> bool:
    """Whether the driver was not read while most was held, as a run of a second may end before it is."""
    _, reserved, used = _highest(attempt)
    if attempt.outcome in _REACHED or reserved is None or used is None:
        return False
    return used < reserved


def _row(attempt: Attempt) -> list[Cell | str]:
    bound = attempt.outcome in _REACHED
    outcome = attempt.outcome.value
    if attempt.outcome is Outcome.FAILED:
        outcome = f"failed, exit code {attempt.exit_code}"
    elif attempt.failed_phase:
        outcome = f"{outcome} in {clean(attempt.failed_phase)}"
    took = attempt.duration_ns / 1e9 if attempt.duration_ns is not None else None
    allocated, reserved, used = _highest(attempt)
    return [
        str(attempt.order),
        clean(attempt.step.said()),
        Cell(outcome, role="" if not bound else "failure"),
        *(size(figure, bound=bound) for figure in (allocated, reserved)),
        size(used, bound=bound or _missed(attempt)),
        format_seconds(took),
    ]

"""What an ended run says as an attempt of a sweep: outcome, peaks, the driver's highest reading."""

from pathlib import Path

from gpumem_tui.analysis import failurestate, oomtext
from gpumem_tui.analysis.findings import Kind
from gpumem_tui.analysis.state import RunState
from gpumem_tui.analysis.sweep import Attempt, Outcome, Peak, Step
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.session.recording import Recording
from gpumem_tui.sources import logs

EXHAUSTED = ("out of memory", "outside the allocator")
"""Kinds of failure that are a device's memory running out."""

ON_THE_DEVICE = (Kind.ALLOCATOR, Kind.REJECTED, Kind.OUTSIDE, Kind.NVML_ASSERT)
MOST_INPUTS = 8


def observe(
    run: RunDirectory, step: Step, order: int, exit_code: int | None, log: Path, interrupted: bool
) -> Attempt:
    """The attempt of a run that has ended, of itself or interrupted. Raises :class:`UnreadableRecording`."""
    state = Recording(run).read()
    failures = [failure for failure in state.failures if failure.kind in EXHAUSTED]
    ended = [failure for failure in failures if failure.outcome is not failurestate.Outcome.CAUGHT]
    if exit_code == 0:
        outcome = Outcome.CAUGHT if failures else Outcome.PASSED
    elif interrupted:
        outcome = Outcome.INTERRUPTED
    elif ended or _log_tells(log):
        outcome = Outcome.OUT_OF_MEMORY
    else:
        outcome = Outcome.FAILED
    facts = state.facts
    return Attempt(
        order=order,
        step=step,
        outcome=outcome,
        exit_code=exit_code,
        run=run.name,
        duration_ns=facts.ended_ns - facts.started_ns if facts.ended_ns is not None else None,
        peaks=tuple(
            Peak(rank.rank, rank.pid, peak.ordinal, peak.peak_allocated_bytes, peak.peak_reserved_bytes)
            for rank in state.ranks
            for peak in rank.peaks
        ),
        device_used_bytes=tuple(max(device.driver_used.high, default=None) for device in state.devices),
        failed_phase=ended[0].phase if ended and outcome is Outcome.OUT_OF_MEMORY else None,
        inputs=_inputs(state),
    )


def _log_tells(log: Path) -> bool:
    """Whether the output tells of it: some allocators have no observer that could."""
    scanner = oomtext.Scanner()
    for block in logs.blocks(str(log)):
        scanner.feed(block)
    found = scanner.finish().failures
    return any(oomtext.situation(failure).kind in ON_THE_DEVICE for failure in found)


def _inputs(state: RunState) -> tuple[str, ...]:
    rows = [row for rank in state.ranks for row in rank.inputs]
    return tuple(dict.fromkeys(row.input for row in rows))[:MOST_INPUTS]

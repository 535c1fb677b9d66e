"""What a run does not show: the border of what was tested, in sentences. Pure.

A figure of one run is a figure of its phases, inputs, card and versions. Refuses
margins, multipliers and verdicts on configurations that nobody has run.
"""

from collections.abc import Iterable

from gpumem_tui.analysis.loads import largest_loads
from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.analysis.state import RunState

USUAL = ("forward", "backward", "optimizer", "eval", "save")
"""Phases that people ask about, seen or not."""


def untested(state: RunState) -> tuple[str, ...]:
    """Every border of this run, the widest last."""
    return (*_of_phases(state), *_of_loads(state), *_of_time(state), *_of_readings(state), *_of_place(state))


def _of_phases(state: RunState) -> Iterable[str]:
    seen = {row.phase for row in state.phases}
    unseen = [phase for phase in USUAL if phase not in seen]
    if unseen:
        yield f"Phases that did not run: {', '.join(unseen)}. Nothing is known of what they need."
    failed = sorted({row.phase for row in state.phases if row.errors})
    if failed:
        yield (
            f"Spans that failed: {', '.join(failed)}. "
            "Their peaks are what was held when they failed, not what they need."
        )
    once = sorted({row.phase for row in state.phases if row.cold} - _warm(state))
    if once:
        yield f"Phases that ran only once in a process (cold): {', '.join(once)}."
    if any(not row.exact for row in state.phases):
        yield "Peaks with ≥ are lower bounds: memory moved while they were read, or counters were left alone."


def _warm(state: RunState) -> set[str]:
    return {row.phase for row in state.phases if not row.cold}


def _of_loads(state: RunState) -> Iterable[str]:
    loads = largest_loads(state.ranks)
    if loads:
        yield "Inputs larger than the largest load tried: nothing here says what they need."
    elif state.ranks:
        yield "Shapes of inputs: no root module was seen to take any."


def _of_time(state: RunState) -> Iterable[str]:
    steps = [rank.step for rank in state.ranks if rank.step is not None]
    if steps:
        most = max(steps)
        steps_said = "1 step" if most == 1 else f"{most:,} steps"
        yield f"More than {steps_said}: slow growth beyond is not excluded."
    if state.facts.ended_ns is None and state.facts.life is not Life.LOST:
        yield "The run is going on: every figure is that of one moment, every peak the highest so far."
    identity = state.facts.identity
    if identity is not None and identity.protocol != "strict":
        yield "Durations are those of the host: the device was not waited for (run --protocol strict does)."


def _of_readings(state: RunState) -> Iterable[str]:
    if state.driver_reason is not None:
        yield f"The card as its driver sees it: {state.driver_reason.value}."
    if not state.ranks:
        yield "PyTorch's allocator: no process of this run has used it."
    if any(device.ledger.merged is not None for device in state.devices):
        yield "Terms that the driver does not tell apart here are one figure; none of them is known alone."


def _of_place(state: RunState) -> Iterable[str]:
    if state.facts.simulated is not None:
        yield (
            "Real cards: the allocator is PyTorch's own, but context, workspaces and NCCL are assumed sizes, "
            "kernels do nothing, and durations mean nothing."
        )
    yield "Other cards, drivers, versions, settings and numbers of ranks: this is one run of one of each."

"""What became of each failure, and its part among the ranks: by what the process did, and how it ended.

Certain is what an exception that nobody caught says. All else is told from what came
after: a program that computed on, or ended in order, has caught its failure; one that left
by ``os._exit`` has handled it; one that a signal from outside ended had not been ended by it.
Refuses to look at figures.
"""

import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from gpumem_tui import records
from gpumem_tui.agent import ring
from gpumem_tui.analysis.failurestate import ENDS, FailureState, Outcome, Part
from gpumem_tui.session.echoes import Failed

_OWN = frozenset(
    {
        signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP,
        signal.SIGSYS,
    }
)  # fmt: skip
"""Signals that a program raises by its own doing; all others are sent by somebody."""


_OF_EXCEPTIONS = (1, 120)
"""Codes with which the interpreter ends by an exception, or because its output could not be written."""

SOON_NS = 60_000_000_000
"""A program that ends by itself later than this has gone on, with work of which no phase tells."""


@dataclass(frozen=True)
class Afterwards:
    """What is known of a process after one of its failures."""

    went_on: bool
    """A phase has begun since in which programs compute."""
    spoke_ns: int
    """When its journal was last written."""
    ended_well: bool
    """The run has ended with code 0."""
    raised_ns: int | None
    """When an exception that nobody caught ended it."""
    said_goodbye: bool
    """Its interpreter ended in order."""
    gone: bool
    end: records.Exit | records.Gone | None
    """How somebody saw it end."""
    last_word: int | None = None
    """How it was about to end, by its ring; None where that is not told."""


def of(failed: Failed, after: Afterwards) -> Outcome:
    """What became of one failing allocation, or exception."""
    if failed.uncaught:
        return Outcome.ENDED
    raised = after.raised_ns is not None and after.raised_ns > failed.line.t_ns  # another exception ended it
    if after.went_on or raised or after.ended_well:
        return Outcome.CAUGHT
    if failed.thread is not None or not (after.said_goodbye or after.gone):
        return Outcome.OPEN
    by = after.end.signal if after.end is not None else None
    if by is not None and not after.said_goodbye:
        return Outcome.ENDED if by in _OWN else Outcome.OPEN
    became = _by_itself(after)
    late = after.spoke_ns - failed.line.t_ns > SOON_NS
    return Outcome.CAUGHT if became in (Outcome.LEFT, Outcome.QUIT) and late else became


def _by_itself(after: Afterwards) -> Outcome:
    """Of a process that no signal ended, as far as that is known, and whose journal tells of no exception."""
    if after.last_word == ring.RAISED_MEMORY:  # the journal came too late to tell
        return Outcome.ENDED
    if after.last_word == ring.RAISED:
        return Outcome.CAUGHT
    if after.said_goodbye or after.last_word == ring.ENDING:
        return Outcome.LEFT  # an exception that ends the interpreter would have been told before
    code = after.end.code if after.end is not None else None
    if code is not None and (after.last_word == ring.RUNNING or code not in _OF_EXCEPTIONS):
        return Outcome.QUIT  # os._exit, or a library's exit: the interpreter itself was not asked
    return Outcome.GONE


def without_doubtful(latest: Sequence[Failed], states: Sequence[FailureState]) -> list[FailureState]:
    """A failure that no exception made the end stands for it only where nothing else has ended the run.

    Of several of one process that is the last: it asked again after the others.
    """
    certain = {
        failed.who
        for failed, state in zip(latest, states, strict=True)
        if failed.uncaught and state.part is not Part.VICTIM
    }
    last = {failed.who: failed for failed in latest}
    found = []
    for failed, state in zip(latest, states, strict=True):
        if state.outcome in ENDS and not failed.uncaught:
            if failed.who in certain or last[failed.who] is not failed:
                # of a thread that went on after it, or of another one meanwhile
                state = msgspec.structs.replace(state, outcome=Outcome.CAUGHT)
            elif certain:
                state = msgspec.structs.replace(state, outcome=Outcome.OPEN)
        found.append(state)
    return found


def with_parts(states: Sequence[FailureState], gone: Collection[int]) -> tuple[FailureState, ...]:
    """The first that ended a process is the first cause and comes first; then all others by time."""
    own = [s for s in states if s.outcome is not Outcome.CAUGHT and s.part is not Part.VICTIM]
    ended = [s for s in own if s.outcome in ENDS or s.pid not in gone] or own
    if not ended:
        return tuple(states)
    first = msgspec.structs.replace(ended[0], part=Part.FIRST)
    return (first, *(s for s in states if s is not ended[0]))

"""What a picture tells of a failure: the record, each rank's part in it, findings, and maps of memory.

Data only, as all of ``analysis.state``; times are of the node's monotonic clock.
"""

from enum import Enum

import msgspec

from gpumem_tui.analysis.findings.finding import Finding
from gpumem_tui.analysis.ledger import Ledger
from gpumem_tui.records.failure import FailureRecord


class Outcome(str, Enum):
    """What became of a failure. The values are stable."""

    ENDED = "ended the process"
    CAUGHT = "caught by the program"
    LEFT = "caught; the program ended after it"
    """By itself, and without an error that nobody caught: ``sys.exit`` where the failure is handled."""
    QUIT = "handled; the program left by itself"
    """At once, by ``os._exit``: where it was caught, in a ``finally`` or in a hook is not told."""
    GONE = "the process was gone after it"
    """Whether by it is not told: nobody saw how, or the code could be of either."""
    OPEN = "not known yet"
    """The process still lives and has not gone on to another step."""


ENDS = frozenset({Outcome.ENDED, Outcome.LEFT, Outcome.QUIT, Outcome.GONE})
"""With these, no phase of work came after it."""


class Part(str, Enum):
    """A failure's part among the ranks. The values are stable."""

    FIRST = "first cause"
    VICTIM = "victim"
    """Ended because another rank had failed."""
    ALONE = "own failure"
    """Failed by itself, after another had."""


class RankThen(msgspec.Struct, frozen=True):
    """Another rank at the instant of a failure."""

    pid: int
    rank: int | None
    phase: str | None
    """Phases that were open, outermost first, joined by " > "."""
    step: int | None
    ordinal: int | None
    """Where it held most."""
    allocated_bytes: int | None
    reserved_bytes: int | None
    spoke_ns: int
    """When its journal had last grown, as of that instant."""


class FailureState(msgspec.Struct, frozen=True):
    """One failure of one process, with everything that its screen shows."""

    t_ns: int
    kind: str
    """``out of memory``, ``exception``, ``signal``, ``exit``, ``gone``, ``host kill``,
    ``outside the allocator``, ``silence``."""
    headline: str
    """One sentence: who, where, what was asked, what was in the way."""
    pid: int
    rank: int | None
    part: Part
    outcome: Outcome
    device: int | None = None
    """Position in ``RunState.devices``; None where it is not known which device it was."""
    ordinal: int | None = None
    requested_bytes: int | None = None
    phase: str | None = None
    """Open phases, outermost first, joined by " > "."""
    step: int | None = None
    record: FailureRecord | None = None
    record_reason: str | None = None
    """Why there is no record."""
    ledger: Ledger | None = None
    """Of its device at that instant."""
    findings: tuple[Finding, ...] = ()
    """The verdict first."""
    others: tuple[RankThen, ...] = ()
    """Every other rank at that instant."""
    thread: str | None = None
    """The thread that ended by it, where it was not the main one: that alone ends no process."""
    exit_code: int | None = None
    """With which the process ended, where that is known; None of one that a signal ended."""


class MapState(msgspec.Struct, frozen=True):
    """How the blocks of one rank lay on one device when a watcher asked for it."""

    t_ns: int
    pid: int
    rank: int | None
    ordinal: int
    device: int | None
    """Position in ``RunState.devices``; None where it is not known which device it was."""
    record: FailureRecord | None
    """Of kind ``map``: its pools, and the path of a snapshot of every block."""
    reason: str | None
    """Why there is none."""
    took_ns: int
    """How long the workload's sampler took for it."""

"""A finding: a verdict, what it rests on, what would confirm it, what to try next. Data only."""

from enum import Enum

import msgspec

from gpumem_tui.analysis.findings.amounts import Amount


class Verdict(str, Enum):
    """What was in the way. The values are stable."""

    CAPACITY = "capacity"
    """What is live, with the request, does not fit."""
    OTHER_PROCESS = "other process"
    FRAGMENTATION = "fragmentation"
    PRIVATE_POOLS = "private pools"
    OUTSIDE_PYTORCH = "outside PyTorch"
    CAP = "per-process cap"
    FREE_NOT_USABLE = "free, not usable"
    """The device had as much free as was asked."""
    SAME_SIZE_PROCESSES = "processes of one size"
    """Several ranks or stray contexts on one card look like this."""
    IMPOSSIBLE_SIZE = "impossible size"
    OPTIMIZER_STATE = "optimizer state"
    EVALUATION = "evaluation"
    LOAD = "load"
    PRESSURE = "pressure"
    HOST_MEMORY = "host memory"
    SHARED_MEMORY = "shared memory"
    GROWTH = "growth per step"
    """What is live grows by about the same every step: something is kept."""
    KEPT = "kept by a caught failure"
    """What an attempt that failed had made is live after the program has caught its error."""
    RANKS_ON_ONE_CARD = "ranks on one card"
    STRAY_CONTEXTS = "stray contexts"
    """Ranks whose tensors are elsewhere hold a context on this card."""
    ORPHANS = "orphaned processes"
    """Left behind by this run or one like it."""
    UNLISTED = "held by nobody listed"
    """Used, while every process that the driver lists is known with its figure."""
    RESERVED_IDLE = "reserved, unused"
    """A state, no fault: PyTorch keeps what it had needed."""
    ANOTHER_RANK = "another rank failed first"
    NOT_MEMORY = "not memory"
    UNKNOWN = "unknown"


class Strength(str, Enum):
    """How far the evidence carries."""

    SUPPORTED = "supported"
    """The numbers say it, whatever was rounded."""
    POSSIBLE = "possible"
    """They allow it."""
    UNDECIDED = "undecided"
    """They do not tell; ``missing`` says what would."""


class Evidence(msgspec.Struct, frozen=True):
    """One thing that a verdict rests on."""

    says: str
    source: str
    low_bytes: int | None = None
    high_bytes: int | None = None


class Finding(msgspec.Struct, frozen=True):
    """One finding."""

    verdict: Verdict
    strength: Strength
    headline: str
    """One sentence, with numbers."""
    evidence: tuple[Evidence, ...] = ()
    check: str | None = None
    """What would confirm it."""
    trial: str | None = None
    """The next trial: it changes one thing."""
    missing: tuple[str, ...] = ()


def figure(name: str, amount: Amount | None) -> tuple[Evidence, ...]:
    """An amount as evidence; nothing where it is missing."""
    if amount is None:
        return ()
    return (Evidence(f"{name} {amount.say()}", amount.source, amount.low_bytes, amount.high_bytes),)


def word(says: str, source: str) -> tuple[Evidence, ...]:
    """Evidence without a figure of its own."""
    return (Evidence(says, source),)

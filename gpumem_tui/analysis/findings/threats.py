"""What threatens a run that still goes on: one pure rule for each, with its check and next trial.

Each gives a finding only where the figures carry it. Whether a threat is new, holds or
has passed is decided by whoever asks.
"""

from dataclasses import dataclass

from gpumem_tui.analysis.findings.amounts import Amount
from gpumem_tui.analysis.findings.finding import Evidence, Finding, Strength, Verdict, figure, word
from gpumem_tui.analysis.findings.situation import Trend
from gpumem_tui.units import MIB, format_bytes, format_seconds

LEAST_STEPS = 12
"""Steps from which on a slope is called a threat."""
LEAST_SLOPE_BYTES = 1 * MIB
"""A step; less is noise of lengths and logs."""
MOST_LEFT = 100_000
"""Steps left beyond which a slope threatens nobody."""

GROWN = 20
"""One part in so many of the card by which a neighbour must have grown."""
SOON_S = 600.0
"""A neighbour's pace counts where it fills the card within that time."""
QUIET_S = 10.0
"""A neighbour that took nothing for so long has no pace any more."""

RETRIES = 3
"""Allocations within a minute that needed a flush, from which on it is pressure."""

KEPT = 4
"""One part in so many of the card that is reserved and unused."""
NEARLY_FULL = 10
"""Less than one part in so many is free."""


def growth(trend: Trend, room: Amount, step_seconds: float | None) -> Finding | None:
    """Live memory that grows by about the same every step. ``room`` is what a step's peak may still add."""
    if not trend.steady or trend.units < LEAST_STEPS or trend.slope_bytes < LEAST_SLOPE_BYTES:
        return None
    left = max(0, room.low_bytes) // trend.slope_bytes
    if left > MOST_LEFT:
        return None
    time = f", about {format_seconds(left * step_seconds)}" if step_seconds is not None and left else ""
    return Finding(
        Verdict.GROWTH,
        Strength.SUPPORTED,
        f"grows by {format_bytes(trend.slope_bytes)} a {trend.unit}: {_about(left)} {trend.unit}s left{time}",
        (
            Evidence(
                f"median slope {format_bytes(trend.slope_bytes)} a {trend.unit}, over {trend.units} of them",
                "allocated at the same point of each",
                trend.slope_bytes,
                trend.slope_bytes,
            ),
            *figure("grown since the first of them", trend.grown),
            *figure("room above the last step's peak", room),
        ),
        check="whether inputs become longer, or a list, a metric or a log keeps tensors with their graph: "
        "loss, not loss.item()",
        trial="keep loss.detach() (or .item()) wherever a result is stored, and nothing else",
    )


def optimizer_state(name: str, state: Amount, room: Amount) -> Finding | None:
    """The first optimizer step will make more state than there is room for."""
    if not state.certainly_at_least(room) or not state.low_bytes:
        return None
    return Finding(
        Verdict.OPTIMIZER_STATE,
        Strength.SUPPORTED,
        f"{name}'s first step makes {state.say()} of state; there is room for {room.say()}",
        (
            *figure("state that the first step makes", state),
            *figure("free, and idle in PyTorch's pools", room),
            *word("figures of the first backward; gradients that are still to come take more", "recording"),
        ),
        check="parameters × the optimizer's moments: Adam adds twice the bytes of the parameters",
        trial="keep everything and use an optimizer with smaller state (8-bit, or sharded over the ranks)",
    )


@dataclass(frozen=True)
class Rise:
    """What another process took since it held least, as the driver's lists show it."""

    grew: Amount
    seconds: float
    """Since it held least."""
    at_once: Amount
    """The most it took between two readings."""
    quiet_seconds: float
    """Since it last took any."""

    @property
    def has_pace(self) -> bool:
        """Taken little by little, and still going on: what came at one stroke may never come again."""
        return 2 * self.at_once.high_bytes <= self.grew.low_bytes and self.quiet_seconds <= QUIET_S


def neighbour(name: str, rise: Rise, free: Amount, total: Amount) -> Finding | None:
    """Another process that will fill the card soon, or has taken more of it than it left."""
    if rise.grew.low_bytes * GROWN < total.low_bytes or rise.seconds <= 0:
        return None
    took = f"took {rise.grew.say()} in {format_seconds(rise.seconds)}"
    if rise.has_pace:
        until = free.low_bytes * rise.seconds / rise.grew.low_bytes
        if until > SOON_S:
            return None
        headline = f"{name} fills the card in {format_seconds(until)} at its pace: it {took}"
    elif free.certainly_below(rise.grew):
        headline = f"{name} {took}, more than the {free.say()} that it left free"
    else:
        return None
    return Finding(
        Verdict.OTHER_PROCESS,
        Strength.SUPPORTED,
        headline,
        (
            *figure(f"{name} grew by", rise.grew),
            *figure("of this between two readings", rise.at_once),
            *figure("free", free),
            *figure("total", total),
        ),
        check="on the host: ps -o pid,user,etime,cmd of that process",
        trial="a card that nobody else holds",
    )


def pressure(retries: int, seconds: float) -> Finding | None:
    """Allocations that went through only after PyTorch had given its cache back."""
    if retries < RETRIES:
        return None
    return Finding(
        Verdict.PRESSURE,
        Strength.SUPPORTED,
        f"{retries} allocations in {format_seconds(seconds)} needed a flush: the card is full at its peaks",
        word(f"num_alloc_retries rose by {retries}", "counters"),
        check="reserved beside free at a step's peak: the next larger input will not fit",
        trial="a slightly smaller micro-batch: see whether the flushes, and the time they take, go away",
    )


def kept_idle(reserved_idle: Amount, free: Amount, total: Amount) -> Finding | None:
    """A state, no fault: most of a full card is what PyTorch keeps for its own process."""
    if reserved_idle.low_bytes * KEPT < total.high_bytes or free.high_bytes * NEARLY_FULL > total.low_bytes:
        return None
    return Finding(
        Verdict.RESERVED_IDLE,
        Strength.SUPPORTED,
        f"keeps {reserved_idle.say()} reserved and unused; {free.say()} of the card are free",
        (
            *word(
                "its own next allocations find room there; other processes and libraries do not", "allocator"
            ),
            *figure("reserved, unused", reserved_idle),
            *figure("free", free),
            *figure("total", total),
        ),
        check="the phase in which reserved rose: it keeps the size of that peak",
    )


def _about(count: int) -> str:
    """Two figures are enough for a forecast."""
    if count < 100:
        return str(count)
    power = 10 ** (len(str(count)) - 2)
    return f"{round(count / power) * power:,}"

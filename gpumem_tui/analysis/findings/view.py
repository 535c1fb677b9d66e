"""One failure with what follows from its figures: shares of the card, and the evidence they make.

A share of the card counts as significant from a tenth of it: below that, giving it
back would only move the failure to the next allocation.
"""

import msgspec

from gpumem_tui.analysis.findings.amounts import Amount
from gpumem_tui.analysis.findings.finding import Evidence, figure, word
from gpumem_tui.analysis.findings.holders import USUAL_OUTSIDE_BYTES, Holders, resolve
from gpumem_tui.analysis.findings.situation import Situation

SIGNIFICANT = 10
"""One part in so many of the card."""


class View(msgspec.Struct, frozen=True):
    """The situation with what follows from it."""

    s: Situation
    holders: Holders
    outside: Amount | None
    """This process's memory outside PyTorch."""
    unnamed: Amount | None
    """On the card, neither free nor reserved by PyTorch here: contexts, others, driver."""


def view_of(s: Situation) -> View:
    """The situation with what can be computed from it."""
    s = complete(s)
    holders = resolve(s)
    outside = holders.own - s.reserved if holders.own and s.reserved else None
    unnamed = s.total - s.free - s.reserved if s.total and s.free and s.reserved else None
    return View(s, holders, outside, unnamed)


def complete(s: Situation) -> Situation:
    """Reserved = allocated + idle, whichever of the three is missing."""
    if s.reserved is None and s.allocated is not None and s.idle is not None:
        return msgspec.structs.replace(s, reserved=s.allocated + s.idle)
    if s.idle is None and s.reserved is not None and s.allocated is not None:
        idle = s.reserved - s.allocated
        idle = Amount(max(0, idle.low_bytes), max(0, idle.high_bytes), "reserved − allocated")
        return msgspec.structs.replace(s, idle=idle)
    return s


def live_of(s: Situation) -> Amount | None:
    """Allocated without private pools, of which some may be free."""
    if s.allocated is None or s.private_pools is None:
        return s.allocated
    live = s.allocated - s.private_pools
    return Amount(max(0, live.low_bytes), s.allocated.high_bytes, live.source)


def live_share(s: Situation) -> float | None:
    """The share of the card that is live for certain; None where a figure is missing."""
    live = live_of(s)
    if live is None or not s.total or not s.total.high_bytes:
        return None
    return live.low_bytes / s.total.high_bytes


def whole(view: View) -> bool:
    """Whether every share of the card that could matter is known to be small."""
    s = view.s
    return (
        s.idle is not None
        and view.unnamed is not None
        and not significant(view.unnamed, s, USUAL_OUTSIDE_BYTES)
    )


def significant(amount: Amount, s: Situation, least_bytes: int = 0) -> bool:
    """Whether an amount is a share of the card worth speaking of, and at least so much."""
    whole = s.total or s.reserved
    if whole is None:
        return False
    return amount.low_bytes >= max(whole.high_bytes // SIGNIFICANT, least_bytes)


def would_do(amount: Amount, s: Situation) -> bool:
    """Whether this amount, given back, would certainly have made room."""
    if s.requested is None:
        return False
    return (s.free + amount if s.free is not None else amount).certainly_at_least(s.requested)


def basis(s: Situation) -> tuple[Evidence, ...]:
    """The figures that every verdict rests on."""
    return (
        *figure("requested", s.requested),
        *figure("free", s.free),
        *figure("total", s.total),
        *figure("allocated", s.allocated),
        *figure("reserved, unallocated", s.idle),
    )


def rounding(s: Situation) -> tuple[Evidence, ...]:
    """A word where rounding makes free look as large as the request."""
    if s.free is None or s.requested is None or s.free.certainly_below(s.requested):
        return ()
    return word("free and the request print alike: as printed, free may have been the smaller", "rounding")


def hint(s: Situation) -> tuple[Evidence, ...]:
    """What the figures say of the hint that the message prints in every case."""
    if s.hint not in ("expandable_segments", "max_split_size_mb") or not (s.free and s.idle and s.requested):
        return ()
    reach = s.free + s.idle
    if reach.certainly_below(s.requested):
        return word(
            f"the hint ({s.hint}) could not have helped: free and unallocated together are {reach.say()}",
            "message",
        )
    if not significant(s.idle, s):
        return word(f"the hint ({s.hint}) could give back {s.idle.say()} at most", "message")
    return word(f"the hint ({s.hint}) may help: free and unallocated together are {reach.say()}", "message")


def trap(view: View) -> tuple[Evidence, ...]:
    """A word where this process was recognised under another number."""
    if view.holders.own_pid is None:
        return ()
    return word(
        f"process {view.holders.own_pid} in the list is this process itself, under its number outside "
        "the container: the card has no room for both",
        "total − free − listed",
    )

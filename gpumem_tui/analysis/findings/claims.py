"""A claim: one explanation that the figures of a recording speak for, and of which nature it is.

Claims are made by ``neighbours``, ``inside`` and ``needs``; ``recorded`` weighs them.
"""

from enum import Enum

import msgspec

from gpumem_tui.analysis.findings.amounts import Amount
from gpumem_tui.analysis.findings.finding import Evidence, Finding, figure
from gpumem_tui.analysis.findings.situation import Growth, Situation
from gpumem_tui.analysis.findings.view import significant, would_do
from gpumem_tui.units import format_seconds


class Nature(Enum):
    """What kind of explanation it is."""

    CHANGED = "it changed while the run lasted, and before that there was room"
    STANDING = "it was so all the time"
    NEED = "what this phase needs by itself"


class Claim(msgspec.Struct, frozen=True):
    """A finding, and its nature."""

    nature: Nature
    finding: Finding


def counts(amount: Amount | None, s: Situation) -> bool:
    """Whether an amount would have made room, and is a share of the card worth speaking of."""
    return amount is not None and would_do(amount, s) and significant(amount, s)


def short(s: Situation) -> tuple[Evidence, ...]:
    """By how much the request did not fit."""
    if s.requested is None or s.free is None:
        return ()
    return figure("short by", Amount.exact(max(0, (s.requested - s.free).low_bytes), "requested − free"))


def when(growth: Growth) -> str:
    """``in phase rollout, from 12 s before the failure``."""
    during = f"in {growth.during}, " if growth.during else ""
    return f"{during}from {format_seconds(growth.seconds)} before the failure"

"""Weighs the explanations of a failure of the device allocator against each other."""

import msgspec

from gpumem_tui.analysis.findings import explanations as why
from gpumem_tui.analysis.findings.finding import Finding, Strength, Verdict
from gpumem_tui.analysis.findings.situation import Situation
from gpumem_tui.analysis.findings.view import complete, live_of, live_share, view_of, whole

MOSTLY_LIVE = 0.8
"""From this share of the card on, live tensors are what fills it, if nothing else is significant."""


def memory_findings(s: Situation) -> tuple[Finding, ...]:
    """The verdict on the memory of the device, then what else the figures allow."""
    view = view_of(s)
    s = view.s
    if (conflict := why.conflict(view)) is not None:
        return (conflict,)
    if (capped := why.cap(view)) is not None:
        return (capped,)
    if s.requested is None:
        return ()
    if s.free is not None and s.free.certainly_at_least(s.requested):
        return (why.free_not_usable(view),)
    live = live_of(s)
    too_much = s.total is not None and live is not None and not (live + s.requested).certainly_below(s.total)
    certain = s.total is not None and (
        s.requested.certainly_at_least(s.total)
        or (live is not None and (live + s.requested).certainly_at_least(s.total))
    )
    explain = (why.fragmentation, why.neighbour, why.outside, why.pools, why.unnamed)
    others = [finding for finding in (look(view) for look in explain) if finding is not None]
    if certain:
        return (why.capacity(view, Strength.SUPPORTED), *_weakened(others), *why.same_size(view))
    if len(others) == 1 and not too_much:
        return (others[0], *why.same_size(view))
    if others:
        return (why.several(view, others), *_weakened(others), *why.same_size(view))
    if (share := live_share(s)) is not None and share >= MOSTLY_LIVE:
        return (why.capacity(view, Strength.SUPPORTED if whole(view) else Strength.POSSIBLE),)
    if missing := missing_figures(s):
        return (why.thin(view, missing),)
    return (why.together(view),)


def missing_figures(s: Situation) -> tuple[str, ...]:
    """Which figures a verdict would have needed."""
    s = complete(s)
    names = ("requested", "total", "free", "allocated", "idle")
    words = ("the request", "the card's total", "free on the card", "allocated", "reserved but unallocated")
    return tuple(word for name, word in zip(names, words, strict=True) if getattr(s, name) is None)


def _weakened(findings: list[Finding]) -> tuple[Finding, ...]:
    return tuple(
        msgspec.structs.replace(f, strength=Strength.POSSIBLE)
        for f in findings
        if f.verdict is not Verdict.UNKNOWN
    )

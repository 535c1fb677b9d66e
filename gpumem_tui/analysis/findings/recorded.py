"""Weighs the explanations of a failure of the device allocator that was recorded.

A recording has what a message has not: exact figures, what changed before the
failure, and who is who. So one thing that *changed* leads over things that were so
all the time; two that changed, and would each have done, are "unknown".
"""

import msgspec

from gpumem_tui.analysis.findings import explanations as why
from gpumem_tui.analysis.findings import inside, needs, neighbours
from gpumem_tui.analysis.findings.amounts import Amount
from gpumem_tui.analysis.findings.claims import Claim, Nature, short
from gpumem_tui.analysis.findings.finding import Evidence, Finding, Strength, Verdict, figure
from gpumem_tui.analysis.findings.phases import trial_of
from gpumem_tui.analysis.findings.situation import Situation, Training
from gpumem_tui.analysis.findings.view import View, basis, live_of, significant, view_of
from gpumem_tui.units import format_bytes

CLAIMS = (
    neighbours.stranger,
    neighbours.orphans,
    neighbours.ranks,
    neighbours.strays,
    neighbours.unlisted,
    inside.per_step,
    inside.per_batch,
    inside.kept_by_a_failure,
    inside.outside_grew,
    inside.in_pieces,
    inside.in_other_streams,
    inside.in_private_pools,
    inside.larger_than_training,
    needs.first_optimizer_step,
    needs.loading,
)
"""All explanations, in the order in which equals are named."""

OWN = (
    inside.per_step,
    inside.per_batch,
    inside.kept_by_a_failure,
    inside.in_pieces,
    inside.in_other_streams,
    inside.larger_than_training,
    needs.first_optimizer_step,
    needs.loading,
)
"""Those of what the process itself has reserved."""

REST = 5
"""One part in so many: where more of the card than that is not live, it is not called full of it."""


def recorded_findings(s: Situation) -> tuple[Finding, ...]:
    """The verdict, then what else is possible."""
    view = view_of(s)
    s = view.s
    if (conflict := why.conflict(view)) is not None:
        return (conflict,)
    if (capped := why.cap(view)) is not None:
        return (capped, *_possible(_under_the_cap(s)))
    if absent := _absent(s):
        return (_thin(view, absent),)
    assert s.requested is not None and s.total is not None and s.free is not None
    if s.free.certainly_at_least(s.requested):
        return (why.free_not_usable(view),)
    claims = [claim for claim in (look(view) for look in CLAIMS) if claim is not None]
    if s.requested.certainly_at_least(s.total):
        return (_capacity(view), *_possible(claims))
    return _weigh(view, claims)


def _under_the_cap(s: Situation) -> list[Claim]:
    """What brought the process to its cap: the cap is its card."""
    if s.cap is None or s.reserved is None:
        return []
    room = Amount.exact(max(0, (s.cap - s.reserved).low_bytes), "cap − reserved")
    view = view_of(msgspec.structs.replace(s, total=s.cap, free=room))
    return [claim for claim in (look(view) for look in OWN) if claim is not None]


def _weigh(view: View, claims: list[Claim]) -> tuple[Finding, ...]:
    changed = [c for c in claims if c.nature is Nature.CHANGED]
    standing = [c for c in claims if c.nature is Nature.STANDING]
    need = [c for c in claims if c.nature is Nature.NEED]
    leading = changed or standing
    if len(leading) == 1:
        rest = [c for c in claims if c is not leading[0]]
        return (leading[0].finding, *_possible(rest))
    if leading:
        return (_several(view, leading), *_possible(claims))
    if _certain(view) or _full_of_live(view):
        if len(need) == 1:
            return (need[0].finding, *_possible([Claim(Nature.NEED, _capacity(view))]))
        return (_capacity(view), *_possible(need))
    return (_together(view), *_possible(need))


def _absent(s: Situation) -> tuple[str, ...]:
    names = {
        "requested": "the request",
        "total": "the card's total",
        "free": "free on the card",
        "allocated": "allocated",
        "reserved": "reserved",
    }
    return tuple(says for name, says in names.items() if getattr(s, name) is None)


def _certain(view: View) -> bool:
    s, live = view.s, live_of(view.s)
    if live is None or s.requested is None or s.total is None:
        return False
    return (live + s.requested).certainly_at_least(s.total)


def _full_of_live(view: View) -> bool:
    """Whether little is neither live nor asked for, and who holds that is known."""
    s = view.s
    assert s.total is not None and s.free is not None and s.allocated is not None
    rest = s.total - s.free - s.allocated
    if rest.high_bytes * REST > s.total.low_bytes:
        return False
    unknown = view.holders.own is None and view.unnamed is not None and significant(view.unnamed, s)
    return not unknown


def _capacity(view: View) -> Finding:
    s = view.s
    found = why.capacity(view, Strength.SUPPORTED)
    t = s.training
    made_of = (
        *figure("parameters", t.parameters),
        *figure("gradients", t.gradients),
        *figure("optimizer state", t.optimizer_state),
        *figure("live tensors of no such kind", t.live_other),
        *_largest(t),
    )
    return msgspec.structs.replace(
        found,
        evidence=(*found.evidence, *short(s), *made_of, *inside.too_little_in_pieces(s), *inside.released(s)),
        trial=trial_of(s),
    )


def _largest(t: Training) -> tuple[Evidence, ...]:
    """The largest tensor that is no state, where it is known what it is."""
    if t.largest_other is None or t.largest_other_is is None:
        return ()
    return figure(f"largest of them, {t.largest_other_is},", t.largest_other)


def _possible(claims: list[Claim]) -> tuple[Finding, ...]:
    return tuple(msgspec.structs.replace(c.finding, strength=Strength.POSSIBLE) for c in claims)


def _several(view: View, claims: list[Claim]) -> Finding:
    names = [c.finding.verdict.value for c in claims]
    changed = claims[0].nature is Nature.CHANGED
    told = f"{', '.join(names[:-1])} and {names[-1]}"
    return Finding(
        Verdict.UNKNOWN,
        Strength.UNDECIDED,
        f"more than one thing {'changed' if changed else 'holds memory'}, each enough by itself: {told}",
        (*basis(view.s), *short(view.s)),
        check=claims[0].finding.check,
        trial=claims[0].finding.trial,
        missing=("a run in which only one of them is so",),
    )


def _together(view: View) -> Finding:
    s = view.s
    shares = (
        *figure("outside PyTorch", view.outside),
        *figure("other processes", view.holders.others),
        *figure("unattributed", s.unlisted),
    )
    trend = _weak_trend(s)
    missing = []
    if view.holders.own is None:
        missing.append(f"what this process holds by the driver's word ({s.list_reason or 'not listed'})")
    if view.holders.others is None:
        missing.append(
            f"what other processes hold ({s.list_reason or view.holders.undecided or 'not listed'})"
        )
    if s.holes is None and s.idle is not None and significant(s.idle, s):
        missing.append("how the idle memory lies (pools)")
    return Finding(
        Verdict.UNKNOWN,
        Strength.UNDECIDED,
        "several shares fill the card together, and none of them alone explains the failure",
        (*basis(s), *short(s), *shares, *trend, *inside.too_little_in_pieces(s), *inside.released(s)),
        check="compare the ledger at the failure with the one of a step before: which share differs",
        missing=tuple(missing) or ("which share grew last",),
    )


def _weak_trend(s: Situation) -> tuple[Evidence, ...]:
    """A slope that is too short or too small to lead."""
    trend = s.eval_trend if s.eval_trend is not None else s.trend
    if trend is None or trend.slope_bytes <= 0:
        return ()
    return (
        Evidence(
            f"allocated rose by {format_bytes(trend.slope_bytes)} a {trend.unit} over {trend.units}: "
            "too little or too few to be the cause",
            "allocated at the same point of each",
        ),
    )


def _thin(view: View, absent: tuple[str, ...]) -> Finding:
    return Finding(
        Verdict.UNKNOWN,
        Strength.UNDECIDED,
        f"not decided by this recording: {', '.join(absent)} {'is' if len(absent) == 1 else 'are'} missing",
        (*basis(view.s), *short(view.s)),
        check="the notes of the recording say what could not be read, and why",
        missing=absent,
    )

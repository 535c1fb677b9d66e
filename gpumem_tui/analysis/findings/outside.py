"""The driver, a library or a collective had no memory, while PyTorch may hold plenty idle."""

from gpumem_tui.analysis.findings.finding import Evidence, Finding, Strength, Verdict, figure, word
from gpumem_tui.analysis.findings.situation import Situation
from gpumem_tui.analysis.findings.view import complete

_PLENTY = 10
"""Where more than one part in so many of the card is free, a library's failure is not called memory."""
_MOMENT = "free and the process list of the device at that moment"


def outside(s: Situation) -> Finding:
    """The driver, a library or NCCL had no memory, while PyTorch may hold plenty idle."""
    what = s.call or f"a {s.backend or 'CUDA'} call"
    evidence = (*word(f"the message names {what}", "message"), *figure("it asked for", s.requested))
    if s.recorded and s.free is not None and s.total is not None:
        return recorded_outside(s, what, evidence)
    if not s.certain:
        return Finding(
            Verdict.UNKNOWN,
            Strength.UNDECIDED,
            f"a call outside PyTorch's allocator failed ({what}); "
            "a device without free memory is one cause of several",
            evidence,
            check="watch free on the device up to this call: near 0 means memory, otherwise another cause",
            missing=(_MOMENT, "a message that says memory"),
        )
    return Finding(
        Verdict.OUTSIDE_PYTORCH,
        Strength.SUPPORTED,
        f"the driver had no memory left for a call outside PyTorch's allocator ({what}); "
        "what PyTorch keeps reserved was not available to it",
        evidence,
        check="compare reserved with device used just before this call: only what is free can be given",
        trial="a smaller batch, so that PyTorch reserves less: see whether this same call succeeds",
        missing=(_MOMENT, "reserved and allocated of this process"),
    )


def recorded_outside(s: Situation, what: str, evidence: tuple[Evidence, ...]) -> Finding:
    """With the driver's figures of that moment: full, or not."""
    s = complete(s)
    assert s.free is not None and s.total is not None
    figures = (
        *evidence,
        *figure("free", s.free),
        *figure("total", s.total),
        *figure("allocated", s.allocated),
        *figure("reserved, unallocated", s.idle),
    )
    more = s.requested is not None and s.requested.certainly_at_least(s.free)
    if s.free.low_bytes * _PLENTY > s.total.high_bytes and not more:
        reading = (
            f"{what} found no memory while {s.free.say()} of the card were free: it asked for more than that "
            "at once, or memory is not the reason"
            if s.certain and s.requested is None
            else f"{what} failed while {s.free.say()} of the card were free: memory is not the likely reason"
        )
        return Finding(
            Verdict.UNKNOWN,
            Strength.UNDECIDED,
            reading,
            figures,
            check="the library's own log (CUBLAS_LOGINFO_DBG=1, NCCL_DEBUG=INFO) for its first error",
            missing=("how much the call had asked for",) if s.requested is None else ("why it failed",),
        )
    asked = f", which asked for {s.requested.say()}" if s.requested is not None and more else ""
    idle = s.idle is not None and s.idle.certainly_at_least(s.free)
    kept = f", while PyTorch kept {s.idle.say()} reserved and unused" if idle and s.idle is not None else ""
    return Finding(
        Verdict.RESERVED_IDLE if idle else Verdict.OUTSIDE_PYTORCH,
        Strength.SUPPORTED,
        f"the driver had {s.free.say()} left for {what}{asked}{kept}",
        figures,
        check="compare reserved with device used just before this call: only what is free can be given",
        trial="let that call run once before the largest step (a warm-up), so that it has its memory first"
        if idle
        else "a smaller batch, so that PyTorch reserves less: see whether this same call succeeds",
    )

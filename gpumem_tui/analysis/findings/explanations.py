"""One small function for each thing that can stand between a request and the card.

Each looks at one explanation and gives its finding, or None where the figures do not
speak for it. Which of them leads is decided in ``device``.
"""

from gpumem_tui.analysis.findings.finding import Evidence, Finding, Strength, Verdict, figure, word
from gpumem_tui.analysis.findings.holders import USUAL_OUTSIDE_BYTES
from gpumem_tui.analysis.findings.phases import capacity_trial
from gpumem_tui.analysis.findings.situation import Kind, Situation
from gpumem_tui.analysis.findings.view import View, basis, hint, rounding, significant, trap, would_do


def conflict(view: View) -> Finding | None:
    """Figures that cannot all be true of one card."""
    s = view.s
    wrong = []
    if s.total is not None:
        if s.allocated is not None and s.total.certainly_below(s.allocated):
            wrong.append("allocated is more than the card has: the driver lends host memory (Windows, WSL)")
        if s.free is not None and s.total.certainly_below(s.free):
            wrong.append("free is more than the card has: memory shared with the host, or another's figure")
        if not wrong and s.free and s.reserved and s.total.certainly_below(s.free + s.reserved):
            wrong.append("free and reserved together are more than the card has")
    if not wrong:
        return None
    return Finding(
        Verdict.UNKNOWN,
        Strength.UNDECIDED,
        "the figures contradict each other, so they decide nothing",
        tuple(Evidence(text, "message") for text in wrong) + basis(s),
        check="read the device with nvidia-smi while it runs, and compare with torch.cuda.mem_get_info()",
        missing=("figures of the card that agree",),
    )


def cap(view: View) -> Finding | None:
    """The process's own limit, where the text prints one or names it."""
    s = view.s
    if s.kind is Kind.MPS:
        return mps(s)
    if s.kind is Kind.REJECTED:
        return Finding(
            Verdict.CAP,
            Strength.SUPPORTED,
            "the process's own cap refused it before the driver was asked: set_per_process_memory_fraction",
            (*word("rejected in advance", "message"), *figure("requested", s.requested)),
            check="print torch.cuda.get_per_process_memory_fraction()",
            trial="run once without the fraction",
            missing=("the cap, reserved and free",),
        )
    if s.cap is None or s.requested is None or s.reserved is None:
        return None
    if not (s.reserved + s.requested).certainly_at_least(s.cap):
        return None
    free = s.free is not None and s.free.certainly_at_least(s.requested)
    return Finding(
        Verdict.CAP,
        Strength.SUPPORTED,
        f"this process may reserve {s.cap.say()} and has {s.reserved.say()}: "
        f"{s.requested.say()} more is over its cap"
        + (f", with {s.free.say()} of the card free" if free and s.free else ""),
        (*figure("cap", s.cap), *basis(s)),
        check="print torch.cuda.get_per_process_memory_fraction()",
        trial="run once without the fraction" if free else capacity_trial(s.phase),
    )


def mps(s: Situation) -> Finding | None:
    """The share of the machine's memory that MPS may take."""
    if s.cap is None or s.allocated is None or s.requested is None:
        return None
    held = s.allocated + s.other_allocations if s.other_allocations is not None else s.allocated
    return Finding(
        Verdict.CAP,
        Strength.SUPPORTED if (held + s.requested).certainly_at_least(s.cap) else Strength.POSSIBLE,
        f"MPS allows {s.cap.say()} of the shared memory; {held.say()} are taken and "
        f"{s.requested.say()} were asked for",
        (
            *figure("allowed", s.cap),
            *figure("allocated", s.allocated),
            *figure("other allocations", s.other_allocations),
            *figure("requested", s.requested),
        ),
        check="compare with torch.mps.recommended_max_memory() and what other programs hold",
        trial=capacity_trial(s.phase),
    )


def free_not_usable(view: View) -> Finding:
    """As much was free as was asked: a fact, and no cause."""
    s = view.s
    assert s.free is not None and s.requested is not None
    missing = ["the reason why the driver refused"]
    if s.cap is None:
        missing.append("whether a per-process cap was set")
    return Finding(
        Verdict.FREE_NOT_USABLE,
        Strength.UNDECIDED,
        f"{s.free.say()} were free and {s.requested.say()} were refused: the card was not full",
        (*basis(s), *figure("in private pools", s.private_pools), *hint(s), *trap(view)),
        check="look for a memory fraction, a limit of Windows or WSL, a MIG or vGPU slice, "
        "or another process that gave memory back between the failure and the message",
        trial="allocate the same size alone, in a new process on the same machine",
        missing=tuple(missing),
    )


def capacity(view: View, strength: Strength) -> Finding:
    """What is live, with the request, does not fit."""
    s = view.s
    assert s.requested is not None
    if s.total is not None and s.requested.certainly_at_least(s.total):
        headline = f"one request of {s.requested.say()} is more than the whole card has ({s.total.say()})"
    elif s.allocated is not None and s.total is not None:
        need = s.allocated + s.requested
        if need.certainly_at_least(s.total):
            headline = f"live tensors and the request need {need.say()}, and the card has {s.total.say()}"
        else:
            headline = (
                f"live tensors fill the card: {s.allocated.say()} of {s.total.say()}, "
                f"and {s.requested.say()} more were asked for"
            )
    else:
        headline = "what is live, with the request, does not fit"
    return Finding(
        Verdict.CAPACITY,
        strength,
        headline,
        (*basis(s), *figure("outside PyTorch", view.outside), *trap(view), *rounding(s), *hint(s)),
        check="see which of parameters, gradients, optimizer state and activations make up allocated",
        trial=capacity_trial(s.phase),
        missing=() if strength is Strength.SUPPORTED else ("who holds the rest of the card",),
    )


def fragmentation(view: View) -> Finding | None:
    """Idle memory larger than the request, after PyTorch has given back all whole segments."""
    s = view.s
    if s.idle is None or s.requested is None:
        return None
    if not s.idle.certainly_at_least(s.requested) or not significant(s.idle, s):
        return None
    setting = "expandable_segments:True" if s.hint != "max_split_size_mb" else "max_split_size_mb:128"
    trial = f"the same run with PYTORCH_CUDA_ALLOC_CONF={setting}, and nothing else changed"
    if s.expandable_segments:
        trial = "pad inputs to a few fixed sizes; expandable segments are already on"
    return Finding(
        Verdict.FRAGMENTATION,
        Strength.SUPPORTED,
        f"PyTorch held {s.idle.say()} that nobody used and could not serve {s.requested.say()}: "
        "no free piece was large enough",
        (*basis(s), *trap(view), *hint(s)),
        check="look at the largest free block of the pool (torch.cuda.memory_snapshot): below the request",
        trial=trial,
    )


def neighbour(view: View) -> Finding | None:
    """What other processes hold would have made the difference."""
    s, h = view.s, view.holders
    if h.others is None or not h.who or not would_do(h.others, s) or not significant(h.others, s):
        return None
    holds = "another process holds" if len(h.who) == 1 else f"{len(h.who)} other processes hold"
    pids = ",".join(str(n.pid) for n in h.who[:8])
    return Finding(
        Verdict.OTHER_PROCESS,
        Strength.SUPPORTED,
        f"{holds} {h.others.say()} of this card; without that the request would have fit",
        (
            *(e for n in h.who[:6] for e in figure(f"process {n.pid} holds", n.used)),
            *basis(s),
            *trap(view),
            *rounding(s),
            *hint(s),
        ),
        check=f"on the host: ps -o pid,user,etime,cmd -p {pids}",
        trial="the same run on a card that nobody else holds",
    )


def outside(view: View) -> Finding | None:
    """The process itself, beside PyTorch's allocator."""
    s = view.s
    if view.outside is None or not would_do(view.outside, s):
        return None
    if not significant(view.outside, s, USUAL_OUTSIDE_BYTES):
        return None
    return Finding(
        Verdict.OUTSIDE_PYTORCH,
        Strength.SUPPORTED,
        f"this process holds {view.outside.say()} outside PyTorch's allocator: "
        "more than a context usually takes",
        (*figure("this process holds", view.holders.own), *basis(s), *trap(view), *hint(s)),
        check="see in which phase it grew: first collective, graph capture, another library",
        trial="the same run without the library or the communicator that came last",
    )


def pools(view: View) -> Finding | None:
    """Private pools, whose free share counts as allocated in the message."""
    s = view.s
    if s.private_pools is None or not would_do(s.private_pools, s) or not significant(s.private_pools, s):
        return None
    return Finding(
        Verdict.PRIVATE_POOLS,
        Strength.POSSIBLE,
        f"{s.private_pools.say()} are in private pools (graphs), counted as allocated even where free",
        (*figure("in private pools", s.private_pools), *basis(s)),
        check="compare allocated_bytes.all.current with the message's: the rest is free in pools",
        trial="run once without graph capture",
    )


def unnamed(view: View) -> Finding | None:
    """A significant share of the card that the text gives to nobody."""
    s, unnamed = view.s, view.unnamed
    if unnamed is None or view.holders.own is not None or view.holders.others is not None:
        return None
    if not would_do(unnamed, s) or not significant(unnamed, s, USUAL_OUTSIDE_BYTES):
        return None
    return Finding(
        Verdict.UNKNOWN,
        Strength.UNDECIDED,
        f"{unnamed.say()} of the card are held by somebody whom the text does not name: "
        "other processes, or this one outside PyTorch",
        (*basis(s), *word(view.holders.undecided or "", "message"), *hint(s)),
        check="nvidia-smi on the host while it runs: who holds what beside this process",
        missing=("which process holds it",),
    )


def same_size(view: View) -> tuple[Finding, ...]:
    """Three or more listed processes of one size."""
    told = [n.used for n in view.s.neighbours if n.used is not None]
    if len(told) < 3:
        return ()
    most, least = max(a.high_bytes for a in told), min(a.low_bytes for a in told)
    if most - least > most // 20:
        return ()
    return (
        Finding(
            Verdict.SAME_SIZE_PROCESSES,
            Strength.POSSIBLE,
            f"{len(told)} listed processes hold about the same, {told[0].say()} each: "
            "ranks that all use this card, or contexts that strayed onto it",
            tuple(e for n in view.s.neighbours[:6] for e in figure(f"process {n.pid} holds", n.used)),
            check="whether each rank calls torch.cuda.set_device(local_rank) before anything else",
            trial="set CUDA_VISIBLE_DEVICES for each rank, and nothing else",
        ),
    )


def several(view: View, others: list[Finding]) -> Finding:
    """More than one explanation would do."""
    if len(others) == 1 and others[0].verdict is Verdict.UNKNOWN:
        return others[0]
    names = [f.verdict.value if f.verdict is not Verdict.UNKNOWN else "an unnamed holder" for f in others]
    if len(names) == 1:
        names.append("capacity")
    return Finding(
        Verdict.UNKNOWN,
        Strength.UNDECIDED,
        f"the figures allow more than one explanation: {' and '.join(names)}",
        (*basis(view.s), *trap(view), *rounding(view.s), *hint(view.s)),
        check="run it once more with gpumem-tui run: it shows which of them changed before the failure",
        missing=("which of them grew last",),
    )


def thin(view: View, missing: tuple[str, ...]) -> Finding:
    """The figures that would decide are not there."""
    return Finding(
        Verdict.UNKNOWN,
        Strength.UNDECIDED,
        f"not decided by this text: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
        (*basis(view.s), *rounding(view.s), *hint(view.s)),
        check="run it once more with gpumem-tui run: it keeps the figures of that moment",
        missing=missing,
    )


def together(view: View) -> Finding:
    """Every figure is there, and no single share would have done."""
    missing = () if view.holders.undecided is None else (view.holders.undecided,)
    return Finding(
        Verdict.UNKNOWN,
        Strength.UNDECIDED,
        "several shares fill the card together, and none of them alone explains the failure",
        (
            *basis(view.s),
            *figure("not reserved and not free", view.unnamed),
            *trap(view),
            *rounding(view.s),
            *hint(view.s),
        ),
        check="run it once more with gpumem-tui run: it shows which share grew",
        missing=missing or ("which share grew last",),
    )

"""Failures of other frameworks' allocators, and servers that refuse to start: from what their text tells.

They keep pools of their own, with caps of their own: the card may have room while the pool
has none. Refuses to say what only the driver could tell.
"""

from gpumem_tui.analysis.findings.amounts import Amount
from gpumem_tui.analysis.findings.finding import Evidence, Finding, Strength, Verdict, figure, word
from gpumem_tui.analysis.findings.outside import recorded_outside
from gpumem_tui.analysis.findings.situation import Situation
from gpumem_tui.units import GIB, TIB

_NO_CARD_BYTES = 64 * TIB
"""No device has so much: the size was computed wrongly."""

_SMALLER = "the same run with half the batch, and nothing else"
_LARGER_POOL = {
    "JAX or TensorFlow": "the same run with XLA_PYTHON_CLIENT_MEM_FRACTION=.95 (JAX takes .75 of the card "
    "unless told), and nothing else",
    "TensorFlow": "the same run with TF_GPU_ALLOCATOR=cuda_malloc_async, and nothing else",
    "ONNX Runtime": "the same session with arena_extend_strategy kSameAsRequested, and nothing else",
    "CuPy": "the same run with a higher CUPY_GPU_MEMORY_LIMIT, and nothing else",
}
"""What changes one thing about a pool that is too small or in pieces."""


def foreign(s: Situation) -> Finding:
    """An allocator that is not PyTorch's had nothing left."""
    who = s.call or "another framework"
    named = (*word(f"the message is of {who}", "message"), *figure("requested", s.requested))
    if s.requested is not None and s.requested.certainly_at_least(_NO_CARD_BYTES):
        return _impossible(s.requested, named)
    if not s.certain:
        return _no_failure(who, named)
    card = (*figure("free on the card", s.free), *figure("total", s.total))
    if s.recorded:  # its figures of a pool are PyTorch's
        if s.free is not None and s.total is not None:
            return recorded_outside(s, who, named)
        return _untold(s, who, (*named, *card))
    told = (
        *named,
        *figure("live in its pool", s.allocated),
        *figure("its pool holds", s.reserved),
        *figure("its pool's limit", s.cap),
        *card,
    )
    if s.cap is not None and s.allocated is not None and s.requested is not None:
        return _pool(s, who, s.cap, s.allocated, s.requested, told)
    if s.free is not None and s.requested is not None:
        return _card(s, who, s.free, s.requested, told)
    return _untold(s, who, told)


def _untold(s: Situation, who: str, told: tuple[Evidence, ...]) -> Finding:
    """Without figures of its pool or of the card."""
    pooled = who not in _WITHOUT_POOL
    unknown = {
        "whose memory it was": who in _OF_HOST_TOO and not s.device_named,
        "how much was asked for": s.requested is None,
        "the limit of its pool, and what is live in it": pooled and (s.recorded or s.cap is None),
        "free and the process list of the device at that moment": s.free is None,
    }
    asked = f" for {s.requested.say()}" if s.requested is not None else ""
    return Finding(
        Verdict.UNKNOWN,
        Strength.UNDECIDED,
        f"{who} found no memory{asked}, and its message does not tell what was in the way: "
        f"{_CAUSES.get(who, 'its own pool, the card, or another process' if pooled else _FULL)}",
        told,
        check="free on the device and who holds it, just before (gpumem-tui top, nvidia-smi)",
        trial=_TRIALS.get(who, _SMALLER),
        missing=tuple(says for says, missing in unknown.items() if missing),
    )


_OF_HOST_TOO = frozenset({"JAX or TensorFlow", "ONNX Runtime"})
"""They run on the host with the same words."""
_WITHOUT_POOL = frozenset({"llama.cpp", "TensorRT"})
"""They ask the driver itself for each buffer."""
_FULL = "the card was full, by what it had loaded before or by others"
_TRIALS = {
    "llama.cpp": "the same start with fewer layers on the card (-ngl), and nothing else",
    "TensorRT": "the same run with a smaller largest shape in its profile, and nothing else",
}
_CAUSES = {
    "JAX or TensorFlow": "JAX takes 75 % of the card at its start, and the rest is not its own; or the card "
    "is full",
    "ONNX Runtime": "the device's arena or the host's, it does not say which",
}


def _impossible(requested: Amount, told: tuple[Evidence, ...]) -> Finding:
    return Finding(
        Verdict.IMPOSSIBLE_SIZE,
        Strength.SUPPORTED,
        f"{requested.say()} were asked for: a size that was computed wrongly, not a card that is full",
        told,
        check="the shape of the input at the failing node: a negative or overflown dimension",
        trial="none with less memory: correct the shape",
    )


def _no_failure(who: str, told: tuple[Evidence, ...]) -> Finding:
    return Finding(
        Verdict.UNKNOWN,
        Strength.UNDECIDED,
        f"{who} got less than it asked for; by itself that ends nothing",
        told,
        check="whether an error follows: without one, the program went on with less",
        missing=("whether the program went on",),
    )


def _pool(
    s: Situation, who: str, cap: Amount, live: Amount, requested: Amount, told: tuple[Evidence, ...]
) -> Finding:
    """With its pool's own figures."""
    larger = _LARGER_POOL.get(who, _SMALLER)
    need, idle = live + requested, s.reserved - live if s.reserved is not None else None
    if cap.certainly_below(need):
        return Finding(
            Verdict.CAPACITY,
            Strength.SUPPORTED,
            f"{live.say()} live and {requested.say()} more do not fit into {who}'s pool of {cap.say()}",
            told,
            check="what is live at this step, and whether the card has more than the pool may take",
            trial=_SMALLER,
        )
    if idle is not None and idle.certainly_at_least(requested):
        return Finding(
            Verdict.FRAGMENTATION,
            Strength.SUPPORTED,
            f"{idle.say()} of {who}'s pool are not in use, and no hole takes {requested.say()}",
            (*told, *figure("not in use in its pool", idle)),
            check="the chunks that the dump lists: live ones between the holes",
            trial=larger,
        )
    if s.reserved is not None and s.reserved.certainly_below(cap):
        return Finding(
            Verdict.UNKNOWN,
            Strength.UNDECIDED,
            f"{who}'s pool may grow to {cap.say()}, has got {s.reserved.say()}, and the driver gave no more",
            told,
            check="who else holds memory on this card (gpumem-tui top, nvidia-smi)",
            missing=("free and the process list of the device at that moment",),
        )
    return Finding(
        Verdict.UNKNOWN,
        Strength.UNDECIDED,
        f"{live.say()} of the {cap.say()} that {who}'s pool may take are live, so {requested.say()} would "
        "fit: the pool is in pieces, or could not grow to its limit",
        told,
        check="total_region_allocated_bytes_ in its dump beside the limit: as large means in pieces",
        trial=larger,
        missing=("how much its pool has got from the driver",),
    )


def _card(s: Situation, who: str, free: Amount, requested: Amount, told: tuple[Evidence, ...]) -> Finding:
    """With the driver's word on the card."""
    if s.total is not None and requested.certainly_at_least(s.total):
        return Finding(
            Verdict.CAPACITY,
            Strength.SUPPORTED,
            f"one request of {requested.say()} is more than the whole card has ({s.total.say()})",
            told,
            check="the shape behind that request",
            trial=_SMALLER,
        )
    if free.certainly_at_least(requested):
        return Finding(
            Verdict.FREE_NOT_USABLE,
            Strength.SUPPORTED,
            f"{free.say()} of the card were free, and {who} did not get {requested.say()}: a limit of its "
            "own, or of its share",
            told,
            check="limits of its own: a memory fraction, an arena's limit, a partition of the card",
        )
    return Finding(
        Verdict.UNKNOWN,
        Strength.UNDECIDED,
        f"{who} asked for {requested.say()} and the card had {free.say()} free; who holds the rest is not "
        "told",
        told,
        check="who holds memory on this card (gpumem-tui top, nvidia-smi)",
        trial=_SMALLER,
        missing=("the process list of the device at that moment",),
    )


# --- servers that refuse to start ---------------------------------------------------------------------


def refused(s: Situation) -> Finding:
    """A server has counted before it starts, and found too little."""
    if s.free is not None and s.total is not None and s.requested is not None:
        return _share(s, s.free, s.total, s.requested)
    if s.longest is not None and (s.room is not None or s.fits is not None):
        return _cache(s, s.longest)
    return Finding(
        Verdict.CAP,
        Strength.SUPPORTED,
        f"{s.call}'s own share of the card is used up before its cache: weights and what a largest batch "
        "needs leave nothing of it",
        word(f"{s.call} refused to start", "message"),
        check="the start-up figures above it in the log: weights, and what is left for the cache",
        trial=_MORE_SHARE.get(s.call or "", _SMALLER),
        missing=("weights, and what the largest batch took",),
    )


_MORE_SHARE = {
    "vLLM": "the same start with a larger gpu_memory_utilization, where the card has room, and nothing else",
    "SGLang": "the same start with a larger --mem-fraction-static, where the card has room, and nothing else",
    "TGI": "the same start with a smaller --max-batch-prefill-tokens, and nothing else",
}


def _share(s: Situation, free: Amount, total: Amount, wanted: Amount) -> Finding:
    """The share of the card that it is told to take is not free."""
    held = total - free
    share = free.low_bytes * 100 // total.high_bytes / 100
    told = (
        *figure("free at its start", free),
        *figure("total", total),
        *figure("its share", wanted),
        *figure("held before it loaded anything", held),
        *(word(s.setting, "message") if s.setting else ()),
    )
    return Finding(
        Verdict.OTHER_PROCESS if held.low_bytes >= 3 * GIB else Verdict.CAP,
        Strength.POSSIBLE,
        f"{s.call} is to take {wanted.say()} of the card and {free.say()} were free at its start: "
        f"{held.say()} were held before it loaded anything, by others or its own context",
        told,
        check="who holds memory on this card (gpumem-tui top, nvidia-smi): an earlier server, most often",
        trial=f"the same start with gpu_memory_utilization {share:.2f}, which fits into what was free, "
        "and nothing else",
        missing=("the process list of the device at that moment",),
    )


def _cache(s: Situation, longest: int) -> Finding:
    """Its cache does not take one sequence of the length that it must serve."""
    fits = s.fits
    needs = f", which needs {s.requested.say()}" if s.requested is not None else ""
    has = f"{s.room.say()} are left for it" if s.room is not None else f"it takes {fits:,}"
    return Finding(
        Verdict.CAP,
        Strength.SUPPORTED,
        f"{s.call}'s cache does not take one sequence of {longest:,} tokens{needs}: {has}",
        (
            *figure("needed by one sequence", s.requested),
            *figure("left for the cache", s.room),
            *(word(f"{fits:,} tokens would fit", "message") if fits is not None else ()),
        ),
        check="whether sequences of that length ever come: the limit counts, not the use",
        trial=f"the same start with max_model_len {fits}, and nothing else"
        if fits is not None
        else "the same start with half of max_model_len, and nothing else",
    )

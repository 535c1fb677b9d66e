"""What the failing process itself did, from a recording: growth, holes, memory outside PyTorch."""

from gpumem_tui.analysis.findings.amounts import Amount
from gpumem_tui.analysis.findings.claims import Claim, Nature, counts, short, when
from gpumem_tui.analysis.findings.finding import Evidence, Finding, Strength, Verdict, figure, word
from gpumem_tui.analysis.findings.holders import USUAL_OUTSIDE_BYTES
from gpumem_tui.analysis.findings.phases import capacity_trial
from gpumem_tui.analysis.findings.situation import Holes, Situation, Trend
from gpumem_tui.analysis.findings.view import SIGNIFICANT, View, basis, significant, would_do
from gpumem_tui.units import format_bytes, format_seconds

LEAST_STEPS = 8
"""Of a training, from which on a slope is believed."""
LEAST_BATCHES = 4
"""Of an evaluation: its batches do nothing but add."""


def per_step(view: View) -> Claim | None:
    """Live memory that grows by about the same every step."""
    s, trend = view.s, view.s.trend
    if trend is None or not trend.steady or trend.units < LEAST_STEPS or not counts(trend.grown, s):
        return None
    grew = (
        f"live memory grew by {format_bytes(trend.slope_bytes)} a {trend.unit}, {trend.grown.say()} over "
        f"the last {trend.units} {trend.unit}s"
    )
    one = s.training.largest_other
    if one is not None and _most_of(one, trend):
        return Claim(
            Nature.CHANGED,
            Finding(
                Verdict.GROWTH,
                Strength.SUPPORTED,
                f"{grew}, and one tensor has {one.say()}: an input that grows, or one that is appended to",
                (*_slope(trend), *figure("largest tensor that is no state", one), *basis(s), *short(s)),
                check="the shape of that tensor, in what allocated was made of, beside the inputs' shapes",
                trial="the same run with inputs of one fixed size, and nothing else",
            ),
        )
    return Claim(
        Nature.CHANGED,
        Finding(
            Verdict.GROWTH,
            Strength.SUPPORTED,
            f"{grew}: each keeps something on the device",
            (*_slope(trend), *basis(s), *short(s)),
            check="whether a list, metric or log keeps tensors with their graph (loss, not loss.item()), "
            "or a buffer that is meant to grow has no bound",
            trial="keep loss.detach() (or .item()) wherever a result is stored, and nothing else",
        ),
    )


def kept_by_a_failure(view: View) -> Claim | None:
    """An attempt that failed and was caught, and whose memory is still live."""
    s, kept = view.s, view.s.kept
    if kept is None or not counts(kept.kept, s):
        return None
    before = format_seconds(kept.seconds)
    return Claim(
        Nature.CHANGED,
        Finding(
            Verdict.KEPT,
            Strength.SUPPORTED,
            f"{kept.kept.say()} that an attempt before had made are still live, {before} after it ran out of "
            f"memory in {kept.phase} and was caught",
            (*figure("live ever since", kept.kept), *basis(s), *short(s)),
            check="whether this runs inside the except clause, or something refers to the exception: its "
            "traceback keeps every frame and its tensors",
            trial="go on after the except clause instead of in it, with no reference to the exception",
        ),
    )


def per_batch(view: View) -> Claim | None:
    """An evaluation under way whose live memory grows with each batch; it may fail between two calls."""
    s, trend = view.s, view.s.eval_trend
    if trend is None or not trend.steady:
        return None
    if trend.units < LEAST_BATCHES or not counts(trend.grown, s):
        return None
    why, check, trial = _kept_by_evaluation(s, trend)
    return Claim(
        Nature.CHANGED,
        Finding(
            Verdict.EVALUATION,
            Strength.SUPPORTED,
            f"the evaluation {_kept(s, trend)} {format_bytes(trend.slope_bytes)} a batch, "
            f"{trend.grown.say()} over the last {trend.units} batches: {why}",
            (
                *_slope(trend),
                *figure("KV cache", s.training.kv_cache),
                *_training_peak(s),
                *basis(s),
                *short(s),
            ),
            check=check,
            trial=trial,
        ),
    )


def _kept(s: Situation, trend: Trend) -> str:
    """Where less is live than has come, part of it is given back between two batches."""
    if s.allocated is not None and s.allocated.certainly_below(trend.grown):
        return "had more live at the end of each batch, by"
    return "kept"


def _kept_by_evaluation(s: Situation, trend: Trend) -> tuple[str, str, str]:
    """What it is that grows from call to call, how to see it, and what to try."""
    if _most_of(s.training.kv_cache, trend):
        return (
            "a KV cache that grows with its sequences",
            "the KV cache beside layers × heads × length × sequences",
            capacity_trial("generate"),
        )
    if _most_of(s.training.largest_other, trend):
        return (
            "most of it is one tensor, an input that grows or one that is appended to",
            "the shape of the largest tensor, beside the inputs' shapes",
            "the same evaluation with inputs of one fixed size, and nothing else",
        )
    one = s.training.largest_other
    found = s.training.live_other
    if one is not None and _most_of(found, trend) and trend.slope_bytes >= 2 * one.high_bytes:
        return (
            f"more than one tensor a batch, the largest of them {one.say()}: with gradients on, a graph "
            "keeps them all",
            "whether torch.no_grad() or inference_mode() is on around the evaluation",
            "the same evaluation under torch.inference_mode(), and nothing else",
        )
    return (
        "its outputs, or a cache, stay on the device",
        "whether outputs or logits are collected in a list over the batches, or a cache grows",
        "move what is kept off the device (outputs.cpu()), or keep the metric only",
    )


def _most_of(amount: Amount | None, trend: Trend) -> bool:
    """Whether an amount is half of what has grown, or more."""
    return amount is not None and 2 * amount.low_bytes >= trend.grown.low_bytes


def outside_grew(view: View) -> Claim | None:
    """Memory of this process outside PyTorch's allocator that came while it ran."""
    s = view.s
    growth = s.outside_growth
    if growth is not None and counts(growth.grew, s):
        return Claim(
            Nature.CHANGED,
            Finding(
                Verdict.OUTSIDE_PYTORCH,
                Strength.SUPPORTED,
                f"this process took {growth.grew.say()} outside PyTorch's allocator, {when(growth)}",
                (*figure("outside PyTorch", view.outside), *figure("of that, grown", growth.grew), *basis(s),
                 *short(s)),
                check="what starts there: a first collective, a graph capture, another library's own pool",
                trial="the same run without the library or communicator that starts there",
            ),
        )  # fmt: skip
    outside = view.outside
    if outside is None or not counts(outside, s) or not significant(outside, s, USUAL_OUTSIDE_BYTES):
        return None
    return Claim(
        Nature.STANDING,
        Finding(
            Verdict.OUTSIDE_PYTORCH,
            Strength.SUPPORTED,
            f"this process holds {outside.say()} outside PyTorch: more than a context usually takes",
            (*figure("outside PyTorch", outside), *basis(s), *short(s)),
            check="see in which phase it grew: first collective, graph capture, another library",
            trial="the same run without the library or the communicator that came last",
        ),
    )


def in_pieces(view: View) -> Claim | None:
    """Idle memory in holes of which none is large enough, while all of them would do."""
    s, holes = view.s, view.s.holes
    if holes is None or s.requested is None or s.free is None:
        return None
    if not holes.largest.certainly_below(s.requested) or not (counts(holes.idle, s) or _much(holes.idle, s)):
        return None
    return _pieces(
        view,
        holes,
        holes.idle,
        f"{holes.idle.say()} lay idle in the allocator's pools, the largest hole {holes.largest.say()}: "
        f"no place for {s.requested.say()}",
        "pad inputs to a few fixed sizes, and nothing else",
    )


def in_other_streams(view: View) -> Claim | None:
    """Idle memory that only another stream could use, because something live keeps its segments."""
    s, holes = view.s, view.s.holes
    if holes is None or s.requested is None or s.free is None or in_pieces(view) is not None:
        return None
    idle = holes.idle + holes.other_streams
    if not holes.other_streams.low_bytes or not holes.largest.certainly_below(s.requested):
        return None
    if not counts(idle, s):
        return None
    return _pieces(
        view,
        holes,
        idle,
        f"{holes.other_streams.say()} lay idle in the pools of other streams, and only they may use it; "
        f"{s.requested.say()} were asked for on one whose "
        + (f"largest hole has {holes.largest.say()}" if holes.largest.high_bytes else "pools have no hole"),
        "the work of both on one stream, and nothing else",
    )


def _pieces(view: View, holes: Holes, idle: Amount, headline: str, expandable_trial: str) -> Claim:
    """``expandable_trial`` is what is left to try where expandable segments are on."""
    s = view.s
    assert s.free is not None
    together = Amount.exact((s.free + idle).low_bytes, "free + idle in these pools")
    if holes.expandable:
        help_ = "expandable segments are on, and what is idle lies in pieces below a page"
        trial = expandable_trial
    else:
        help_ = "expandable segments can join free and idle memory: together they are more than the request"
        trial = "the same run with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and nothing else"
    return Claim(
        Nature.CHANGED,
        Finding(
            Verdict.FRAGMENTATION,
            Strength.SUPPORTED,
            headline,
            (
                *figure("largest hole", holes.largest),
                *figure("idle in these pools", idle),
                *figure("free and idle together", together),
                *(figure("idle where it could not go", holes.elsewhere) if holes.elsewhere.low_bytes else ()),
                *_streams(s),
                *word(help_, "these figures"),
                *basis(s),
                *short(s),
            ),
            check="the memory map: live blocks between the holes keep their segments",
            trial=trial,
        ),
    )


def _much(idle: Amount, s: Situation) -> bool:
    """Whether idle memory is twice the request and half of a significant share: large cards, large models."""
    if s.requested is None or s.total is None or not would_do(idle, s):
        return False
    return idle.low_bytes >= max(2 * s.requested.high_bytes, s.total.high_bytes // (2 * SIGNIFICANT))


def in_private_pools(view: View) -> Claim | None:
    """Idle memory that belongs to graphs or memory pools."""
    s, holes = view.s, view.s.holes
    if holes is None or not counts(holes.private, s):
        return None
    return Claim(
        Nature.STANDING,
        Finding(
            Verdict.PRIVATE_POOLS,
            Strength.SUPPORTED,
            f"{holes.private.say()} lie idle in {_private(holes)}, of no use to others",
            (*figure("idle in private pools", holes.private), *basis(s), *short(s)),
            check="the memory map, private pools: which graph or pool they belong to",
            trial=_without_private(holes),
        ),
    )


def _private(holes: Holes) -> str:
    """Whose the private pools are, by their numbers: captures and pools that are made are counted apart."""
    if holes.captures and not holes.made_pools:
        return f"the private pools of {holes.captures} graph capture{'s' if holes.captures != 1 else ''}"
    if holes.made_pools and not holes.captures:
        several = f"{holes.made_pools} pools" if holes.made_pools != 1 else "a pool"
        return f"{several} made for it (MemPool, or graphs that share one)"
    return "private pools (graphs, MemPool)"


def _without_private(holes: Holes) -> str:
    if holes.captures > 1 and not holes.made_pools:
        return "all captures into one pool (torch.cuda.graph(g, pool=first.pool())), and nothing else"
    if holes.made_pools and not holes.captures:
        return "the same run without that pool (no MemPool, or no CUDA graphs), and nothing else"
    return "run once without graph capture, and compare what is reserved"


def too_little_in_pieces(s: Situation) -> tuple[Evidence, ...]:
    """A word that expandable segments could not have helped, where that is so."""
    if s.holes is None or s.free is None or s.requested is None or s.holes.expandable:
        return ()
    reach = s.free + s.holes.idle + s.holes.other_streams
    if not reach.certainly_below(s.requested):
        return ()
    return word(
        f"expandable segments could not have helped: free and idle together are {reach.say()}",
        "pools, driver",
    )


def released(s: Situation) -> tuple[Evidence, ...]:
    """What PyTorch gave back before it gave up."""
    if s.before_flush is None or s.reserved is None or not s.reserved.certainly_below(s.before_flush):
        return ()
    return figure("given back before it failed", s.before_flush - s.reserved)


def larger_than_training(view: View) -> Claim | None:
    """An evaluation that needs more than training did, without growing."""
    s, t = view.s, view.s.training
    if s.phase != "eval" or t.training_peak is None or s.allocated is None or s.requested is None:
        return None
    need = s.allocated + s.requested
    if (t.steps or 0) < 2 or not need.certainly_at_least(t.training_peak):
        return None
    more = Amount.exact((need - t.training_peak).low_bytes, "allocated + requested − training's peak")
    if not significant(more, s):
        return None
    return Claim(
        Nature.NEED,
        Finding(
            Verdict.EVALUATION,
            Strength.SUPPORTED,
            f"the evaluation needs {need.say()} live at once, and {t.steps} training steps did with "
            f"{t.training_peak.say()}",
            (*_training_peak(s), *basis(s), *short(s)),
            check="the evaluation's batch and sequence length beside training's, and whether no_grad is on",
            trial=capacity_trial("eval"),
        ),
    )


def _slope(trend: Trend) -> tuple[Evidence, ...]:
    return (
        Evidence(
            f"median slope {format_bytes(trend.slope_bytes)} a {trend.unit}, over {trend.units} of them",
            "allocated at the same point of each",
            trend.slope_bytes,
            trend.slope_bytes,
        ),
        *figure("grown since the first of them", trend.grown),
    )


def _training_peak(s: Situation) -> tuple[Evidence, ...]:
    return figure("peak of allocated in training", s.training.training_peak)


def _streams(s: Situation) -> tuple[Evidence, ...]:
    if s.holes is None or s.holes.streams < 2:
        return ()
    return word(f"{s.holes.streams} streams have pools of their own, which do not serve each other", "pools")

"""What the phase of a failure makes possible. A phase alone proves nothing, so none of these leads."""

from gpumem_tui.analysis.findings.finding import Finding, Strength, Verdict, word
from gpumem_tui.analysis.findings.situation import Situation

BATCH_TRIAL = "halve the micro-batch and double the accumulation steps; leave everything else as it is"

_TRIALS = {
    "load": "load the same weights onto the CPU first (map_location='cpu') and see what they alone need",
    "eval": "halve the evaluation batch only",
    "save": "gather and write the checkpoint on the CPU; leave training as it is",
    "optimizer": "keep everything and use an optimizer with smaller state (8-bit, or sharded over the ranks)",
    "generate": "halve the number of sequences at once, or the longest length: one of the two",
    "graph capture": "run once without graph capture, and compare what is reserved",
}


def capacity_trial(phase: str | None) -> str:
    """The next trial where what is live does not fit."""
    return _TRIALS.get(phase or "", BATCH_TRIAL)


def trial_of(s: Situation) -> str:
    """The same, where one request alone may be more than the card, or an optimizer's temporaries are it."""
    if s.requested is not None and s.total is not None and s.requested.low_bytes >= 2 * s.total.high_bytes:
        times = -(-s.requested.low_bytes // s.total.high_bytes)
        return (
            f"look at that tensor's shape: the same run with its batch or length {times} times smaller, "
            "and nothing else"
        )
    if s.phase == "optimizer" and s.training.for_each:
        return "the same run with foreach=False in the optimizer, which takes one parameter at a time"
    return capacity_trial(s.phase)


def phase_findings(s: Situation) -> tuple[Finding, ...]:
    """Readings that the phase allows."""
    where = (
        (f"it failed in {s.phase}", "phases") if s.recorded else (f"the traceback is in {s.phase}", s.frame)
    )
    told = word(where[0], where[1] or "traceback") if s.phase else ()
    if s.first_optimizer_step:
        return (
            Finding(
                Verdict.OPTIMIZER_STATE,
                Strength.POSSIBLE,
                "it failed while the optimizer made its state: the first step adds it, later ones keep it",
                told or word("the optimizer's _init_group was running", "traceback"),
                check="allocated before and after the first optimizer step (Adam adds twice the parameters)",
                trial=_TRIALS["optimizer"],
            ),
        )
    if s.phase == "eval":
        return (
            Finding(
                Verdict.EVALUATION,
                Strength.POSSIBLE,
                "it failed in evaluation, whose batch, outputs and graph are not those of training",
                told,
                check="whether allocated grows from one evaluation batch to the next (kept outputs), "
                "and whether no_grad or inference mode is on",
                trial=_TRIALS["eval"],
            ),
        )
    if s.phase == "load":
        worked = s.training.computed or s.training.steps
        when = " again, after work had begun" if worked else ", before any step"
        return (
            Finding(
                Verdict.LOAD,
                Strength.POSSIBLE,
                f"it failed while loading{when}: weights, their precision and a second copy decide",
                told,
                check="compare allocated with parameters × bytes per parameter: twice that is a second copy",
                trial=_TRIALS["load"],
            ),
        )
    return ()

"""What a phase needs by itself, from a recording: loading, and an optimizer's first step."""

from gpumem_tui.analysis.findings.claims import Claim, Nature, short
from gpumem_tui.analysis.findings.finding import Finding, Strength, Verdict, figure, word
from gpumem_tui.analysis.findings.phases import capacity_trial
from gpumem_tui.analysis.findings.view import View, basis, significant


def first_optimizer_step(view: View) -> Claim | None:
    """The first step of an optimizer was making its state; another one may have stepped before."""
    s, t = view.s, view.s.training
    if s.phase != "optimizer" or t.optimizer_stepped is None or not t.makes_state:
        return None
    which = "this optimizer's first step" if t.optimizer_stepped else "the first optimizer step"
    made = (
        s.allocated - t.at_phase_start if s.allocated is not None and t.at_phase_start is not None else None
    )
    expected = f" of {t.forecast.say()} that it makes in all" if t.forecast is not None else ""
    done = f", {made.say()}{expected} made" if made is not None else ""
    return Claim(
        Nature.NEED,
        Finding(
            Verdict.OPTIMIZER_STATE,
            Strength.SUPPORTED,
            f"{which} ran out while making optimizer state{done}; it stays from then on",
            (
                *word("the stack is in the code that makes optimizer state", "stack"),
                *figure("made so far", made),
                *figure("optimizer state in all", t.forecast),
                *figure("parameters", t.parameters),
                *figure("gradients", t.gradients),
                *basis(s),
                *short(s),
            ),
            check="parameters × the optimizer's moments: Adam adds twice the bytes of the parameters",
            trial=capacity_trial("optimizer"),
            missing=() if t.parameters is not None else ("bytes of the parameters",),
        ),
    )


def loading(view: View) -> Claim | None:
    """It failed before anything had run."""
    s, t = view.s, view.s.training
    if t.computed or t.steps:
        return None
    if s.phase is None:
        return _copies(view)
    if s.phase != "load":
        return None
    need = s.allocated + s.requested if s.allocated is not None and s.requested is not None else None
    so_far = f", {s.allocated.say()} loaded so far" if s.allocated is not None else ""
    return Claim(
        Nature.NEED,
        Finding(
            Verdict.LOAD,
            Strength.SUPPORTED,
            f"loading alone does not fit{so_far}: nothing else has run yet",
            (
                *word("no forward and no step has begun", "phases of the recording"),
                *figure("loaded and requested", need),
                *basis(s),
                *short(s),
            ),
            check="parameters × bytes per parameter beside what was loaded: twice that is a second copy",
            trial=capacity_trial("load"),
        ),
    )


def _copies(view: View) -> Claim | None:
    """In no phase, and before any: weights, and what there is beside them."""
    s, t = view.s, view.s.training
    if s.allocated is None or t.parameters is None or not significant(t.parameters, s):
        return None
    rest = s.allocated - t.parameters
    return Claim(
        Nature.NEED,
        Finding(
            Verdict.LOAD,
            Strength.SUPPORTED,
            f"nothing has run yet, and {s.allocated.say()} are live: {t.parameters.say()} of parameters, and "
            f"{rest.say()} beside them",
            (
                *word("no forward and no step has begun", "phases of the recording"),
                *figure("parameters", t.parameters),
                *figure("live tensors of no such kind", t.live_other),
                *basis(s),
                *short(s),
            ),
            check="the largest tensors: a checkpoint beside the model that took it, a master copy, "
            "an average of the weights",
            trial=capacity_trial("load"),
        ),
    )

"""Ends that speak of no memory: errors of the program's own, signals, exits, silence."""

from gpumem_tui.analysis.findings.finding import Finding, Strength, Verdict, figure, word
from gpumem_tui.analysis.findings.situation import Kind, Lost, Situation
from gpumem_tui.units import format_seconds

_WITHOUT_WORDS = {
    Kind.SIGNAL: (
        "it ended: {}",
        "who sent the signal: the launcher, the cluster's time limit, a person",
        "who sent it",
    ),
    Kind.EXIT: (
        "it ended with {}, and no error that nobody caught was recorded",
        "its own output, and where the program leaves by itself (sys.exit, os._exit)",
        "why it ended",
    ),
    Kind.GONE: (
        "it was gone without a word, and nobody saw how it ended",
        "the launcher's own log for its exit code (-9: killed; then dmesg for its pid)",
        "how it ended",
    ),
    Kind.SILENCE: (
        "it is alive and has not said a word since",
        "py-spy dump of the process: a collective that waits for a peer, or a long kernel",
        "what it waits for",
    ),
}
"""Of each kind: the headline, the check, and what is missing."""

_OWN_SIGNALS = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS")
_BY_ITS_OWN_DOING = (
    "it ended: {}, which a program raises by its own doing and nobody sends",
    "the same run with PYTHONFAULTHANDLER=1: the stack of the call that crashed, and its last output",
    "which call it was in",
)


def other_end(s: Situation) -> Finding:
    """A process that ended, or fell silent, without a word of memory."""
    what = s.error or {
        Kind.SIGNAL: "a signal",
        Kind.SILENCE: "silence",
        Kind.EXIT: "an exit code",
        Kind.GONE: "unseen",
    }.get(s.kind, "an error")
    if s.first_rank is not None:
        after = f", {format_seconds(s.first_seconds)} before" if s.first_seconds is not None else ""
        own_words = s.kind is Kind.EXCEPTION and not after
        source = what if own_words else "order of the failures, one clock"
        return Finding(
            Verdict.ANOTHER_RANK,
            Strength.SUPPORTED,
            f"a victim: {s.first_rank} had failed{after}, then this one ended ({what})"
            if s.kind is not Kind.SILENCE
            else f"{s.first_rank} has failed{after}, and this one has been silent since",
            word(f"{s.first_rank} failed first", source),
            check=f"the failure of {s.first_rank}: this one has no cause of its own",
        )
    if s.kind is Kind.EXCEPTION and s.caught_seconds is not None:
        before = f"memory had run out {format_seconds(s.caught_seconds)} before"
        return Finding(
            Verdict.UNKNOWN,
            Strength.UNDECIDED,
            f"the program ended by its own error ({what}); {before} and was caught, and no phase of "
            "work began in between: whether that led to this is not told",
            (*word(what, "exception"), *word(before, "order of the failures, one clock")),
            check="its traceback, and what the program does where it catches the failure before",
            missing=("whether the error follows from the failed allocation",),
        )
    if s.kind is Kind.EXCEPTION and s.lost is not None:
        return _after_a_loss(what, s.lost)
    if s.kind is Kind.EXCEPTION and s.of_memory is not None:
        return Finding(
            Verdict.UNKNOWN,
            Strength.UNDECIDED,
            f"the program ended by its own error, which speaks of memory: {what}",
            (
                *word(f'"{s.of_memory}" in its message', "exception"),
                *figure("free", s.free),
                *figure("total", s.total),
            ),
            check="whether that library takes memory of the device or of the host, and what was free then",
            missing=("whose memory it was", "how much was asked for, in a form that is known"),
        )
    if s.kind is Kind.EXCEPTION:
        return Finding(
            Verdict.NOT_MEMORY,
            Strength.SUPPORTED,
            f"the program ended by its own error, which does not speak of memory: {what}",
            word(what, "exception"),
            check="its traceback",
        )
    says, check, missing = _WITHOUT_WORDS[s.kind]
    if s.kind is Kind.SIGNAL and what.endswith(_OWN_SIGNALS):
        says, check, missing = _BY_ITS_OWN_DOING
    return Finding(
        Verdict.UNKNOWN,
        Strength.UNDECIDED,
        says.format(what),
        word(what, "recording"),
        check=check,
        missing=(missing,),
    )


def _after_a_loss(what: str, lost: Lost) -> Finding:
    """An error of a program of whose processes one has died."""
    if lost.who is None:
        how = "which says that a process of its own has died; how that ended is not told"
        told = word(what, "exception")
    else:
        before = f", {format_seconds(lost.seconds)} before" if lost.seconds is not None else ""
        how = f"and {lost.who} had ended ({lost.word}){before}: whether that led to it is not told"
        told = (*word(what, "exception"), *word(f"{lost.who}: {lost.word}", "kernel"))
    return Finding(
        Verdict.UNKNOWN,
        Strength.UNDECIDED,
        f"the program ended by its own error ({what}), {how}; host memory is one cause of such ends",
        told,
        check="dmesg for that process, oom_kill in the cgroup's memory.events, and df -h /dev/shm",
        missing=("why that process ended",),
    )

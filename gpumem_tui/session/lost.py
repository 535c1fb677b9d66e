"""Processes of the workload that were killed before they wrote a word of their own, and errors that follow.

A data loader's worker has no journal, nor has a process that is killed while it starts.
The recorder saw them in the workload's tree, the kernel tells how they ended or counts a
kill for memory, and whoever waited for them raises an error. Refuses to make a failure of
every helper that is ended on purpose: only of those that somebody's error or count speaks of.
"""

import re
import signal
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gpumem_tui import records
from gpumem_tui.analysis.failurestate import ENDS, FailureState, Outcome, Part
from gpumem_tui.analysis.findings import Kind, Lost, Situation, Verdict, diagnose
from gpumem_tui.records.ending import Ending
from gpumem_tui.session import situations
from gpumem_tui.session.driver import DriverModel
from gpumem_tui.session.endings import Signs, Who

BEFORE_NS = 60_000_000_000
"""So long before an error that speaks of nobody by name, at most."""
MOST = 64
"""So many are looked at for each picture: a program may end helpers by the thousand."""
LATE_NS = 2_000_000_000
"""The recorder may see an end so much later than whoever waited for it."""

DIED = re.compile(
    r"DataLoader worker \(pid|[Ww]orker\b.{0,60}\b(?:died|exited|killed|crashed)|terminated abruptly"
    r"|process \d+ terminated|exit ?code:? ?-\d|SIG(?:KILL|SEGV|BUS)"
)
"""Words of an error by which a program says that a process of its own has died."""

_DEADLY = frozenset({signal.SIGKILL, signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT, signal.SIGILL})
"""Signals by which a launcher ends nobody in order."""


@dataclass(frozen=True)
class Killed:
    """A process without a journal that a signal ended."""

    pid: int
    name: str | None
    t_ns: int
    word: str
    """``killed by SIGKILL``."""
    kills: int
    """Kills for memory that the kernel counted and that are this end."""

    @property
    def spoken(self) -> str:
        """``process 4711 (pt_data_worker)``."""
        return f"process {self.pid}" + (f" ({self.name})" if self.name else "")


def killed(ranks: Container[Who], driver: DriverModel, signs: Signs) -> list[Killed]:
    """By time, the last :data:`MOST` of them."""
    found: dict[Who, Killed] = {}
    for kill in signs.kills:
        mine = [(pid, ticks) for pid, ticks in kill.gone]
        alone = len(mine) <= kill.count  # otherwise some of them have only ended meanwhile
        for who in mine:
            gone = signs.gone.get(who)
            if who not in ranks and (gone.signal == signal.SIGKILL if gone is not None else alone):
                found[who] = _killed(who, kill.t_ns, signal.SIGKILL, driver.names, kill.count)
    for who, gone in signs.gone.items():
        if who not in ranks and who not in found and gone.signal in _DEADLY:
            found[who] = _killed(who, gone.t_ns, gone.signal, driver.names, 0)
    return sorted(found.values(), key=lambda each: each.t_ns)[-MOST:]


def _killed(who: Who, t_ns: int, by: int, names: Mapping[int, records.Process], kills: int) -> Killed:
    known = names.get(who[0])
    return Killed(who[0], known.name if known else None, t_ns, Ending(None, by).sentence(), kills)


def failures(
    found: Sequence[Killed], told: Sequence[FailureState], failed: bool, driver: DriverModel
) -> list[FailureState]:
    """Of those that a count or an error speaks of; else of the first of those before a silent end.

    ``failed``: the run has ended so. It may have taken others along, a minute before at most.
    """
    errors = [state for state in told if state.kind == Kind.EXCEPTION.value and state.outcome in ENDS]
    spoken_of = [each for each in found if each.kills or any(_names(state, each) for state in errors)]
    if spoken_of or not failed or not found or any(state.outcome in ENDS for state in told):
        return [_state_of(each, driver) for each in spoken_of]
    first = next(each for each in found if found[-1].t_ns - each.t_ns <= BEFORE_NS)
    return [_state_of(first, driver)]


def as_following(state: FailureState, found: Sequence[Killed]) -> FailureState:
    """An error by which a program says that a process of its own has died, or that came soon after."""
    if state.kind != Kind.EXCEPTION.value or state.part is Part.VICTIM:
        return state
    if not state.findings or state.findings[0].verdict not in (Verdict.NOT_MEMORY, Verdict.UNKNOWN):
        return state
    error = _error_of(state)
    named = next((each for each in found if _names(state, each)), None)
    last = max((each for each in found if _before(state, each)), key=lambda each: each.t_ns, default=None)
    if named is not None:
        facts = Situation(
            kind=Kind.EXCEPTION,
            error=error,
            first_rank=named.spoken,
            first_seconds=_seconds_before(state, named),
        )
        return msgspec.structs.replace(state, part=Part.VICTIM, findings=diagnose(facts))
    if state.findings[0].verdict is Verdict.UNKNOWN:
        return state
    if last is not None:
        known = Lost(last.spoken, last.word, _seconds_before(state, last))
    elif DIED.search(_text_of(state)):
        known = Lost()
    else:
        return state
    facts = Situation(kind=Kind.EXCEPTION, error=error, lost=known)
    return msgspec.structs.replace(state, findings=diagnose(facts))


def _names(state: FailureState, each: Killed) -> bool:
    """Whether an error says that this process has died: by its pid, or by such words soon after."""
    text = _text_of(state)
    by_pid = re.search(rf"\b{each.pid}\b", text) is not None
    return _before(state, each) and (by_pid or DIED.search(text) is not None)


def _before(state: FailureState, each: Killed) -> bool:
    return each.t_ns - LATE_NS <= state.t_ns <= each.t_ns + BEFORE_NS


def _seconds_before(state: FailureState, each: Killed) -> float | None:
    """None where the recorder saw the end only after the error: it looks once a second."""
    return (state.t_ns - each.t_ns) / 1e9 if each.t_ns < state.t_ns else None


def _text_of(state: FailureState) -> str:
    return state.record.error if state.record is not None and state.record.error else state.headline


def _error_of(state: FailureState) -> str:
    return _text_of(state).partition("\n")[0][:200]


def _state_of(each: Killed, driver: DriverModel) -> FailureState:
    facts = Situation(
        kind=Kind.HOST_KILL if each.word == "killed by SIGKILL" else Kind.SIGNAL,
        recorded=True,
        error=each.word,
        host=situations.host_of(driver, each.kills),
    )
    return FailureState(
        t_ns=each.t_ns,
        kind=facts.kind.value,
        headline=f"{each.spoken} ended: {each.word}",
        pid=each.pid,
        rank=None,
        part=Part.ALONE,
        outcome=Outcome.ENDED,
        record_reason="the process wrote nothing: it had not begun to use a device",
        findings=diagnose(facts),
    )

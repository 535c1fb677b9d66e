"""Processes that ended, or fell silent, without a word: who was killed, by whom, and who is a victim.

Told by what is missing (a goodbye), by how the keeper saw its workload end, by what the
kernel counted, and by the order of other ranks' failures on the one clock.
"""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from gpumem_tui import records
from gpumem_tui.analysis.failurestate import ENDS, FailureState, Outcome, Part
from gpumem_tui.analysis.findings import Kind, Situation, diagnose
from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.records.ending import Ending
from gpumem_tui.session import situations
from gpumem_tui.session.driver import DriverModel
from gpumem_tui.session.life import KeeperModel
from gpumem_tui.session.rank import SILENT_NS, RankModel
from gpumem_tui.units import format_seconds

Who = tuple[int, int | None]

PEERS = ("NCCL", "DistBackend", "Gloo", "TCPStore", "ollective", "Connection reset", "Connection closed")
"""Words of an error by which a rank dies of another's death: backends, stores, connections."""

_ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals by which launchers end those that are left."""

_ASKED_WORDS = tuple(Ending(None, number).sentence() for number in _ASKED)

KILL_NS = 5_000_000_000
"""A kill that the kernel counted this close to an end by SIGKILL is that end."""


class Now(Protocol):
    """What is known of the run now."""

    @property
    def life(self) -> Life: ...  # noqa: D102  of the run

    @property
    def now_ns(self) -> int: ...  # noqa: D102

    @property
    def over(self) -> bool: ...  # noqa: D102  whether the run has ended

    @property
    def alive(self) -> Callable[[Who], bool]: ...  # noqa: D102


@dataclass(frozen=True)
class _End:
    """How a process ended that said nothing of it."""

    kind: Kind
    word: str
    t_ns: int | None
    """When its keeper saw it; None where nobody waited for it."""
    kills: int
    """Kills for memory that the kernel counted and that are this end."""
    signal: int | None = None


@dataclass
class Signs:
    """What the recorder, the keeper and the processes themselves told about ends."""

    kills: list[records.Kill] = field(default_factory=list)
    gone: dict[Who, records.Gone] = field(default_factory=dict)
    stalls: dict[Who, records.Stall] = field(default_factory=dict)
    """The last of each process; it holds until a phase begins or ends."""

    def moved(self, who: Who, t_ns: int) -> None:
        """A phase began or ended."""
        if who in self.stalls and self.stalls[who].t_ns < t_ns:
            del self.stalls[who]


def silent_ends(
    ranks: Mapping[Who, RankModel],
    driver: DriverModel,
    keepers: Sequence[KeeperModel],
    signs: Signs,
    told: Sequence[FailureState],
    now: Now,
) -> list[FailureState]:
    """Of processes that were killed, and of those that stand still after another's failure.

    ``told`` are the failures that processes told of themselves.
    """
    ended = [state for state in told if state.outcome in ENDS]
    own = {state.pid for state in ended}
    left: list[tuple[RankModel, _End]] = []
    causes: list[tuple[RankModel, _End]] = []
    others: list[tuple[RankModel, _End]] = []
    for who, model in ranks.items():
        if model.pid in own or now.life is Life.ENDED:
            continue
        if now.over or not now.alive(who):
            end = _end_of(who, model, keepers, signs)
            if end is None:
                continue
            if model.bye:
                left += [(model, end)] if end.kind is Kind.EXIT else []
                continue
            (causes if end.kills else others).append((model, end))
        elif model.bye:
            continue
        elif ended and now.now_ns - model.spoke_ns > SILENT_NS:
            others.append((model, _End(Kind.SILENCE, "silence", None, 0)))
        elif ended and who in signs.stalls:
            where = signs.stalls[who].stack[-1:]
            standing = f"standing still at {where[0]}" if where else "standing still"
            others.append((model, _End(Kind.SILENCE, standing, None, 0)))
    found = [_state_of(model, end, ended, driver) for model, end in causes]
    before = [*ended, *found]
    if not before:  # one that ended in order with an error's code is a cause where others were ended for it
        others += [each for each in left if any(_followed(end, each[1]) for _, end in others)]
    if not before and (first := _first_of(others)) is not None:
        cause = _state_of(*first, (), driver)
        rest = [each for each in others if each is not first]
        follows = [(cause,) if _followed(end, first[1]) else () for _, end in rest]
        return [cause, *(_state_of(*each, after, driver) for each, after in zip(rest, follows, strict=True))]
    return [*found, *(_state_of(model, end, before, driver) for model, end in others)]


def _first_of(others: Sequence[tuple[RankModel, _End]]) -> tuple[RankModel, _End] | None:
    """The first of those that nobody had asked to end; None where that is not told."""
    seen = [each for each in others if each[1].t_ns is not None and each[1].signal not in _ASKED]
    return min(seen, key=lambda each: each[1].t_ns or 0, default=None)


def _followed(end: _End, first: _End) -> bool:
    """Whether a launcher has ended this one for the first one's sake."""
    if end.t_ns is None or first.t_ns is None:
        return False
    return end.signal in _ASKED and end.t_ns >= first.t_ns


def as_victim(state: FailureState, told: Sequence[FailureState]) -> FailureState:
    """An exception that speaks of peers, after another rank had failed, is no cause of its own."""
    first = next((s for s in told if s.outcome in ENDS and s.pid != state.pid), None)
    if state.kind != Kind.EXCEPTION.value or first is None or first.t_ns >= state.t_ns:
        return state
    error = state.record.error if state.record is not None and state.record.error else state.headline
    if not any(word in error for word in PEERS):
        return state
    facts = Situation(
        kind=Kind.EXCEPTION,
        error=error.partition("\n")[0][:200],
        first_rank=_spoken(first),
        first_seconds=(state.t_ns - first.t_ns) / 1e9,
    )
    return msgspec.structs.replace(state, part=Part.VICTIM, findings=diagnose(facts))


def was_asked(state: FailureState) -> bool:
    """Whether a process was ended by a signal by which launchers end others."""
    return state.kind == Kind.SIGNAL.value and state.headline.endswith(_ASKED_WORDS)


def name_of(model: RankModel) -> str:
    """``rank 1``, else ``process 4711``."""
    return f"rank {model.number}" if model.number is not None else f"process {model.pid}"


def exit_of(
    who: Who, model: RankModel, keepers: Sequence[KeeperModel], signs: Signs
) -> records.Exit | records.Gone | None:
    """How its keeper or the kernel saw a process end; None where neither tells."""
    of_keeper = (k.exit for k in keepers if k.workload is not None and k.workload.pid == model.pid)
    return next(of_keeper, None) or signs.gone.get(who)


def _end_of(who: Who, model: RankModel, keepers: Sequence[KeeperModel], signs: Signs) -> _End | None:
    """None of one that ended well."""
    exit_ = exit_of(who, model, keepers, signs)
    kills = signs.kills
    killed = exit_ is not None and exit_.signal == signal.SIGKILL
    mine = [kill for kill in kills if who in [tuple(each) for each in kill.gone]]
    if not mine and killed and exit_ is not None:
        mine = [k for k in kills if k.scope == "cgroup" and abs(k.t_ns - exit_.t_ns) <= KILL_NS]
    count = sum(kill.count for kill in mine)
    if exit_ is None:
        return _End(Kind.HOST_KILL if count else Kind.GONE, "gone without a word", None, count)
    ending = Ending(exit_.code, exit_.signal)
    if not ending.shell_code():
        return None
    kind = Kind.HOST_KILL if killed or count else Kind.SIGNAL if exit_.signal is not None else Kind.EXIT
    return _End(kind, ending.sentence(), exit_.t_ns, count, exit_.signal)


def _state_of(
    model: RankModel, end: _End, before: Sequence[FailureState], driver: DriverModel
) -> FailureState:
    first = min(before, key=lambda state: state.t_ns, default=None) if not end.kills else None
    t_ns = max(model.spoke_ns, first.t_ns) if first is not None else model.spoke_ns
    kind = Kind.SIGNAL if end.kind is Kind.HOST_KILL and first is not None else end.kind
    spans = sorted(model.open.values(), key=lambda begin: begin.seq)
    where = (f" in {spans[-1].phase}" if spans else "") + (
        f", step {model.step}" if model.step is not None else ""
    )
    spoke = ""
    if end.t_ns is not None:
        spoke = f", {format_seconds((end.t_ns - model.spoke_ns) / 1e9)} after it last spoke"
    who = name_of(model)
    said = {
        Kind.SILENCE: f"{who} has said nothing more{where}"
        if end.word == "silence"
        else f"{who} waits{where}: {end.word}",
        Kind.HOST_KILL: f"{who} was killed{where}{spoke}",
        Kind.SIGNAL: f"{who} ended{where}{spoke}: {end.word}",
        Kind.EXIT: f"{who} ended{where}{spoke}: {end.word}",
        Kind.GONE: f"{who} was gone without a word{where}",
    }[kind]
    facts = Situation(
        kind=kind,
        recorded=True,
        error=end.word,
        host=situations.host_of(driver, end.kills),
        first_rank=_spoken(first) if first is not None else None,
        first_seconds=(t_ns - first.t_ns) / 1e9 if first is not None and t_ns > first.t_ns else None,
    )
    return FailureState(
        t_ns=t_ns,
        kind=kind.value,
        headline=said,
        pid=model.pid,
        rank=model.number,
        part=Part.VICTIM if first is not None else Part.ALONE,
        outcome=Outcome.OPEN if kind is Kind.SILENCE else Outcome.ENDED,
        phase=" > ".join(begin.phase for begin in spans) or None,
        step=model.step,
        record_reason="the process wrote none: it was not asked before it ended",
        findings=diagnose(facts),
    )


def _spoken(state: FailureState) -> str:
    return f"rank {state.rank}" if state.rank is not None else f"process {state.pid}"

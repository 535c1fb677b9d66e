"""From everything a log says to distinct failures: one failure, however often it is repeated.

A wrapper that prints a worker's error again, a re-raise, a summary cut short and a
cluster's word about the same kill are mentions of one failure. Equal figures from
two ranks are two. Decides who was first; says "undecided" where the log cannot tell.
"""

import re

import msgspec

from gpumem_tui.analysis.oomtext import ends
from gpumem_tui.analysis.oomtext.facts import (
    ALLOCATORS,
    FRAMEWORKS,
    HOST,
    Aftermath,
    Family,
    OomFailure,
    Planning,
    Pressure,
    Reading,
    RootCause,
)
from gpumem_tui.analysis.oomtext.figures import Figure
from gpumem_tui.analysis.oomtext.window import Found, PoolLine, PressureLine

FAILURES_KEPT = 1000
_LINES_KEPT = 20
_LOOK_BACK = 64
"""A repeat is looked for among so many failures before it."""
_NEAR_LINES = 60
"""Mentions without figures that are so close are of one failure."""
_DUMP_LINES = 20_000
"""Other frameworks print every block they hold between a failure's first and last mention."""
_SAME_MESSAGE_LINES = 3
_PRESSURE_LINES = 200
"""A failed driver allocation belongs to a message of the same size so many lines later."""

FIGURES = (
    *(
        "requested",
        "total",
        "free",
        "allocated",
        "idle",
        "reserved",
        "private_pools",
        "allowed",
        "own",
        "room",
    ),
)
_IDENTITY = (*FIGURES, "other_allocations", "device")
_WHO = ("rank", "local_rank", "worker", "pid")
_DIGITS = re.compile(r"\d+")


class Gathering:
    """Takes what each stretch of the log holds; :meth:`reading` gives the whole."""

    def __init__(self) -> None:
        self._failures: list[OomFailure] = []
        self._last: list[int] = []
        self._not_kept = 0
        self._pressure: dict[tuple[int, int | None], Pressure] = {}
        self._unclaimed: list[PressureLine] = []
        self._aftermath: dict[tuple[object, ...], Aftermath] = {}
        self._roots: dict[tuple[int, int], RootCause] = {}
        self._kills: dict[int | None, tuple[ends.Kill, tuple[int, ...], int]] = {}
        self._planning: dict[tuple[str, str | None], Planning] = {}
        self._no_process_list = False

    def add(self, found: Found, *, after: int, until: int) -> None:
        """Items that begin in a segment placed in (after, until]."""
        self._no_process_list |= found.no_process_list
        for at, item in found.items:
            if not after < at <= until:
                continue
            if isinstance(item, OomFailure):
                self._failure(item)
            elif isinstance(item, PoolLine):
                self._pool(item.failure)
            elif isinstance(item, PressureLine):
                self._unclaimed.append(item)
                if len(self._unclaimed) > _LOOK_BACK:
                    self._count(self._unclaimed.pop(0))
            elif isinstance(item, Aftermath):
                if len(self._aftermath) < FAILURES_KEPT:
                    self._aftermath.setdefault((item.what, item.rank, item.worker, item.pid), item)
            elif isinstance(item, Planning):
                key = (item.what, item.worker)
                if key in self._planning or len(self._planning) < FAILURES_KEPT:
                    self._planning[key] = item
            elif isinstance(item, RootCause):
                self._roots.setdefault((item.rank, item.pid), item)
            elif item.pid in self._kills or len(self._kills) < FAILURES_KEPT:
                first, lines, count = self._kills.get(item.pid, (item, (), 0))
                self._kills[item.pid] = first, (*lines, item.segment.line)[:_LINES_KEPT], count + 1

    def _failure(self, failure: OomFailure) -> None:
        failure = self._claim(failure)
        for index in range(len(self._failures) - 1, max(-1, len(self._failures) - 1 - _LOOK_BACK), -1):
            if (joined := _join(self._failures[index], failure, self._last[index])) is not None:
                self._failures[index] = joined
                self._last[index] = failure.line
                return
        if len(self._failures) >= FAILURES_KEPT:
            self._not_kept += 1
            return
        self._failures.append(failure)
        self._last.append(failure.line)

    def _pool(self, told: OomFailure) -> None:
        """Figures of a pool belong to the last failure of that allocator; without one they are none."""
        for index in range(len(self._failures) - 1, -1, -1):
            known = self._failures[index]
            near = told.line - self._last[index] <= _DUMP_LINES
            if near and known.family is told.family and _same_voice(known, told):
                figures = ("allowed", "allocated", "reserved")
                filled = {name: getattr(told, name) for name in figures if getattr(known, name) is None}
                self._failures[index] = msgspec.structs.replace(known, **filled)
                return

    def _claim(self, failure: OomFailure) -> OomFailure:
        """Lines of failed driver allocations that this message is about give its exact request."""
        asked = failure.requested
        if failure.family is not Family.ALLOCATOR or asked is None or asked.bytes is None:
            return failure
        exact = None
        kept = []
        for line in self._unclaimed:
            near = 0 <= failure.line - line.line <= _PRESSURE_LINES
            fits = (asked.low_bytes or 0) <= line.requested_bytes <= (asked.high_bytes or 0)
            same = failure.rank in (None, line.source.rank) and failure.device in (None, line.device)
            if near and fits and same:
                exact = line.requested_bytes
            else:
                kept.append(line)
        self._unclaimed = kept
        if exact is None:
            return failure
        return msgspec.structs.replace(failure, requested=Figure(asked.printed, exact, exact, exact))

    def _count(self, line: PressureLine) -> None:
        key = (line.device, line.source.rank)
        before = self._pressure.get(key)
        self._pressure[key] = Pressure(
            device=line.device,
            rank=line.source.rank,
            count=before.count + 1 if before else 1,
            first_line=before.first_line if before else line.line,
            last_line=line.line,
            largest_bytes=max(before.largest_bytes if before else 0, line.requested_bytes),
            least_free_bytes=min(before.least_free_bytes, line.free_bytes) if before else line.free_bytes,
            total_bytes=line.total_bytes,
        )

    def reading(self, *, lines: int, size_bytes: int) -> Reading:
        """All that was said."""
        for line in self._unclaimed:
            self._count(line)
        self._unclaimed = []
        failures = _with_kills(self._failures, list(self._kills.values()))
        roots = tuple(self._roots.values())
        notes = []
        if self._no_process_list:
            notes.append("NVML gave the failing process no process list, so the message names no holders")
        notes += [
            f"torchrun names rank {root.rank} as first, and the log has no memory error of that rank"
            for root in roots
            if failures and not any(_is(root, failure) for failure in failures)
            and all(failure.rank is not None for failure in failures)
        ]  # fmt: skip
        return Reading(
            lines=lines,
            bytes=size_bytes,
            failures=_with_roles(failures, roots),
            failures_not_kept=self._not_kept,
            pressure=tuple(self._pressure.values()),
            aftermath=_victims(tuple(self._aftermath.values()), failures),
            root_causes=roots,
            planning=tuple(self._planning.values()),
            notes=tuple(notes),
        )


def _join(known: OomFailure, new: OomFailure, last_line: int) -> OomFailure | None:
    """Both as one where they are mentions of one failure."""
    if not _same_voice(known, new):
        return None
    near = new.line - last_line <= _NEAR_LINES
    if known.family in HOST and new.family in HOST:
        one = known.family is new.family or Family.HOST_KILL in (known.family, new.family)
        if not (one and near) or (None not in (known.pid, new.pid) and known.pid != new.pid):
            return None
    elif known.family in FRAMEWORKS and new.family is Family.DRIVER:
        near_enough = new.line - last_line <= _SAME_MESSAGE_LINES and _alike(known.requested, new.requested)
        return known if near_enough else None  # the driver's words, within or after the framework's own
    elif known.family is Family.DRIVER and new.family in FRAMEWORKS:
        near_enough = new.line - last_line <= _SAME_MESSAGE_LINES and _alike(known.requested, new.requested)
        return msgspec.structs.replace(new, line=known.line) if near_enough else None
    elif known.family is not new.family:
        # an allocator's message that NCCL or the driver repeats in other words keeps its own family
        return None
    elif known.family in FRAMEWORKS:
        if new.line - last_line > _DUMP_LINES or not _alike(known.requested, new.requested):
            return None
    elif known.family in ALLOCATORS:
        if not _repeats(known, new) and not _repeats(new, known):
            return None
    elif not near:
        return None
    better, other = (new, known) if _told(new) > _told(known) else (known, new)
    filled = {
        name: getattr(other, name)
        for name in msgspec.structs.asdict(better)
        if getattr(better, name) in (None, ()) and getattr(other, name) not in (None, ())
    }
    filled |= {
        "line": known.line,
        "certain": known.certain or new.certain,
    }
    if known.family not in ALLOCATORS:
        filled["text"] = known.text
    again = new.line != last_line
    filled["mentions"] = known.mentions + again
    filled["mention_lines"] = (known.mention_lines + new.mention_lines * again)[:_LINES_KEPT]
    if known.phase is not None:  # the first traceback is the failing process's own; later ones re-raise
        filled |= {name: getattr(known, name) for name in ("phase", "phases", "frame", "user_frame")}
        filled["first_optimizer_step"] = known.first_optimizer_step
    filled |= {name: getattr(known, name) for name in _WHO if getattr(known, name) is not None}
    return msgspec.structs.replace(better, **filled)


def _told(failure: OomFailure) -> int:
    return sum(getattr(failure, name) is not None for name in _IDENTITY) + len(failure.holders)


def _repeats(full: OomFailure, part: OomFailure) -> bool:
    """Whether ``part`` says nothing that ``full`` does not, and something that it does."""
    said = 0
    for name in _IDENTITY:
        value = getattr(part, name)
        if value is None:
            continue
        other = getattr(full, name)
        if _printed(other) != _printed(value):
            return False
        said += 1
    if part.holders and part.holders != full.holders[: len(part.holders)]:
        return False
    return said > 0 or abs(part.line - full.line) <= _NEAR_LINES


def _alike(one: Figure | None, other: Figure | None) -> bool:
    """Whether two requests may be the same: an allocator rounds up, and rounds for people."""
    if one is None or other is None or None in (one.bytes, other.bytes):
        return True
    low, high = sorted((one, other), key=lambda figure: figure.low_bytes or 0)
    return (high.low_bytes or 0) - (high.low_bytes or 0) // 256 - 256 <= (low.high_bytes or 0)


def _printed(value: Figure | int | None) -> object:
    return value.printed if isinstance(value, Figure) else value


def _same_voice(known: OomFailure, new: OomFailure) -> bool:
    """Whether one process may have said both, or one may have repeated the other."""
    for one, other in ((known.rank, new.rank), (known.local_rank, new.local_rank)):
        if one is not None and other is not None and one != other:
            return False
    if known.worker is None or new.worker is None:
        return known.worker is not new.worker or None in (known.pid, new.pid) or known.pid == new.pid
    if known.worker == new.worker:
        return None in (known.pid, new.pid) or known.pid == new.pid
    # Worker_TP0 and Worker_TP1 are two; an engine or a driver process repeats its worker
    return _DIGITS.sub("", known.worker) != _DIGITS.sub("", new.worker)


def _with_kills(
    failures: list[OomFailure], kills: list[tuple[ends.Kill, tuple[int, ...], int]]
) -> list[OomFailure]:
    """Kills that nobody explains: mentions of a kill by the kernel or a cluster, else doubtful failures."""
    known = list(failures)
    for kill, lines, count in kills:
        host = [i for i, f in enumerate(known) if f.family is Family.HOST_KILL]
        fits = [i for i in host if kill.pid is None or known[i].pid in (None, kill.pid)]
        if fits:
            failure = known[fits[0]]
            known[fits[0]] = msgspec.structs.replace(
                failure,
                line=min(failure.line, kill.segment.line),
                pid=failure.pid if failure.pid is not None else kill.pid,
                mentions=failure.mentions + count,
                mention_lines=tuple(sorted((*failure.mention_lines, *lines)))[:_LINES_KEPT],
            )
        elif not failures:
            # beside a device failure, a launcher's or a user's kill of the others needs no such reading
            source = kill.segment.source
            known.append(
                OomFailure(
                    family=Family.HOST_KILL, certain=False, line=kill.segment.line, text=kill.what,
                    mentions=count, mention_lines=lines, rank=source.rank, worker=source.worker, pid=kill.pid,
                )
            )  # fmt: skip
    return sorted(known, key=lambda failure: failure.line)


def _is(root: RootCause, failure: OomFailure) -> bool:
    if failure.rank is not None:
        return failure.rank == root.rank
    return failure.pid == root.pid or failure.local_rank == root.local_rank


def _with_roles(failures: list[OomFailure], roots: tuple[RootCause, ...]) -> tuple[OomFailure, ...]:
    if len(failures) < 2:
        return tuple(failures)
    first, why = 0, "it stands first in the log"
    named = [i for root in roots for i, failure in enumerate(failures) if _is(root, failure)]
    if named:
        first, why = named[0], "torchrun observed it first on its node"
    certain = [i for i, failure in enumerate(failures) if failure.certain]
    if not named and certain and certain[0] != first:
        first, why = certain[0], "it is the first that names memory as the reason"
    return tuple(
        msgspec.structs.replace(
            failure,
            role="first" if index == first else "later",
            role_why=why if index == first else _later_why(failure),
        )
        for index, failure in enumerate(failures)
    )


def _later_why(failure: OomFailure) -> str:
    if not failure.certain:
        return "may follow from the first failure"
    return "may have failed on its own; whether it followed the log does not tell"


def _victims(aftermath: tuple[Aftermath, ...], failures: list[OomFailure]) -> tuple[Aftermath, ...]:
    """Those taken along: not the processes that failed themselves, and none where nothing failed."""
    if not failures:
        return ()
    ranks = {failure.rank for failure in failures if failure.rank is not None}
    pids = {failure.pid for failure in failures if failure.pid is not None}
    return tuple(
        a for a in aftermath
        if not ((a.rank is not None and a.rank in ranks) or (a.pid is not None and a.pid in pids))
    )  # fmt: skip

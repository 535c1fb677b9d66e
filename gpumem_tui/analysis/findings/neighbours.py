"""Other holders of the card, from a recording: who they are, what they hold, and how that grew."""

from collections.abc import Sequence

from gpumem_tui.analysis.findings.amounts import Amount, total_of
from gpumem_tui.analysis.findings.claims import Claim, Nature, counts, short, when
from gpumem_tui.analysis.findings.finding import Evidence, Finding, Strength, Verdict, figure, word
from gpumem_tui.analysis.findings.situation import Neighbour, Situation, Who
from gpumem_tui.analysis.findings.view import View, basis

_NAMED = 6
"""So many of them are named."""


def stranger(view: View) -> Claim | None:
    """Processes that are not ours: what they grew by, else what they hold."""
    s = view.s
    theirs = _of(s, Who.STRANGER)
    grown = [n for n in theirs if n.growth is not None]
    more = _sum([n.growth.grew for n in grown if n.growth is not None])
    if counts(more, s) and more is not None:
        most = max(grown, key=_growth_bytes)
        assert most.growth is not None
        who = _name(most) if len(grown) == 1 else f"{len(grown)} other processes, most of all {_name(most)},"
        did = (
            f"came and took {more.say()}"
            if most.growth.came and len(grown) == 1
            else f"took {more.say()} more"
        )
        return Claim(
            Nature.CHANGED,
            Finding(
                Verdict.OTHER_PROCESS,
                Strength.SUPPORTED,
                f"{who} {did} of this card, {when(most.growth)}; without that the request would have fit",
                (
                    *(
                        e
                        for n in grown[:_NAMED]
                        if n.growth
                        for e in figure(f"{_name(n)} grew by", n.growth.grew)
                    ),
                    *_held(theirs),
                    *basis(s),
                    *short(s),
                ),
                check=_who_is(grown),
                trial="the same run on a card that nobody else holds",
            ),
        )
    held = _sum([n.used for n in theirs if n.used is not None])
    if not counts(held, s) or held is None:
        return None
    some = "another process holds" if len(theirs) == 1 else f"{len(theirs)} other processes hold"
    return Claim(
        Nature.STANDING,
        Finding(
            Verdict.OTHER_PROCESS,
            Strength.SUPPORTED,
            f"{some} {held.say()} of this card; without that the request would have fit",
            (*_held(theirs), *basis(s), *short(s)),
            check=_who_is(theirs),
            trial="the same run on a card that nobody else holds",
        ),
    )


def orphans(view: View) -> Claim | None:
    """Processes left behind by this run or one like it."""
    s = view.s
    left = _of(s, Who.ORPHAN)
    held = _sum([n.used for n in left if n.used is not None])
    if not counts(held, s) or held is None:
        return None
    pids = " ".join(str(n.pid) for n in left[:_NAMED])
    return Claim(
        Nature.STANDING,
        Finding(
            Verdict.ORPHANS,
            Strength.SUPPORTED,
            f"{_number(left, 'process')} left behind by a run like this "
            f"still hold{'s' if len(left) == 1 else ''} {held.say()} of this card",
            (*_held(left), *basis(s), *short(s)),
            check=f"on the host: ps -o pid,ppid,etime,cmd -p {pids} (a parent of 1: nobody waits for it)",
            trial=f"end what is yours and is not needed (kill {pids}), then the same run",
        ),
    )


def ranks(view: View) -> Claim | None:
    """Other ranks of this run whose tensors are on this card too."""
    s = view.s
    mates = _of(s, Who.RANK)
    held = _sum([n.used for n in mates if n.used is not None])
    if not counts(held, s) or held is None:
        return None
    unused = (
        word(
            f"{s.free_elsewhere} device{'s' if s.free_elsewhere != 1 else ''} of this node "
            f"{'have' if s.free_elsewhere != 1 else 'has'} no tensors of this run",
            "driver and counters",
        )
        if s.free_elsewhere
        else ()
    )
    what = "ranks" if all(n.rank is not None for n in mates) else "processes"
    return Claim(
        Nature.STANDING,
        Finding(
            Verdict.RANKS_ON_ONE_CARD,
            Strength.SUPPORTED,
            f"{len(mates) + 1} {what} of this run share this card; the other "
            f"{_number(mates, 'rank', bare=True)} hold{'s' if len(mates) == 1 else ''} {held.say()}",
            (*_held(mates), *unused, *basis(s), *short(s)),
            check="print torch.cuda.current_device() in each rank: it should be the local rank"
            if s.free_elsewhere
            else "whether they are meant to share it: no other device of this node is free of this run",
            trial="call torch.cuda.set_device(local_rank) before anything else, and nothing else"
            if s.free_elsewhere
            else "the same run with one process fewer on this card",
        ),
    )


def strays(view: View) -> Claim | None:
    """Ranks that hold a context here, while their tensors are on other cards."""
    s = view.s
    found = _of(s, Who.STRAY)
    held = _sum([n.used for n in found if n.used is not None])
    if not counts(held, s) or held is None:
        return None
    return Claim(
        Nature.STANDING,
        Finding(
            Verdict.STRAY_CONTEXTS,
            Strength.SUPPORTED,
            f"{_number(found, 'rank')} of other cards hold{'s' if len(found) == 1 else ''} "
            f"{held.say()} on this one without a tensor here: contexts that strayed",
            (*_held(found), *basis(s), *short(s)),
            check="torch.load without map_location, or CUDA calls before set_device(local_rank)",
            trial="set CUDA_VISIBLE_DEVICES for each rank, and nothing else",
        ),
    )


def unlisted(view: View) -> Claim | None:
    """The residual: used, and no listed process has it."""
    s = view.s
    if not counts(s.unlisted, s) or s.unlisted is None:
        return None
    return Claim(
        Nature.STANDING,
        Finding(
            Verdict.UNLISTED,
            Strength.SUPPORTED,
            f"{s.unlisted.say()} of this card belong to no process that the driver lists",
            (*figure("unattributed", s.unlisted), *_held(s.neighbours), *basis(s), *short(s)),
            check="on the host, outside the container: nvidia-smi, and fuser -v /dev/nvidia*",
            trial="the same run on another card of this node",
            missing=("who holds it",),
        ),
    )


def _of(s: Situation, who: Who) -> list[Neighbour]:
    found = [n for n in s.neighbours if n.who is who]
    return sorted(found, key=lambda n: -(n.used.low_bytes if n.used is not None else 0))


def _sum(amounts: Sequence[Amount]) -> Amount | None:
    return total_of(list(amounts), "driver") if amounts else None


def _growth_bytes(n: Neighbour) -> int:
    return n.growth.grew.low_bytes if n.growth is not None else 0


def _name(n: Neighbour) -> str:
    if n.rank is not None:
        return f"rank {n.rank}"
    return f"process {n.pid}" + (f" ({n.name})" if n.name else "")


def _held(found: Sequence[Neighbour]) -> tuple[Evidence, ...]:
    return tuple(e for n in found[:_NAMED] for e in figure(f"{_name(n)} holds", n.used))


def _who_is(found: Sequence[Neighbour]) -> str:
    return f"on the host: ps -o pid,user,etime,cmd -p {','.join(str(n.pid) for n in found[:_NAMED])}"


def _number(found: Sequence[Neighbour], noun: str, *, bare: bool = False) -> str:
    plural = {"process": "processes"}.get(noun, f"{noun}s")
    if len(found) == 1:
        return "one" if bare else f"one {noun}"
    return str(len(found)) if bare else f"{len(found)} {plural}"

"""Processes as a forest: who was started by whom. Pure; knows no more than the rows say of their ancestors.

Refuses to draw what joins nothing: an ancestor that is on no card is a row only where
it started two listed processes or more, as a launcher or a shell does.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from gpumem_tui.analysis.top import Ancestor, TopProcess


class Branch(msgspec.Struct, frozen=True):
    """One row of the forest: a process on a card, or a launcher that is on none."""

    process: TopProcess | None
    launcher: Ancestor | None = None
    lasts: tuple[bool, ...] = ()
    """Of each level from the root's children down to it: whether that one is the last of its siblings."""


def flat(processes: Iterable[TopProcess]) -> tuple[Branch, ...]:
    """No forest: the rows as they are."""
    return tuple(Branch(process) for process in processes)


def forest(processes: Sequence[TopProcess]) -> tuple[Branch, ...]:
    """The rows below who started them. Siblings keep the order given, each by the first row of its branch."""
    rows: dict[int, list[TopProcess]] = {}
    for process in processes:
        rows.setdefault(process.pid, []).append(process)
    known = {a.pid: a for process in processes for a in process.ancestors}
    above = {pid: [a.pid for a in several[0].ancestors] for pid, several in rows.items()}
    kept = rows.keys() | _joining(above)
    parents: dict[int, int | None] = {}
    for pid, chain in above.items():
        parents[pid] = next((a for a in chain if a in kept), None)
    for chain in above.values():
        there = [a for a in chain if a in kept]
        for child, parent in zip(there, [*there[1:], None], strict=False):
            parents.setdefault(child, parent)
    children = _children(above, parents)
    found: list[Branch] = []

    def grow(pid: int, lasts: tuple[bool, ...]) -> None:
        if pid in rows:
            again = (*lasts[:-1], False) if lasts else ()
            found.extend(Branch(process, lasts=again) for process in rows[pid][:-1])
            found.append(Branch(rows[pid][-1], lasts=lasts))
        else:
            found.append(Branch(None, known[pid], lasts))
        below = list(children.get(pid, ()))
        for child in below:
            grow(child, (*lasts, child == below[-1]))

    for root in children.get(None, ()):
        grow(root, ())
    return tuple(found)


def _children(pids: Iterable[int], parents: dict[int, int | None]) -> dict[int | None, dict[int, None]]:
    """Below whom is who, in order; a ring, as of ancestors read while pids were used again, is cut open."""
    children: dict[int | None, dict[int, None]] = {}
    for pid in pids:
        climbed: set[int] = set()
        at: int | None = pid
        while at is not None:
            climbed.add(at)
            if parents[at] in climbed:
                parents[at] = None
            children.setdefault(parents[at], {}).setdefault(at)
            at = parents[at]
    return children


def _joining(above: dict[int, list[int]]) -> set[int]:
    """Ancestors below which branches of two listed processes meet."""
    below: dict[int, set[int]] = {}
    for pid, chain in above.items():
        for child, parent in pairwise([pid, *chain]):
            below.setdefault(parent, set()).add(child)
    return {pid for pid, children in below.items() if len(children) > 1}

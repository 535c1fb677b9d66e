"""From the ring's slots to lines of the journal: edges of spans, and runs of equal short spans folded.

A model that decodes token by token, or serves a thousand requests a second, has as
many spans as calls. Of those that follow each other at once, with the same phase, name
and thread and with nothing in between, one ``spans`` line is written instead of a
``begin`` and an ``end`` for each. Never folded: the first span of a phase (it is the
cold one), spans with an error, long ones, and ones with spans inside.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set, Tuple

from . import ring as rings
from . import wire

SHORT_NS = 50_000_000
"""Spans that take longer are never folded."""

MOST_WAITING = 256
"""Edges that may lack their last slot; beyond it the oldest are given up, their slots were overwritten."""

FEWEST = 8
"""Equal spans in a row, in one drain, from which on they are folded: eighty a second, usually."""


MOST_KINDS = 4096
"""Phases and names that are remembered as begun before; spans of further ones stay whole."""


class _Whole:
    """The begin or the end of a span on all its devices."""

    __slots__ = ("first", "levels", "seq")

    def __init__(self, edge: rings.Edge, levels: List[List[Any]]) -> None:
        self.first = edge
        self.levels = levels
        self.seq = edge.seq
        """Of its last slot: the one that readers compare."""

    def line(self) -> bytes:
        edge = self.first
        if edge.edge == rings.BEGIN:
            about = (edge.parent or None, edge.thread, edge.phase, edge.name, edge.step)
            return wire.encode("begin", edge.t_ns, self.seq, edge.span, *about, self.levels)
        return wire.encode("end", edge.t_ns, self.seq, edge.span, edge.error, self.levels)


class EdgeLines:
    """The edges of one process, in the order of the ring. ``fold`` False: every span stays whole."""

    def __init__(self, fold: bool = True) -> None:
        self._fewest = FEWEST if fold else 1 << 62
        self._seen: Set[Tuple[str, str]] = set()
        self._waiting: Dict[Tuple[int, int], List[Any]] = {}
        """Levels of edges whose last slot has not come yet."""

    def lines(self, edges: List[rings.Edge]) -> List[bytes]:
        """Lines of the edges of one drain."""
        whole = self._joined(edges)
        lines: List[bytes] = []
        at = 0
        while at < len(whole):
            run = self._run(whole, at)
            if len(run) >= self._fewest:
                lines += _folded(run)
                at += 2 * len(run)
                continue
            first = whole[at].first
            if first.edge == rings.BEGIN and len(self._seen) < MOST_KINDS:
                self._seen.add((first.phase, first.name))
            lines.append(whole[at].line())
            at += 1
        return lines

    def _joined(self, edges: List[rings.Edge]) -> List[_Whole]:
        """Slots of one edge on several devices as one; another thread's may stand between them."""
        found = []
        for edge in edges:
            levels = self._waiting.setdefault((edge.span, edge.edge), [])
            if edge.ordinal != rings.NO_DEVICE:
                level: List[Any] = [edge.ordinal, edge.allocated_bytes, edge.reserved_bytes]
                if edge.edge == rings.END:
                    level += [edge.peak_allocated_bytes, edge.peak_reserved_bytes, edge.exact]
                levels.append(level)
            if len(self._waiting) > MOST_WAITING:
                self._waiting.pop(next(iter(self._waiting)))
            if not edge.more:
                del self._waiting[edge.span, edge.edge]
                found.append(_Whole(edge, levels))
        return found

    def _run(self, whole: List[_Whole], at: int) -> List[Tuple[_Whole, _Whole]]:
        """Equal spans from here on, each with its begin and its end next to each other."""
        run: List[Tuple[_Whole, _Whole]] = []
        kind: Optional[Tuple[Any, ...]] = None
        while at + 1 < len(whole):
            begin, end = whole[at].first, whole[at + 1].first
            same = (begin.phase, begin.name, begin.parent, begin.thread)
            short = end.t_ns - begin.t_ns < SHORT_NS and end.error is None
            short = short and not any(None in level for level in whole[at + 1].levels)
            if begin.edge != rings.BEGIN or end.edge != rings.END or begin.span != end.span or not short:
                break
            if same[:2] not in self._seen or (kind is not None and same != kind):
                break
            kind = same
            run.append((whole[at], whole[at + 1]))
            at += 2
        return run


def _folded(run: List[Tuple[_Whole, _Whole]]) -> List[bytes]:
    """One ``spans`` line for each device; one without levels where none was read."""
    first, last = run[0][0].first, run[-1][1]
    common = (first.t_ns, last.first.t_ns, first.phase, first.name)
    took = _extent([end.first.t_ns - begin.first.t_ns for begin, end in run])
    told = (last.seq, run[-1][0].first.step, first.thread)
    ordinals = sorted({level[0] for _, end in run for level in end.levels})
    if not ordinals:
        none = (None, None, None, None)
        return [wire.encode("spans", *common, None, False, len(run), 0, took, *none, 0, *told)]
    lines = []
    for ordinal in ordinals:
        levels = [level for _, end in run for level in end.levels if level[0] == ordinal]
        extents = [_extent([level[i] for level in levels]) for i in (3, 4, 1, 2)]
        inexact = sum(not level[5] for level in levels)
        lines.append(
            wire.encode("spans", *common, ordinal, False, len(levels), 0, took, *extents, inexact, *told)
        )
    return lines


def _extent(values: List[int]) -> List[int]:
    return [min(values), max(values), values[-1]]

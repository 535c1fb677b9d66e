"""Which files make up the journals of a run, writer by writer, in order.

A journal is a row of numbered segments. ``who.0003.fold.jsonl`` beside
``who.0003.jsonl`` replaces it: a fold is renamed into place when it is whole, and
only then is the raw segment removed, so that a listing always has one of the two.
Refuses to look inside files.
"""

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpumem_tui.agent import wire

FOLD_SUFFIX = ".fold.jsonl"
TEMPORARY_SUFFIX = ".fold.jsonl.tmp"
"""A fold that is being written; one that nobody writes any more is a leftover."""

_NAME = re.compile(
    rf"(?P<who>(?:{'|'.join(wire.ROLES)})(?:-(?P<pid>\d+)-(?P<ticks>\d+))?)"
    r"\.(?P<number>\d{4,9})(?P<fold>\.fold)?\.jsonl(?P<tmp>\.tmp)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a journal, by what its name says."""

    name: str
    who: str
    number: int
    folded: bool
    role: str
    pid: int | None
    """None for the journals that are not named after a process."""
    started_ticks: int | None


@dataclass(slots=True)
class Listing:
    """What a journal folder holds at one moment."""

    writers: dict[str, dict[int, Segment]] = field(default_factory=dict)
    """Current segments by writer and number; numbers in no particular order."""
    shadowed: list[str] = field(default_factory=list)
    """Raw segments beside their fold: not to be read, to be removed."""
    leftovers: list[str] = field(default_factory=list)
    """Temporary files of a fold that was never finished."""
    strangers: list[str] = field(default_factory=list)
    """Files that no journal is made of."""


@functools.lru_cache(maxsize=65536)
def parse_name(name: str) -> Segment | None:
    """The segment that a file of this name is; None for temporary files and strangers."""
    match = _NAME.fullmatch(name)
    if match is None or match["tmp"]:
        return None
    return Segment(
        name=name,
        who=match["who"],
        number=int(match["number"]),
        folded=match["fold"] is not None,
        role=match["who"].partition("-")[0],
        pid=None if match["pid"] is None else int(match["pid"]),
        started_ticks=None if match["ticks"] is None else int(match["ticks"]),
    )


def fold_name(segment: Segment) -> str:
    """Name of the folded form of a segment."""
    return f"{segment.who}.{segment.number:04d}{FOLD_SUFFIX}"


def scan(journal: Path) -> Listing:
    """List a journal folder; one that does not exist (yet) is empty."""
    listing = Listing()
    try:
        names = os.listdir(journal)  # noqa: PTH208 - names are all that is needed, Paths cost
    except FileNotFoundError:
        return listing
    for name in names:
        segment = parse_name(name)
        if segment is None:
            unfinished = name.endswith(TEMPORARY_SUFFIX) and _NAME.fullmatch(name) is not None
            (listing.leftovers if unfinished else listing.strangers).append(name)
            continue
        _place(listing, segment)
    return listing


def merge(one: Listing, other: Listing) -> Listing:
    """What either of two listings of one folder has seen; a fold wins over its raw segment.

    A single listing that is taken while a fold replaces a raw segment may miss both.
    """
    both = Listing(strangers=other.strangers, leftovers=other.leftovers)
    for listing in (one, other):
        for pieces in listing.writers.values():
            for segment in pieces.values():
                _place(both, segment)
    return both


def _place(listing: Listing, segment: Segment) -> None:
    pieces = listing.writers.setdefault(segment.who, {})
    present = pieces.get(segment.number)
    if present is None or present.name == segment.name:
        pieces[segment.number] = segment
    elif segment.folded:
        pieces[segment.number] = segment
        listing.shadowed.append(present.name)
    else:
        listing.shadowed.append(segment.name)


def list_segments(journal: Path) -> Mapping[str, list[Segment]]:
    """The segments of every writer, in the order in which they were written."""
    writers = scan(journal).writers
    return {who: [pieces[number] for number in sorted(pieces)] for who, pieces in sorted(writers.items())}

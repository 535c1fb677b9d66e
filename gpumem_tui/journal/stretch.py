"""A stretch of one writer's journal around a moment, read by seeking: what a look into the past needs.

Times within a journal grow, but for edges that are written up to
:data:`~gpumem_tui.journal.window.MARGIN_NS` late and buckets that tell when they
began; both are allowed for. Refuses to follow: segments that are folded or removed
between listing and reading are looked up again by the next call.
"""

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gpumem_tui.errors import UnreadableRecording
from gpumem_tui.journal.lines import Cursor, decode_block, open_regular
from gpumem_tui.journal.segments import Segment
from gpumem_tui.journal.window import MARGIN_NS, read_header, seek
from gpumem_tui.records import Header, Record
from gpumem_tui.records.decode import Unknown


class Place(NamedTuple):
    """A line's beginning in a journal."""

    number: int
    offset: int


class Told(NamedTuple):
    """What a stretch has read."""

    header: Header
    records: list[Record]
    """In file order; some may be a little older or younger than asked for."""
    corrupt_lines: int


@functools.lru_cache(maxsize=8192)
def _head(path: str, _inode: int) -> Header | None:
    fd = open_regular(Path(path))
    try:
        return read_header(fd)
    finally:
        os.close(fd)


def head(journal: Path, segment: Segment) -> Header | None:
    """A segment's header; None where it has none or is gone."""
    path = journal / segment.name
    try:
        return _head(str(path), path.stat().st_ino)
    except (OSError, UnreadableRecording):
        return None


def find(journal: Path, segments: Mapping[int, Segment], t_ns: int) -> Place:
    """The place before which nearly everything is older than ``t_ns``."""
    numbers = sorted(segments)
    low, high = 0, len(numbers) - 1
    while low < high:
        middle = (low + high + 1) // 2
        header = head(journal, segments[numbers[middle]])
        if header is not None and header.t_ns > t_ns:
            high = middle - 1
        else:
            low = middle
    number = numbers[low]
    try:
        fd = open_regular(journal / segments[number].name)
    except OSError:
        return Place(number, 0)
    try:
        return Place(number, seek(fd, t_ns))
    finally:
        os.close(fd)


def back(journal: Path, segments: Mapping[int, Segment], place: Place, size_bytes: int) -> Place:
    """A place about ``size_bytes`` before another; it may lie within a line."""
    number, offset = place
    while offset < size_bytes:
        before = [each for each in segments if each < number]
        if not before:
            return Place(number, 0)
        size_bytes -= offset
        number = max(before)
        offset = size_of(journal, segments[number])
    return Place(number, offset - size_bytes)


def size_of(journal: Path, segment: Segment) -> int:
    """Bytes of a segment; 0 where it is gone."""
    try:
        return (journal / segment.name).stat().st_size
    except OSError:
        return 0


def distance_bytes(journal: Path, segments: Mapping[int, Segment], start: Place, end: Place) -> int:
    """Bytes between two places of a journal."""
    if start.number == end.number:
        return end.offset - start.offset
    between = sum(size_of(journal, segments[n]) for n in segments if start.number <= n < end.number)
    return between - start.offset + end.offset


def read(journal: Path, segments: Mapping[int, Segment], start: Place, until_ns: int) -> Iterator[Told]:
    """Records from a place on, block by block, until they are younger than ``until_ns`` and the margin."""
    for number in sorted(n for n in segments if n >= start.number):
        segment = segments[number]
        header = head(journal, segment)
        if header is None:
            continue
        if number > start.number and header.t_ns > until_ns + MARGIN_NS:
            return
        try:
            fd = open_regular(journal / segment.name)
        except OSError:
            continue
        try:
            offset = start.offset if number == start.number else 0
            cursor = Cursor(fd, offset)
            cursor.skip_line()  # the header, or the rest of a line
            while block := cursor.read():
                lines = decode_block(block)
                records: list[Record] = [
                    line for line in lines if line is not None and not isinstance(line, Unknown)
                ]
                if records:
                    yield Told(header, records, sum(line is None for line in lines))
                    if getattr(records[-1], "t_ns", 0) > until_ns + MARGIN_NS:
                        return
        finally:
            os.close(fd)

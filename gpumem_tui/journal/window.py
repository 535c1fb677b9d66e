"""Where to start reading a big recording, so that its last minutes show at once.

Looks at headers and a few lines only: times within a writer's journal grow, but for
edges that reach it a moment late, which :data:`MARGIN_NS` allows for.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpumem_tui.journal.lines import BLOCK_BYTES, LINE_LIMIT_BYTES, Cursor, decode_block, open_regular
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.segments import Segment, scan
from gpumem_tui.records import (
    Device,
    Gpu,
    Header,
    Process,
    Rank,
    Record,
    Start,
    Torch,
    Word,
    decode_header,
)

MARGIN_NS = 5_000_000_000
"""Lines may be written so much after the time that they tell."""

_ABOUT_ITSELF = (Rank, Torch, Device, Gpu, Process, Start, Word)
_STEP_BYTES = 64 << 10
_HEADER_BYTES = 16 << 10
"""Nearly every header is shorter."""
_any = msgspec.json.Decoder()


def read_header(fd: int) -> Header | None:
    """The header of an open segment; None if its first line is none. Raises UnreadableRecording if newer."""
    line = first_line(fd)
    return decode_header(line) if line else None


def first_line(fd: int) -> bytes:
    """The first line of a file with its newline; empty where that is not whole or too long for one."""
    for size in (_HEADER_BYTES, LINE_LIMIT_BYTES + 1):
        data = os.pread(fd, size, 0)
        end = data.find(b"\n") + 1
        if end or len(data) < size:
            return data[:end]
    return b""


def start(
    journal: Path, segments: Mapping[int, Segment], since_ns: int
) -> tuple[int, int, list[tuple[Header, list[Record]]]]:
    """Number of the segment and offset of the line to start from, and what the writer said of itself before.

    The latter comes from the first 256 KiB of the first segment and of the one to
    start from.
    """
    since_ns -= MARGIN_NS
    numbers = sorted(segments)
    low, high = 0, len(numbers) - 1
    while low < high:
        middle = (low + high + 1) // 2
        began_ns = _began_ns(journal / segments[numbers[middle]].name)
        if began_ns is not None and began_ns > since_ns:
            high = middle - 1
        else:
            low = middle
    number = numbers[low]
    told = []
    if low > 0:
        told += _about_itself(journal / segments[numbers[0]].name, None)
    try:
        fd = open_regular(journal / segments[number].name)
    except OSError:
        return number, 0, told
    try:
        offset = seek(fd, since_ns)
    finally:
        os.close(fd)
    if offset:
        told += _about_itself(journal / segments[number].name, offset)
    return number, offset, told


def _began_ns(path: Path) -> int | None:
    try:
        fd = open_regular(path)
    except OSError:
        return None
    try:
        header = read_header(fd)
    finally:
        os.close(fd)
    return None if header is None else header.t_ns


def _about_itself(path: Path, until: int | None) -> list[tuple[Header, list[Record]]]:
    try:
        fd = open_regular(path)
    except OSError:
        return []
    try:
        header = read_header(fd)
        block = os.pread(fd, BLOCK_BYTES if until is None else min(until, BLOCK_BYTES), 0)
    finally:
        os.close(fd)
    if header is None:
        return []
    lines = decode_block(block[: block.rfind(b"\n") + 1])
    return [(header, [line for line in lines if isinstance(line, _ABOUT_ITSELF)])]


def seek(fd: int, since_ns: int) -> int:
    """Offset of a line in a segment before which (nearly) everything is older than ``since_ns``.

    0 where that is within the first 64 KiB.
    """
    low, high = 0, os.fstat(fd).st_size
    while high - low > _STEP_BYTES:
        middle = (low + high) // 2
        at, t_ns = _line_at(fd, middle)
        if t_ns is not None and at < high and t_ns < since_ns:
            low = at
        else:
            high = middle
    return low


def _line_at(fd: int, offset: int) -> tuple[int, int | None]:
    """Offset and time of the first readable line that begins after ``offset``."""
    data = os.pread(fd, _STEP_BYTES, offset)
    begin = data.find(b"\n") + 1
    while begin:
        end = data.find(b"\n", begin)
        if end < 0:
            break
        t_ns = time_of(data[begin:end])
        if t_ns is not None:
            return offset + begin, t_ns
        begin = end + 1
    return offset, None


def time_of(line: bytes) -> int | None:
    """The time that a line of any kind tells; None for a header or a corrupt line."""
    try:
        values = _any.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(values, list) and len(values) > 1 and type(values[1]) is int:
        return values[1]
    return None


def last_ns(run: RunDirectory) -> int | None:
    """The last time that any journal of a run tells, from the ends of its files; None if there is none."""
    times = []
    for segments in scan(run.journal).writers.values():
        segment = segments[max(segments)]
        try:
            fd = open_regular(run.journal / segment.name)
        except OSError:
            continue
        try:
            size = os.fstat(fd).st_size
            cursor = Cursor(fd, max(0, size - _STEP_BYTES))
            if cursor.offset:
                cursor.skip_line()
            times += [t_ns for line in cursor.read().split(b"\n") if (t_ns := time_of(line)) is not None]
            header = read_header(fd)
        finally:
            os.close(fd)
        if header is not None and not header.folded:
            times.append(header.t_ns)
    return max(times, default=None)

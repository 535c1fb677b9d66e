"""Follows all journals of a run: what is new since the last look, each line once, in file order.

The rule for a follower that lags behind: it keeps its current segment open, so a
segment that is folded or removed meanwhile is still read to its end, as it was
written. A segment that was folded before the follower came to it is delivered
folded. Only where a descriptor had to be given up (more than :data:`OPEN_LIMIT`
writers) and the segment is folded just then, its unread rest is counted in
``Losses.folded_unread`` and not delivered: never twice, never unsaid.

Refuses to merge writers by time, to read whole files, and to look at recordings
newer than itself (``UnreadableRecording``).
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

from gpumem_tui.journal import window
from gpumem_tui.journal.foldfacts import decode_fold_facts
from gpumem_tui.journal.lines import BLOCK_BYTES, Cursor, decode_block, decode_records, open_regular
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.segments import Listing, Segment, merge, scan
from gpumem_tui.records import Begin, End, Header, Record, Spans, decode_header, decode_line
from gpumem_tui.records.decode import Unknown

LISTED_BYTES = 16 << 20
"""Read before the folder is listed again: segments come, and are folded, meanwhile."""

OPEN_LIMIT = 200
"""Segments kept open between two polls."""


@dataclass(slots=True)
class Losses:
    """What could not be read of one writer's journal."""

    corrupt_lines: int = 0
    """Damaged, without their end in a finished segment, or before the recorder folded them."""
    unknown_lines: int = 0
    """Of kinds that a later version knows."""
    overlong_lines: int = 0
    missing_segments: int = 0
    """Numbers in between that are not there."""
    truncated: int = 0
    """Times that a file became shorter than what had been read of it."""
    folded_unread: int = 0
    """Segments folded away while they were read in part."""

    def __iadd__(self, other: "Losses") -> "Losses":
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive records of one segment."""

    header: Header
    records: list[Record]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one poll has found. Iterating gives (writer's header, record)."""

    pieces: list[Piece] = field(default_factory=list)
    more: bool = False
    """The limit was reached: poll again at once for the rest."""

    def __iter__(self) -> Iterator[tuple[Header, Record]]:
        for piece in self.pieces:
            for record in piece.records:
                yield piece.header, record

    def __len__(self) -> int:
        return sum(len(piece.records) for piece in self.pieces)


class Follower:
    """Reads the journals of one run as they grow. Not for several threads at once.

    With ``since_ns`` (node's monotonic clock) a big recording opens in a window: of
    each writer only what it says of itself, then everything from about that time on.
    Read the whole with a second follower, in the background.
    """

    def __init__(self, run: RunDirectory, *, since_ns: int | None = None) -> None:
        self.run = run
        self._since_ns = since_ns
        self._tails: dict[str, _Tail] = {}
        self._more = False

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up all descriptors; the next poll would open them again."""
        for tail in self._tails.values():
            tail.release()

    @property
    def losses(self) -> Mapping[str, Losses]:
        """By writer; only writers that were seen."""
        return {who: tail.losses for who, tail in self._tails.items()}

    @property
    def last_seq(self) -> Mapping[str, int]:
        """The highest sequence number of a span edge seen of each writer, for ``ringtail``."""
        return {who: tail.last_seq for who, tail in self._tails.items()}

    def poll(self, limit_bytes: int | None = None) -> Batch:
        """Everything new, or about ``limit_bytes`` of it (blocks of 256 KiB, writers in turn).

        Raises ``UnreadableRecording`` for a segment of a newer schema.
        """
        return Batch(list(self._part(limit_bytes)), self._more)

    def pieces(self) -> Iterator[Piece]:
        """Everything new, likewise, and each piece as it is read: a long recording is never held."""
        self._more = True
        while self._more:
            yield from self._part(LISTED_BYTES)

    def _part(self, limit_bytes: int | None) -> Iterator[Piece]:
        """What one listing of the folder has, or about ``limit_bytes`` of it; sets ``_more``."""
        listing = self._list()
        for who in sorted(listing.writers):
            if who not in self._tails:
                self._tails[who] = _Tail(self.run, who, self._since_ns)
        spent = 0
        self._more = False
        # Who was read least comes first, so that a limit starves nobody.
        order = sorted(self._tails.items(), key=lambda item: item[1].read_bytes)
        waiting = [(tail, listing.writers.get(who, {})) for who, tail in order]
        while waiting and not self._more:
            going = []
            for tail, segments in waiting:
                if limit_bytes is not None and spent >= limit_bytes:
                    self._more = True
                    break
                before = tail.read_bytes
                piece = tail.step(segments)
                if piece is None:
                    continue
                spent += max(1, tail.read_bytes - before)
                going.append((tail, segments))
                if piece.records:
                    yield piece
            waiting = going
        self._give_up_idle()

    def _list(self) -> Listing:
        listing = scan(self.run.journal)
        if any(self._gap(who, segments) for who, segments in listing.writers.items()):
            # A listing that is taken while a fold replaces a raw segment may miss both.
            listing = merge(listing, scan(self.run.journal))
        return listing

    def _gap(self, who: str, segments: Mapping[int, Segment]) -> bool:
        tail = self._tails.get(who)
        at = -1 if tail is None else tail.number
        ahead = sorted(number for number in segments if number > at)
        return bool(ahead) and ahead[-1] - at != len(ahead)

    def _give_up_idle(self) -> None:
        opened = [tail for tail in self._tails.values() if tail.is_open]
        if len(opened) > OPEN_LIMIT:
            opened.sort(key=lambda tail: tail.idle_polls, reverse=True)
            for tail in opened[: len(opened) - OPEN_LIMIT]:
                tail.release()


class _Tail:
    """The reading end of one writer's journal."""

    def __init__(self, run: RunDirectory, who: str, since_ns: int | None) -> None:
        self._run = run
        self._who = who
        self._since_ns = since_ns
        self.number = -1
        """Of the current segment; -1 before the first."""
        self.losses = Losses()
        self.last_seq = 0
        self.read_bytes = 0
        self.idle_polls = 0
        self._segment: Segment | None = None
        self._inode = 0
        self._fd = -1
        self._cursor: Cursor | None = None
        self._seen_size = -1
        self._header: Header | None = None
        self._before: list[Piece] = []

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def __del__(self) -> None:
        """A follower that is given up without ``close`` leaves no descriptor open either."""
        self.release()

    def release(self) -> None:
        """Close the descriptor; the place in the segment is kept."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def step(self, segments: Mapping[int, Segment]) -> Piece | None:
        """The next lines, at most a block; None where there is nothing more now."""
        while True:
            if self._before:
                return self._before.pop(0)
            if self._segment is None:
                if not self._advance(segments):
                    return None
                continue
            block = self._read(segments)
            if block:
                self.idle_polls = 0
                self.read_bytes += len(block)
                return self._decode(block)
            if not self._advance(segments):
                self.idle_polls += 1
                return None

    def _read(self, segments: Mapping[int, Segment]) -> bytes:
        """Whole lines of the current segment."""
        cursor = self._cursor
        assert cursor is not None  # there is a current segment
        if self._fd < 0 and not self._reopen(cursor, segments):
            return b""
        size = os.fstat(self._fd).st_size
        if size < cursor.offset:
            # Nothing is delivered twice: go on behind what is there, from the next line.
            self.losses.truncated += 1
            cursor.offset = size
            cursor.skip_line()
        elif size == self._seen_size and size - cursor.offset < BLOCK_BYTES:
            return b""  # nothing new, and what is left is the start of a line
        overlong = cursor.overlong
        block = cursor.read()
        self.losses.overlong_lines += cursor.overlong - overlong
        if not block:
            self._seen_size = size
        return block

    def _reopen(self, cursor: Cursor, segments: Mapping[int, Segment]) -> bool:
        """Open the current segment again, if there may be more to read in it and it is still the same."""
        assert self._segment is not None
        path = self._run.journal / self._segment.name
        try:
            facts = path.stat()
            if facts.st_ino == self._inode:
                closed = any(number > self.number for number in segments)
                if facts.st_size == self._seen_size and not closed:
                    return False
                self._fd = open_regular(path)
                cursor.rebase(self._fd)
                return True
        except OSError:
            pass  # removed: folded, most likely
        if self._seen_size >= 0 and self.number in segments:
            self.losses.folded_unread += 1
            self._seen_size = -1  # said once
        return False

    def _advance(self, segments: Mapping[int, Segment]) -> bool:
        """Go to the next segment, if there is one and the current is read to its end."""
        ahead = [number for number in segments if number > self.number]
        if not ahead:
            return False
        offset = 0
        number = min(ahead)
        if self.number < 0 and self._since_ns is not None:
            number, offset, told = window.start(self._run.journal, segments, self._since_ns)
            self._before = [Piece(*each) for each in told]
        segment = segments[number]
        try:
            fd = open_regular(self._run.journal / segment.name)
        except OSError:
            return self._pass_over(segments, number)
        if os.fstat(fd).st_size == 0 and len(ahead) == 1:
            os.close(fd)  # its writer may yet take it back (no room for the header) and go on in the old
            return False
        # Listed before the current one was read to its end: whatever came before this one is read.
        self._finish()
        if self.number >= 0:
            self.losses.missing_segments += number - self.number - 1
        self._segment, self.number = segment, number
        self._fd, self._inode = fd, os.fstat(fd).st_ino
        self._cursor = Cursor(fd, offset)
        self._seen_size = -1
        self._header = None
        if offset:  # in the middle: its header is not among the lines to come
            self._header = window.read_header(fd) or self._substitute(segment)
        return True

    def _pass_over(self, segments: Mapping[int, Segment], number: int) -> bool:
        """What cannot be opened is tried again later, unless it is no plain file at all."""
        path = self._run.journal / segments[number].name
        if path.is_symlink() or (path.exists() and not path.is_file()):
            self.number = max(self.number, number)
            self.losses.missing_segments += 1
            return self._advance(segments)
        return False

    def _finish(self) -> None:
        """Leave the current segment; a line that has not ended by now never will."""
        cursor = self._cursor
        if self._fd >= 0 and cursor is not None:
            if os.fstat(self._fd).st_size > cursor.offset:
                self.losses.corrupt_lines += 1
            self.release()

    def _decode(self, block: bytes) -> Piece:
        """The records of whole lines; whatever else they are is counted."""
        if self._header is None:
            block = self._take_header(block)
        records = decode_records(block)
        if records is None:
            records = []
            for line in decode_block(block):
                if line is None:
                    self.losses.corrupt_lines += 1
                elif isinstance(line, Unknown):
                    self.losses.unknown_lines += 1
                else:
                    records.append(line)
        for record in reversed(records):
            if isinstance(record, Begin | End | Spans) and record.seq is not None:
                self.last_seq = max(self.last_seq, record.seq)
                break
        assert self._header is not None
        return Piece(self._header, records)

    def _take_header(self, block: bytes) -> bytes:
        """Read the first line of a segment; what is left of the block."""
        assert self._segment is not None
        end = block.index(b"\n") + 1
        self._header = decode_header(block[:end])
        if self._header is None:
            self._header = self._substitute(self._segment)
            if decode_line(block[:end]) is None:
                self.losses.corrupt_lines += 1
                return block[end:]
            return block  # the header is missing, the records are not
        if self._segment.folded:
            told = decode_fold_facts(block[:end])
            self.last_seq = max(self.last_seq, told.last_seq)
            self.losses.corrupt_lines += told.corrupt_lines
        return block[end:]

    def _substitute(self, segment: Segment) -> Header:
        """A header for a segment that lost its own: the segment's name and the run's clock say enough."""
        facts = self._run.read_facts()
        return Header(
            journal=segment.role,
            schema=facts.schema,
            run=facts.run,
            segment=segment.number,
            host=facts.host,
            boot=facts.boot,
            pid=segment.pid or 0,
            started_ticks=segment.started_ticks,
            t_ns=facts.t_ns,
            wall_ns=facts.wall_ns,
            folded=segment.folded,
        )

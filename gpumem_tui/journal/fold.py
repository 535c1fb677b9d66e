"""Folds one closed segment: dense readings become buckets, everything else is kept as it is.

What becomes of which kind is told by ``buckets``. Spans that begin and end in the same
segment are summarised; edges of a span that reaches over a segment's border are kept
whole on both sides, so that a reader of any mixture of raw and folded segments sees it
begin and end. Unknown kinds are kept whole; corrupt lines are counted in the header.

A fold is written under a temporary name, synced, renamed into place, and only then is
the raw segment removed: whoever is killed in between leaves a whole recording. Holds
one segment's fold in memory. Refuses segments without a header, and ones that grow.
"""

import os
from collections.abc import Hashable
from pathlib import Path

import msgspec

from gpumem_tui.errors import UnreadableRecording
from gpumem_tui.journal import buckets
from gpumem_tui.journal.foldfacts import FoldFacts, decode_fold_facts
from gpumem_tui.journal.lines import Cursor, Line, decode_block, open_regular
from gpumem_tui.journal.runfile import sync_directory
from gpumem_tui.journal.segments import TEMPORARY_SUFFIX, Segment, fold_name, parse_name, scan
from gpumem_tui.journal.window import first_line, read_header
from gpumem_tui.records import (
    Begin,
    End,
    Host,
    Load,
    Memories,
    Memory,
    Output,
    Peaks,
    Processes,
    Sample,
    Samples,
    Spans,
    Tree,
)
from gpumem_tui.records.decode import Unknown

SEEN_LIMIT = 4096
"""Names of spans remembered to tell cold from warm; further ones count as warm."""

SEEN_LIMIT_BYTES = 256 << 10
"""Likewise, the length of these names together: a header must stay a readable line."""


class StillWritten(ValueError):
    """The segment grew while it was folded: it is not closed, and is left as it is."""


def fold_segment(path: Path, bucket_ns: int) -> Path:
    """Fold a closed segment, raw or folded already, to buckets of ``bucket_ns``; the folded file.

    Folding again to the same width does nothing. Raises ValueError for a width that is
    no multiple of the present one, :class:`StillWritten`, ``UnreadableRecording`` for
    a file without a header that this version reads, and OSError.
    """
    segment = parse_name(path.name)
    if segment is None:
        raise UnreadableRecording(f"{path} is no segment of a journal")
    fd = open_regular(path)
    try:
        size_bytes = os.fstat(fd).st_size
        head = first_line(fd)
        if read_header(fd) is None:
            raise UnreadableRecording(f"{path} has no header; it is left as it is")
        facts = decode_fold_facts(head)
        if bucket_ns <= 0 or (facts.bucket_ns and bucket_ns % facts.bucket_ns):
            raise ValueError(f"{path} has buckets of {facts.bucket_ns} ns, which do not fit into {bucket_ns}")
        if facts.bucket_ns == bucket_ns:
            return path
        seen = facts.seen if segment.folded else _seen_before(path.parent, segment)
        folding = _Folding(bucket_ns, facts, seen)
        cursor = Cursor(fd, len(head))
        while block := cursor.read():
            for line, raw in zip(decode_block(block), block.split(b"\n")[:-1], strict=True):
                folding.take(line, raw + b"\n")
        if os.fstat(fd).st_size != size_bytes:
            raise StillWritten(f"{path} is still being written")
        folding.corrupt_lines += cursor.overlong + (size_bytes > cursor.offset)
    finally:
        os.close(fd)
    folded = path.with_name(fold_name(segment))
    _replace(folded, folding.header(head), folding.lines())
    if not segment.folded:
        path.unlink()
    return folded


def _replace(folded: Path, header: bytes, lines: list[bytes]) -> None:
    temporary = folded.with_name(folded.name.removesuffix(".jsonl") + ".jsonl.tmp")
    assert temporary.name.endswith(TEMPORARY_SUFFIX)
    try:
        with temporary.open("wb") as file:
            file.write(header)
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(folded)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(folded.parent)


def _seen_before(journal: Path, segment: Segment) -> list[tuple[str, str]]:
    """(phase, name) of the spans that began in earlier segments. Folded ones know it of all before them."""
    pieces = scan(journal).writers[segment.who]
    seen: list[tuple[str, str]] = []
    raw = []
    for number in sorted((n for n in pieces if n < segment.number), reverse=True):
        if pieces[number].folded:
            fd = open_regular(journal / pieces[number].name)
            try:
                seen = decode_fold_facts(first_line(fd)).seen
            finally:
                os.close(fd)
            break
        raw.append(pieces[number])
    names = dict.fromkeys(seen)
    for piece in reversed(raw):
        fd = open_regular(journal / piece.name)
        try:
            cursor = Cursor(fd)
            while block := cursor.read():
                names.update(((b.phase, b.name), None) for b in decode_block(block) if isinstance(b, Begin))
        finally:
            os.close(fd)
    return list(names)


class _Folding:
    """One segment on its way into buckets. Everything keeps the place of the last line that went into it."""

    def __init__(self, bucket_ns: int, facts: FoldFacts, seen: list[tuple[str, str]]) -> None:
        self._bucket_ns = bucket_ns
        self._raw = facts.bucket_ns == 0
        self.corrupt_lines = facts.corrupt_lines
        self._last_seq = facts.last_seq
        self._seen = dict.fromkeys(seen)
        self._seen_bytes = sum(len(phase) + len(name) for phase, name in seen)
        self._place = 0
        self._kept: list[tuple[int, bytes]] = []
        self._open: dict[int, tuple[int, bytes, Begin, bool]] = {}
        self._buckets: dict[tuple[Hashable, int], tuple[int, buckets.Bucket]] = {}
        self._claimed: dict[tuple[Hashable, int], tuple[float, int, bytes]] = {}

    def take(self, line: Line, raw: bytes) -> None:
        """One line of the segment."""
        self._place += 1
        match line:
            case None:
                self.corrupt_lines += 1
            case Sample():
                self._add(buckets.of_sample(line))
            case Samples() | Memories() | Spans():
                self._add(line)
            case Memory():
                if self._raw:  # in a fold it has been counted, and is kept for its reason only
                    self._add(buckets.of_memory(line))
                self._claim(line, raw)
            case Processes() | Tree() | Load() | Host() | Output() | Peaks():
                self._claim(line, raw)
            case Begin():
                self._begin(line, raw)
            case End():
                self._end(line, raw)
            case Unknown() | _:
                self._kept.append((self._place, raw))

    def _add(self, bucket: buckets.Bucket) -> None:
        self._place += 1
        if isinstance(bucket, Spans) and bucket.seq is not None:
            self._last_seq = max(self._last_seq, bucket.seq)
        place = (buckets.key(bucket), bucket.until_ns // self._bucket_ns)
        present = self._buckets.get(place)
        joined = bucket if present is None else buckets.join(present[1], bucket)
        self._buckets[place] = (self._place, joined)

    def _claim(self, record: buckets.Thinned | Memory, raw: bytes) -> None:
        self._place += 1
        stretch = record.t_ns // self._bucket_ns
        for ground, strength in buckets.claims(record):
            present = self._claimed.get((ground, stretch))
            if present is None or strength >= present[0]:
                self._claimed[ground, stretch] = (strength, self._place, raw)

    def _begin(self, begin: Begin, raw: bytes) -> None:
        self._last_seq = max(self._last_seq, begin.seq)
        earlier = self._open.pop(begin.span, None)
        if earlier is not None:
            self._kept.append(earlier[:2])
        self._open[begin.span] = (self._place, raw, begin, self._is_cold(begin.phase, begin.name))

    def _is_cold(self, phase: str, name: str) -> bool:
        if (phase, name) in self._seen or len(self._seen) >= SEEN_LIMIT:
            return False
        self._seen_bytes += len(phase) + len(name)
        if self._seen_bytes > SEEN_LIMIT_BYTES:
            return False
        self._seen[phase, name] = None
        return True

    def _end(self, end: End, raw: bytes) -> None:
        self._last_seq = max(self._last_seq, end.seq)
        opened = self._open.pop(end.span, None)
        if opened is None:
            self._kept.append((self._place, raw))
            return
        for bucket in buckets.of_span(opened[2], end, opened[3]):
            self._add(bucket)

    def header(self, head: bytes) -> bytes:
        """The header line of the fold, from that of the segment."""
        told = msgspec.json.decode(head)
        told.update(
            folded=True,
            bucket_ns=self._bucket_ns,
            corrupt_lines=self.corrupt_lines,
            last_seq=self._last_seq,
            seen=list(self._seen),
        )
        return msgspec.json.encode(told) + b"\n"

    def lines(self) -> list[bytes]:
        """The lines of the fold, in the order of the last line that went into each."""
        placed = dict(self._kept)
        placed.update((place, raw) for place, raw, _, _ in self._open.values())
        placed.update((place, msgspec.json.encode(b) + b"\n") for place, b in self._buckets.values())
        placed.update((place, raw) for _, place, raw in self._claimed.values())
        return [placed[place] for place in sorted(placed)]

"""A stretch of a log around something that may matter, and all that is found in it.

Joins what each source said across lines, so that several interleaved ranks and hard
wraps are read each on its own, and says on which line everything found begins.
"""

import bisect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from gpumem_tui.analysis.oomtext import clauses, ends, frames, frameworks
from gpumem_tui.analysis.oomtext.clean import NOBODY, Segment, Source, is_box, readable, squeeze
from gpumem_tui.analysis.oomtext.facts import (
    ALLOCATORS,
    HOST,
    Aftermath,
    Family,
    OomFailure,
    Planning,
    RootCause,
)
from gpumem_tui.analysis.oomtext.planning import planning_of

FRAMES_BACK = 220
"""How many segments before a message may belong to its traceback."""


class PressureLine(NamedTuple):
    """One failed driver allocation."""

    line: int
    source: Source
    device: int
    requested_bytes: int
    free_bytes: int
    total_bytes: int


class PoolLine(NamedTuple):
    """What an allocator tells of its pool, apart from the message of its failure."""

    failure: OomFailure
    """Of its family, with the pool's figures and nothing else."""


Item = OomFailure | PoolLine | PressureLine | Aftermath | RootCause | ends.Kill | Planning


class Found(NamedTuple):
    """What a window holds."""

    items: list[tuple[int, Item]]
    """With the place of the segment in which each begins, in their order."""
    no_process_list: bool
    """NVML gave no process lists for the messages."""


class _Voice:
    """What one source said in the window, as one squeezed text."""

    def __init__(self, parts: Sequence[Segment]) -> None:
        self.parts = parts
        self.starts: list[int] = []
        self._skipped: list[int] = []
        self._offsets: tuple[int, list[int]] = (-1, [])
        pieces: list[str] = []
        at = 0
        head = ""
        for part in parts:
            text = part.text
            shared = _shared_prefix(head, text)
            piece = squeeze(text[shared:])
            head = text
            self.starts.append(at)
            self._skipped.append(shared)
            pieces.append(piece)
            at += len(piece)
        self.text = "".join(pieces)

    def part_at(self, offset: int) -> tuple[int, int]:
        """The segment in which an offset lies, and the offset within it."""
        index = bisect.bisect_right(self.starts, offset) - 1
        return index, offset - self.starts[index]

    def number_end(self, start: int, end: int) -> int:
        """Where a number ends: it goes on in the next line only where that holds nothing else."""
        index, _ = self.part_at(start)
        while index + 1 < len(self.starts) and (line_end := self.starts[index + 1]) < end:
            index += 1
            after = self.starts[index + 1] if index + 1 < len(self.starts) else len(self.text)
            if not self.text[line_end:after].rstrip("\"'|)]}").isdigit():
                return line_end
        return end

    def plain(self, index: int, column: int) -> int:
        """Where in a segment's own text a character stands that squeezing has moved."""
        if self._offsets[0] != index:
            skipped, text = self._skipped[index], self.parts[index].text
            kept = [at for at in range(skipped, len(text)) if not text[at].isspace() and not is_box(text[at])]
            self._offsets = (index, kept)
        offsets = self._offsets[1]
        return offsets[column] if column < len(offsets) else len(self.parts[index].text)


_OURS = re.compile(r"memory|alloc|[Ee]rror|NCCL|[Kk]ill|process")
_LEAD = 80
"""So many characters before a message are shown with it: the exception's name, usually."""

_SHOWN = 400
"""No more of a line is shown."""


def _excerpt(voice: _Voice, match: clauses.Match) -> str:
    """The message as it stands, from the start of its line where that is near."""
    index, column = voice.part_at(match.start)
    last, end = voice.part_at(match.end - 1)
    texts = [part.text for part in voice.parts[index : last + 1]]
    if match.family in ALLOCATORS:  # what follows the last figure is advice
        texts[-1] = texts[-1][: voice.plain(last, end) + 1]
    start = voice.plain(index, column)
    if start > _LEAD:
        texts[0] = texts[0][start - _LEAD : start + _SHOWN].partition(" ")[2]
    return readable(" ".join(text[:_SHOWN] for text in texts))


def _shared_prefix(before: str, text: str) -> int:
    """Length of a prefix that two lines in a row share up to a separator: a name nobody told us."""
    shared = 0
    for shared, (a, b) in enumerate(zip(before[:80], text, strict=False)):  # noqa: B007
        if a != b:
            break
    else:
        return 0
    for end in range(shared, 3, -1):
        if text[end - 1] == " " and text[end - 2] in ":|>)]":
            return 0 if _OURS.search(text, 0, end) else end
    return 0


def read_window(before: Callable[[], Sequence[Segment]], parts: Sequence[Segment]) -> Found:
    """All that is said in ``parts``; ``before`` is asked for only where a traceback may begin in it."""
    failures: dict[tuple[int, int], tuple[tuple[int, int], OomFailure]] = {}
    others: dict[tuple[int, int], Item] = {}
    no_list = False
    for voice in _voices(parts):
        for match in _messages(voice):
            index, column = voice.part_at(match.start)
            part = voice.parts[index]
            place = (part.at, column)
            told = (len(match.fields), match.end - match.start)
            if place in failures and failures[place][0] >= told:
                continue
            failures[place] = told, _failure(match, part, _excerpt(voice, match), before, parts)
        for hit in clauses.PRESSURE.finditer(voice.text):
            index, column = voice.part_at(hit.start())
            part = voice.parts[index]
            numbers = [int(hit[name]) for name in ("device", "bytes", "free", "total")]
            others[part.at, column] = PressureLine(part.line, part.source, *numbers)
        for match in frameworks.pools(voice.text):
            index, column = voice.part_at(match.start)
            part = voice.parts[index]
            others[part.at, column] = PoolLine(_failure(match, part, "", before, ()))
        for offset, root in ends.root_causes(voice.text):
            index, column = voice.part_at(offset)
            others[voice.parts[index].at, column] = msgspec.structs.replace(
                root, line=voice.parts[index].line
            )
        no_list |= clauses.NO_PROCESS_LIST.search(voice.text) is not None
    items: list[tuple[int, int, Item]] = [
        (at, column, failure) for (at, column), (_, failure) in failures.items()
    ]
    items += [(at, column, other) for (at, column), other in others.items()]
    for part in parts:
        if (after := ends.aftermath_of(part)) is not None:
            items.append((part.at, 0, after))
        if (kill := ends.kill_of(part)) is not None:
            items.append((part.at, 0, kill))
        items += [(part.at, 0, planned) for planned in planning_of(part)]
        if ends.is_memory_error(part):
            match = clauses.Match(Family.HOST_ALLOCATION, 0, 0, {})
            items.append((part.at, 0, _failure(match, part, readable(part.text), before, parts)))
    items.sort(key=lambda item: item[:2])
    return Found([(at, item) for at, _, item in items], no_list)


def _messages(voice: _Voice) -> Iterator[clauses.Match]:
    """All messages; of the driver's words within another's message, that one alone."""
    foreign = frameworks.framework_messages(voice.text, voice.number_end)
    yield from foreign
    for match in (*clauses.allocator_messages(voice.text), *clauses.outside_messages(voice.text)):
        if not any(other.start <= match.start < other.end for other in foreign):
            yield match


def _voices(parts: Sequence[Segment]) -> list[_Voice]:
    """Every source alone, and with the unprefixed lines, where a wrap has lost the prefix."""
    sources = dict.fromkeys(part.source for part in parts)
    voices = [_Voice([p for p in parts if p.source == source]) for source in sources]
    if NOBODY in sources:
        voices += [
            _Voice([p for p in parts if p.source in (source, NOBODY)])
            for source in sources
            if source != NOBODY
        ]
    return voices


def _failure(
    match: clauses.Match,
    part: Segment,
    shown: str,
    before: Callable[[], Sequence[Segment]],
    parts: Sequence[Segment],
) -> OomFailure:
    told = frames.tell(_frames(part, before, parts))
    source = part.source
    # of a host failure the pid is the one that was killed, not the one that tells
    values = match.fields if match.family in HOST else {"pid": source.pid, **match.fields}
    return OomFailure(
        family=match.family,
        certain=match.certain,
        line=part.line,
        text=shown,
        mention_lines=(part.line,),
        rank=source.rank,
        local_rank=source.local_rank,
        worker=source.worker,
        phase=told.phase,
        phases=told.phases,
        frame=told.frame,
        user_frame=told.user_frame,
        first_optimizer_step=told.first_optimizer_step,
        **values,
    )


def _frames(
    part: Segment, before: Callable[[], Sequence[Segment]], parts: Sequence[Segment]
) -> list[frames.Frame]:
    """Frames of the traceback that ends at this segment, as its source said it."""
    end = bisect.bisect_right(parts, part.at, key=lambda segment: segment.at)
    nearby = parts[max(0, end - FRAMES_BACK) : end]
    if len(nearby) < FRAMES_BACK:
        nearby = [*before()[len(nearby) - FRAMES_BACK :], *nearby]
    lines = [segment.text for segment in nearby if segment.source in (part.source, NOBODY)]
    return frames.frames_of(lines) if any(map(frames.may_be_frame, lines[-frames.REACH - 1 :])) else []

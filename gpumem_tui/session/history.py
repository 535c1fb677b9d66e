"""The picture of any moment of a recording, read from around that moment; and curves of any stretch.

A recording that has been read keeps what is rare (``rare``), its curves, bands and
now and then its phase table. What is dense is read again from the
journals, by seeking: some tens of kilobytes of each writer before the moment, and the
whole stretch that a chart shows where it is small. So a look into a day costs what a
look into a minute costs.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from gpumem_tui import records
from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.analysis.state import Band, DeviceState, RunState
from gpumem_tui.journal import stretch
from gpumem_tui.journal.segments import Segment, scan
from gpumem_tui.records import Header
from gpumem_tui.session.driver import STALE_NS
from gpumem_tui.session.failures import as_it_was_read
from gpumem_tui.session.rank import SILENT_NS, RankModel
from gpumem_tui.session.recording import Recording, Who
from gpumem_tui.session.times import ended_ns

BEFORE_BYTES = {"rank": 24 << 10, "driver": 128 << 10}
"""Read of each writer before the moment; of the driver more, for its process lists of the last minute."""

BEFORE_NS = 1_000_000_000
"""Read of each writer before the moment at least, so that a busy one has had its say on every card …"""

BUSY_BYTES = 512 << 10
"""… as far as it lies within this."""

STRETCH_BYTES = 1536 << 10
"""A stretch of all writers together up to this size is read whole; of larger ones the curves in memory do."""

THOROUGH_BYTES = 12 << 20
"""The same where somebody can wait: about a second."""


class Past(Recording):
    """One recording as it was at one moment; thrown away after one picture."""

    def __init__(
        self, now: Recording, moment_ns: int, since_ns: int, until_ns: int, stretch_bytes: int
    ) -> None:
        super().__init__(now.run)
        self._now, self._at_ns = now, moment_ns
        self._since_ns, self._until_ns = since_ns, max(until_ns, moment_ns)
        self._rings_wanted = False
        self._speaks: set[Who] = set()
        """Writers that say something later."""
        self.first_ns: dict[Who, int] = {}
        """From when on each rank's journal was read."""
        self._stretch_bytes = stretch_bytes
        self.whole = self.coarse = False
        """Whether the stretch was small enough to be read whole; whether it could be with more time."""

    def _new_lines(self) -> Iterable[tuple[Header, Sequence[records.Record]]]:
        for head, record in self._now.rare.records():
            if ended_ns(record) <= self._at_ns:
                yield head, (record,)
        journal = self.run.journal
        writers = {
            who: segments
            for who, segments in scan(journal).writers.items()
            if next(iter(segments.values())).role in BEFORE_BYTES and self._had_begun(segments)
        }
        places = {
            who: tuple(
                stretch.find(journal, segments, t_ns)
                for t_ns in (self._since_ns, self._at_ns, self._until_ns)
            )
            for who, segments in writers.items()
        }
        size = sum(
            stretch.distance_bytes(journal, writers[who], since, until)
            for who, (since, _, until) in places.items()
        )
        self.whole = size <= self._stretch_bytes
        self.coarse = self._stretch_bytes < size <= THOROUGH_BYTES
        for who, (since, at, _) in places.items():
            role = next(iter(writers[who].values())).role
            busy = stretch.find(journal, writers[who], self._at_ns - BEFORE_NS)
            start = min(
                stretch.back(journal, writers[who], at, BEFORE_BYTES[role]),
                max(busy, stretch.back(journal, writers[who], at, BUSY_BYTES)),
            )
            yield from self._of_writer(writers[who], min(since, start) if self.whole else start)

    def _had_begun(self, segments: Mapping[int, Segment]) -> bool:
        """Whether a writer had anything to say by the end of the stretch."""
        head = stretch.head(self.run.journal, segments[min(segments)])
        return head is None or head.t_ns <= self._until_ns

    def _of_writer(
        self, segments: Mapping[int, Segment], start: stretch.Place
    ) -> Iterator[tuple[Header, Sequence[records.Record]]]:
        """What a writer said up to the moment; what it said later goes to curves and bands only."""
        before: list[tuple[int, Header, records.Record]] = []
        later: list[tuple[int, Header, records.Record]] = []
        until_ns = self._until_ns if self.whole else self._at_ns
        for told in stretch.read(self.run.journal, segments, start, until_ns):
            for record in told.records:
                t_ns = ended_ns(record)
                if t_ns <= self._at_ns:
                    before.append((t_ns, told.header, record))
                elif not later or getattr(record, "t_ns", t_ns) <= until_ns:
                    later.append((t_ns, told.header, record))
        if not before and not later:
            return
        head = (before or later)[0][1]
        who = (head.pid, head.started_ticks)
        if later:
            self._speaks.add(who)
        if head.journal == "rank":
            self.first_ns[who] = min(t for t, _, _ in (*before, *later))
            self._open_spans(who, self.first_ns[who])
        last_ns = max((t for t, _, _ in before), default=0)
        for _, head, record in before:
            yield head, (record,)
        next_ns = min((getattr(record, "t_ns", t) for t, _, record in later), default=None)
        model = self._ranks.get(who)
        if model is not None and next_ns is not None and next_ns - last_ns <= SILENT_NS:
            model.spoke_ns = max(model.spoke_ns, self._at_ns)
        if self.whole:
            for _, head, record in later:
                self._take_later(head, record)

    def _open_spans(self, who: Who, first_ns: int) -> None:
        """Spans that were open and had begun before what is read."""
        known, model = self._now.rank(who), self._ranks.get(who)
        if known is None or model is None:
            return
        model.bands.around = sum(band.since_ns < first_ns for band in known.bands.open_at(first_ns))
        for place, band in enumerate(known.bands.open_at(self._at_ns)):
            if band.since_ns < first_ns:
                begin = records.Begin(
                    band.since_ns, place - 1_000, -1 - place, None, None, band.phase, band.name, band.step
                )
                model.open[begin.span] = begin

    def _take_later(self, head: Header, record: records.Record) -> None:
        """A record from after the moment: a chart shows it, the picture does not."""
        if head.journal == "driver":
            if isinstance(record, records.Memory | records.Memories) and record.index in self._driver.gpus:
                self._driver.gpus[record.index].draw(record)
            return
        model = self._ranks.get((head.pid, head.started_ticks))
        if model is None:
            return
        match record:
            case records.Sample() | records.Samples():
                model.device(record.ordinal).draw(record)
            case records.Begin():
                model.bands.began(record)
            case records.End():
                model.bands.ended(record)
            case records.Spans():
                model.bands.folded(record)

    def _model(self, head: Header) -> RankModel:
        """Whose phase tables are those of the whole recording."""
        model = super()._model(head)
        model.phase_marks.wanted = False
        return model

    def _take_rank(self, model: RankModel, record: records.Record) -> None:
        """Its events and failures are those of the whole recording."""
        model.take(record)

    # --- what was, and what is not known of it ------------------------------------------------

    def _judge_lists(self) -> None:
        """Events and claims are those of the whole recording."""
        self.recognition.adopt(self._now.recognition, self._ranks.values())

    def _now_ns(self, over: bool) -> int:
        return self._at_ns

    def _life_now(self) -> Life:
        return Life.RUNNING

    def _keeper_life(self) -> Life:
        return Life.RUNNING

    def _alive(self, who: Who) -> bool:
        return who in self._speaks or self._now.still_lives(who)

    def _stale_ns(self) -> int:
        """Readings that are folded lie further apart than fresh ones: one of two neighbours stands."""
        spacing = [
            max(two.t_ns - one.t_ns for one, two in itertools.pairwise(gpu.lists))
            for gpu in self._driver.gpus.values()
            if len(gpu.lists) > 1
        ]
        return max([STALE_NS, *(2 * each for each in spacing)])


def picture_at(
    now: Recording, moment_ns: int, since_ns: int, until_ns: int, *, thorough: bool = False
) -> RunState:
    """The picture of a moment; but its curves and bands are those of the stretch, or of the whole run.

    ``since_ns`` and ``until_ns`` bound the stretch that a chart shows.
    """
    latest = now.picture()
    last_ns = latest.now_ns if latest.facts.ended_ns is None else latest.facts.ended_ns
    if moment_ns >= last_ns:
        return latest
    size = THOROUGH_BYTES if thorough else STRETCH_BYTES
    past = Past(now, moment_ns, since_ns, until_ns, size)
    state = past.read()
    known = {device.index: device for device in latest.devices}
    devices = tuple(_with_curves(device, known.get(device.index), past.whole) for device in state.devices)
    processes = state.processes
    if [device.index for device in devices] == [*known]:  # failures know devices by their place
        devices, processes = as_it_was_read(latest.failures, moment_ns, devices, processes)
    return replace(
        state,
        devices=devices,
        processes=processes,
        phases=now.phases_at(moment_ns),
        events=now.happenings.events(moment_ns),
        marked=now.happenings.marked(max(moment_ns, until_ns)),
        earlier_events=now.happenings.earlier(moment_ns),
        next_event_ns=now.happenings.next_ns(moment_ns),
        failures=tuple(failure for failure in latest.failures if failure.t_ns <= moment_ns),
        alerts=(),
        coarse=past.coarse,
        bands=_bands(past, state, latest),
        output_bytes=latest.output_bytes,
        health=latest.health,
        outside=latest.outside,
    )


def _with_curves(device: DeviceState, known: DeviceState | None, own: bool) -> DeviceState:
    if own or known is None:
        return device
    return replace(device, curves=known.curves, driver_used=known.driver_used)


def _bands(past: Past, state: RunState, latest: RunState) -> tuple[Band, ...]:
    if not past.whole:
        return latest.bands
    first = {pid: t_ns for (pid, _), t_ns in past.first_ns.items()}
    longer = [band for band in latest.bands if band.since_ns < first.get(band.pid, 0)]
    return (*longer, *state.bands)

"""A recording as views see it: follows the journals, feeds the models, makes pictures.

Writes nothing, and reading never disturbs the run; what may be asked of it is ``reach``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from gpumem_tui import records
from gpumem_tui.agent import wire
from gpumem_tui.analysis.rankstate import Life, PhaseRow
from gpumem_tui.analysis.state import Health, RunFacts, RunState
from gpumem_tui.journal.follow import Follower, Losses
from gpumem_tui.journal.ringtail import read_last_word, read_tail
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.records import Header
from gpumem_tui.session.alerts import AlertBook
from gpumem_tui.session.driver import STALE_NS, DriverModel, GpuModel
from gpumem_tui.session.endings import name_of
from gpumem_tui.session.failures import Context, FailureBook, as_it_was_read
from gpumem_tui.session.happenings import Happenings
from gpumem_tui.session.life import KeeperModel, RunLife, is_alive
from gpumem_tui.session.maps import MapBook
from gpumem_tui.session.outside import Outside
from gpumem_tui.session.picture import Picture, facts_of, ordinal_on
from gpumem_tui.session.rank import STEADY_NS, RankModel
from gpumem_tui.session.rare import Rare
from gpumem_tui.session.reach import Reach
from gpumem_tui.session.recognition import Recognition

LAST_FILES_NS = 10_000_000_000
"""So long after the end, files that belong to its records may still be written."""

LAST_WORDS_NS = 2_000_000_000
"""A rank whose journal ends longer before a process list holds nothing in it."""

Who = tuple[int, int | None]
"""A process for good: pid and started ticks."""


@dataclass(frozen=True)
class _List:
    """A process list, and who is new in it or gone since the one before."""

    record: records.Processes
    new: set[int]
    gone: set[int]
    before: dict[int, int]
    """What each process held in the list before."""


class Recording:
    """One run directory, read as far as it goes. Raises :class:`UnreadableRecording` where it cannot be."""

    def __init__(self, run: RunDirectory, *, since_ns: int | None = None) -> None:
        """With ``since_ns``, only what writers say of themselves and everything from about then on."""
        self.run = run
        self._from_its_end = since_ns is not None
        self.file = run.read_facts()
        self._follower = Follower(run, since_ns=since_ns)
        self._driver = DriverModel()
        self._driver_who: Who = (0, None)
        self._ranks: dict[Who, RankModel] = {}
        self._rings: dict[Who, str] = {}
        self._life = RunLife(self.file, run.journal)
        self.reach = Reach(run, self.file, self._life)
        self.happenings = Happenings()
        self._last_ns = self.file.t_ns
        self._health = Health()
        self._final: RunState | None = None
        """The picture of a run that has ended."""
        self._took = False
        """Whether the last refresh found anything new."""
        self._rings_wanted = True
        self.rare = Rare()
        self._lists: list[_List] = []
        self._failures = FailureBook(run.path)
        self._maps = MapBook(run.path)
        self._alerts = AlertBook()
        self.recognition = Recognition(self._driver)
        self._outside: dict[tuple[int, Who], Outside] = {}

    # --- reading ------------------------------------------------------------------------------

    def read(self) -> RunState:
        """Take what is new, and make the picture of now; of a run that has ended, the one that was made."""
        self.refresh()
        final = self._final
        if final is not None and not self._took and final.health == self._health:
            return final
        state = self.picture()
        ended_ns = state.facts.ended_ns if state.facts.life in (Life.ENDED, Life.FAILED) else None
        long_ago = ended_ns is not None and wire.now_ns() - ended_ns > LAST_FILES_NS
        self._final = state if long_ago or (ended_ns is not None and not self._life.here) else None
        return state

    def read_at(self, moment_ns: int, since_ns: int, until_ns: int, thorough: bool = False) -> RunState:
        """The picture of a moment of the past, with the curves of a stretch; reads around them only."""
        from gpumem_tui.session.history import picture_at  # which is made of recordings

        return picture_at(self, moment_ns, since_ns, until_ns, thorough=thorough)

    def refresh(self) -> None:
        """Take what is new in the journals and, of processes that fell silent, in their rings."""
        spoke_ns = {who: model.spoke_ns for who, model in self._ranks.items()}
        self._took = False
        for head, lines in self._new_lines():
            self._take_lines(head, lines)
        self._judge_lists()
        for who, model in self._ranks.items():
            silent = model.spoke_ns <= spoke_ns.get(who, model.spoke_ns)
            if self._rings_wanted and silent and not model.bye and who in self._rings:
                self._take_ring(model, self.run.rings / self._rings[who])
        lost = Losses()
        for losses in self._follower.losses.values():
            lost += losses
        self._health = Health(
            corrupt_lines=lost.corrupt_lines + lost.overlong_lines + lost.truncated + lost.missing_segments,
            unknown_lines=lost.unknown_lines,
            dropped=sum(model.dropped for model in self._ranks.values()),
            notes=tuple(self._driver.words.values()),
        )

    def _new_lines(self) -> Iterable[tuple[Header, Sequence[records.Record]]]:
        """What is new, in pieces of one writer each."""
        for piece in self._follower.pieces():
            yield piece.header, piece.records

    def _take_lines(self, head: Header, lines: Sequence[records.Record]) -> None:
        """As :meth:`_take` does one by one, but what there is most of by a shorter way."""
        if head.journal != "rank":
            for record in lines:
                self._take(head, record)
            return
        who = (head.pid, head.started_ticks)
        model, course = self._model(head), self._failures.course(who)
        last_ns = edge_ns = 0
        for record in lines:
            if isinstance(record, records.Begin):
                model.begin(record)
                course.begin(record)
                edge_ns = record.t_ns
            elif isinstance(record, records.End) and record.error is None:
                model.end(record)
                course.end(record)
                edge_ns = record.t_ns
            elif isinstance(record, records.Sample):
                model.sample(record)
            else:
                self._failures.moved(who, edge_ns)
                self._take(head, record)
                continue
            if record.t_ns > last_ns:
                last_ns = record.t_ns
        self._failures.moved(who, edge_ns)
        model.spoke_ns = max(model.spoke_ns, last_ns)
        self._last_ns = max(self._last_ns, last_ns)
        self._took = True

    def _take_ring(self, model: RankModel, path: Path) -> None:
        model.last_word = read_last_word(path)
        who = f"rank-{model.pid}-{model.started_ticks or 0}"
        for record in read_tail(path, max(model.seq, self._follower.last_seq.get(who, 0))):
            self._took = True
            self._take_rank(model, record)

    def _take(self, head: Header, record: records.Record) -> None:
        self._took = True
        self.rare.take(head, record)
        who = (head.pid, head.started_ticks)
        match head.journal:
            case "rank":
                self._take_rank(self._model(head), record)
            case "driver":
                self._driver_who = who
                self._take_driver(record)
                self.happenings.of_driver(record)
                self._failures.of_driver(record)
            case "keeper":
                keeper = self._life.keepers.get(who)
                if keeper is None:
                    keeper = self._life.keepers[who] = KeeperModel(head)
                keeper.take(record)
                self.happenings.of_keeper(record)
        self._last_ns = max(self._last_ns, getattr(record, "t_ns", 0))

    def _model(self, head: Header) -> RankModel:
        """Of the process that wrote under this header."""
        who = (head.pid, head.started_ticks)
        model = self._ranks.get(who)
        if model is None:
            model = self._ranks[who] = RankModel(*who)
            model.parent, model.python = head.parent, head.python
        if head.ring is not None:
            self._rings[who] = head.ring
        return model

    def _take_rank(self, model: RankModel, record: records.Record) -> None:
        model.take(record)
        if isinstance(record, records.Sample):  # most of what there is, and nothing more is made of it
            return
        self._failures.of_rank((model.pid, model.started_ticks), record)
        if isinstance(record, records.Map):
            self._maps.take((model.pid, model.started_ticks), record)
        self.happenings.of_rank(model.number, record)

    def _take_driver(self, record: records.Record) -> None:
        self._driver.take(record)
        if not isinstance(record, records.Processes) or record.index not in self._driver.gpus:
            return
        gpu = self._driver.gpus[record.index]
        first = gpu.listed is None
        before = {pid: holding.past[-1][1] for pid, holding in gpu.holdings.items() if holding.past}
        new, gone = gpu.add_processes(record)
        self._lists.append(_List(record, set() if first else new, gone, before))

    def _judge_lists(self) -> None:
        """What the process lists of this batch say, now that the ranks' journals are as far."""
        ours = {who[0] for who in self._ranks} | self._driver.once_in_tree
        waiting = []
        for each in self._lists:
            t_ns, device = each.record.t_ns, each.record.index
            if self._last_ns - t_ns < STEADY_NS and self._life.here:
                waiting.append(each)  # the ranks' samples of just then are not written yet
                continue
            used = {row[0]: row[1] for row in each.record.rows}
            gpu = self._driver.gpus[device]
            ours |= self._recognise(gpu, each.record)
            for pid, came in [*((pid, True) for pid in each.new), *((pid, False) for pid in each.gone)]:
                if pid not in ours or self._is_anothers(pid, t_ns):
                    known = self._driver.names.get(pid)
                    name = (known.name if known else None) or ""
                    size = used.get(pid) if came else each.before.get(pid)
                    self.happenings.stranger(t_ns, device, pid, name, size, came)
            for who, model in self._ranks.items():
                claim = self.recognition.claim(gpu, model, used)
                held = used.get(claim.pid) if claim is not None else None
                if held is None:  # of most ranks on most devices: nothing dear comes before it
                    continue
                ordinal = ordinal_on(model, gpu)
                if ordinal is None:
                    continue
                reserved = model.device(ordinal).settled(t_ns, STEADY_NS)
                if reserved is not None:
                    self._take_outside(who, model, device, t_ns, held - reserved)
        self._lists = waiting

    def _is_anothers(self, pid: int, t_ns: int) -> bool:
        """Whether a pid of ours had gone to a stranger by then: its process had fallen silent, at least."""
        if not self._driver.used_again(pid, self._ranks):
            return False
        spoke_ns = (model.spoke_ns for who, model in self._ranks.items() if who[0] == pid)
        return t_ns > max(spoke_ns, default=0) + LAST_WORDS_NS

    def _recognise(self, gpu: GpuModel, listed: records.Processes) -> set[int]:
        """Weigh the evidence of one list; the pids that are ours by it."""
        holding = {}
        for model in self._ranks.values():
            ordinal = ordinal_on(model, gpu)
            lives = model.spoke_ns >= listed.t_ns - LAST_WORDS_NS
            if ordinal is not None and model.device(ordinal).used and lives:
                holding[model] = ordinal
        device = gpu.gpu.index
        for model, claim in self.recognition.judge(gpu, listed, holding) if listed.reason is None else ():
            self.happenings.recognised(listed.t_ns, device, model.number, claim.pid, claim.by.value)
        return self.recognition.claimed(device)

    def _take_outside(self, who: Who, model: RankModel, device: int, t_ns: int, value: int) -> None:
        known = self._outside.get((device, who))
        meanwhile = ""
        if known is None:
            self._outside[device, who] = Outside(device, model.pid, t_ns, value)
        elif known.is_step(value):
            step = known.add(t_ns, value, model.bands.all(model.number), model.recent_marks)
            during = [*step.phases, *step.marks]
            meanwhile = f" during {', '.join(during)}" if during else ""
        else:
            known.stands(t_ns, value)
        first = not self._from_its_end  # else it may have been there long before
        self.happenings.outside(t_ns, device, model.pid, model.number, value, meanwhile, first=first)

    # --- the picture --------------------------------------------------------------------------

    def picture(self) -> RunState:
        """The picture of what has been read so far."""
        life = self._life_now()
        over = life in (Life.ENDED, Life.FAILED, Life.LOST)
        now_ns = self._now_ns(over)
        context = Context(
            ranks=self._ranks,
            driver=self._driver,
            recognition=self.recognition,
            outside=self._outside,
            keepers=tuple(self._life.keepers.values()),
            life=life,
            now_ns=now_ns,
            alive=self._alive,
        )
        moment, moment_ns = self._moment(context) if over else (None, None)
        picture = Picture(
            now_ns,
            moment_ns,
            self._driver,
            self._ranks,
            self._alive,
            self.recognition,
            self._stale_ns(),
            lambda who: self._failures.ending(who, context),
        )
        devices = picture.devices()
        failures = self._failures.states(context, devices)
        devices, processes = as_it_was_read(failures, moment_ns, devices, picture.processes())
        return RunState(
            facts=self._facts(life, moment, moment_ns),
            now_ns=now_ns,
            devices=devices,
            ranks=picture.ranks(),
            phases=picture.phases(),
            processes=processes,
            events=self.happenings.events(),
            marked=self.happenings.marked(),
            earlier_events=self.happenings.earlier(),
            host=self._driver.host_state(),
            output_bytes=self._output_bytes(),
            health=self._health,
            driver_reason=self._driver.reason if not self._driver.gpus else None,
            failures=failures,
            alerts=self._alerts.alerts(self._failures, context, devices),
            bands=tuple(chain.from_iterable(m.bands.all(m.number) for m in self._ranks.values())),
            outside=tuple(
                known.state(self._ranks[who].number) for (_, who), known in sorted(self._outside.items())
            ),
            maps=self._maps.states(self._ranks, devices),
        )

    def _now_ns(self, over: bool) -> int:
        return wire.now_ns() if self._life.here and not over else self._last_ns

    def _stale_ns(self) -> int:
        return STALE_NS

    def _keeper_life(self) -> Life:
        return self._life.keeper_life()

    def _life_now(self) -> Life:
        return self._life.run_life()

    def rank(self, who: Who) -> RankModel | None:
        """What is known of a process."""
        return self._ranks.get(who)

    def phases_at(self, t_ns: int) -> tuple[PhaseRow, ...]:
        """The phase tables as they stood at about a moment, shortly before it."""
        models = sorted(self._ranks.values(), key=lambda m: (m.number is None, m.number or 0, m.pid))
        return tuple(row for model in models for row in model.phase_marks.at(t_ns))

    def still_lives(self, who: Who) -> bool:
        """Whether a process lives now."""
        return self._alive(who)

    def _alive(self, who: Who) -> bool:
        """Whether a process lives, as far as can be known from here."""
        return is_alive(*who) if self._life.sees else who[0] in self._driver.tree_pids()

    def _moment(self, context: Context) -> tuple[str, int]:
        """The moment of an ended run that people want to see: its failure, else the last one of its life."""
        ended_ns = max((t for t, _ in self._life.endings()), default=self._last_ns)
        first = self._failures.first_end(context)
        if first is not None:
            t_ns, model = first
            return f"at the out-of-memory error of {name_of(model)}", t_ns
        spoke = [model.spoke_ns for model in self._ranks.values()]
        return "shortly before the end", min([ended_ns, *(self._last_listings() or spoke)])

    def _last_listings(self) -> list[int]:
        """When the ranks of the end were last seen on their cards: what they held is gone a moment later."""
        listed = [
            t_ns
            for gpu in self._driver.gpus.values()
            for model in self._ranks.values()
            if (ordinal := ordinal_on(model, gpu)) is not None and model.device(ordinal).used
            if (t_ns := self.recognition.last_listed_ns(gpu, model)) is not None
        ]
        return [t_ns for t_ns in listed if max(listed) - t_ns <= STALE_NS]

    def _facts(self, life: Life, moment: str | None, moment_ns: int | None) -> RunFacts:
        recorder = Life.ENDED if self._driver.bye else Life.STARTING
        if self._driver_who[0] and not self._driver.bye:
            lives = (
                self._life.lives(*self._driver_who) if self._life.booted else self._alive(self._driver_who)
            )
            recorder = Life.RUNNING if lives else Life.LOST
        keeper = self._keeper_life()
        return facts_of(self.file, self.run, self._life, life, keeper, recorder, moment, moment_ns)

    def _output_bytes(self) -> int | None:
        if not self.file.interactive:
            return None
        try:
            return self.run.output_log.stat().st_size
        except OSError:
            return None

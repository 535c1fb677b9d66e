"""A recording as views see it: follows the journals, feeds the models, makes pictures, reaches the keeper.

The only writing it does is a signal to the keeper and bytes into its input, both on
the user's word. Reading never disturbs the run.
"""

import contextlib
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from gpumem_tui import records
from gpumem_tui.agent import wire
from gpumem_tui.analysis.state import Health, Life, RunFacts, RunState, Severity
from gpumem_tui.errors import BadInput
from gpumem_tui.journal.follow import Follower, Losses
from gpumem_tui.journal.ringtail import read_tail
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.records import Header
from gpumem_tui.session.driver import DriverModel
from gpumem_tui.session.happenings import Happenings
from gpumem_tui.session.life import KeeperModel, RunLife, is_alive
from gpumem_tui.session.picture import Picture, facts_of, ordinal_on
from gpumem_tui.session.rank import STEADY_NS, RankModel

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
        self.file = run.read_facts()
        self._follower = Follower(run, since_ns=since_ns)
        self._driver = DriverModel()
        self._driver_who: Who = (0, None)
        self._ranks: dict[Who, RankModel] = {}
        self._rings: dict[Who, str] = {}
        self._life = RunLife(self.file)
        self._happenings = Happenings()
        self._last_ns = self.file.t_ns
        self._health = Health()
        self._rings_wanted = True
        self._lists: list[_List] = []

    # --- reading ------------------------------------------------------------------------------

    def read(self) -> RunState:
        """Take what is new, and make the picture of now."""
        self.refresh()
        return self._picture()

    def refresh(self) -> None:
        """Take what is new in the journals and, of processes that fell silent, in their rings."""
        for head, record in self._new_records():
            self._take(head, record)
        self._judge_lists()
        for who, model in self._ranks.items():
            if self._rings_wanted and not model.bye and who in self._rings:
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

    def _new_records(self) -> Iterable[tuple[Header, records.Record]]:
        return self._follower.poll()

    def _take_ring(self, model: RankModel, path: Path) -> None:
        who = f"rank-{model.pid}-{model.started_ticks or 0}"
        for record in read_tail(path, max(model.seq, self._follower.last_seq.get(who, 0))):
            self._take_rank(model, record)

    def _take(self, head: Header, record: records.Record) -> None:
        who = (head.pid, head.started_ticks)
        match head.journal:
            case "rank":
                model = self._ranks.get(who)
                if model is None:
                    model = self._ranks[who] = RankModel(*who)
                    model.parent = head.parent
                if head.ring is not None:
                    self._rings[who] = head.ring
                self._take_rank(model, record)
            case "driver":
                self._driver_who = who
                self._take_driver(record)
            case "keeper":
                keeper = self._life.keepers.get(who)
                if keeper is None:
                    keeper = self._life.keepers[who] = KeeperModel(head)
                keeper.take(record)
                self._happenings.of_keeper(record)
        self._last_ns = max(self._last_ns, getattr(record, "t_ns", 0))

    def _take_rank(self, model: RankModel, record: records.Record) -> None:
        model.take(record)
        self._happenings.of_rank(model.number, record)

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
            for pid, came in [*((pid, True) for pid in each.new), *((pid, False) for pid in each.gone)]:
                if pid not in ours:
                    known = self._driver.names.get(pid)
                    name = (known.name if known else None) or ""
                    size = used.get(pid) if came else each.before.get(pid)
                    self._happenings.stranger(t_ns, device, pid, name, size, came)
            gpu = self._driver.gpus[device]
            for model in self._ranks.values():
                held = used.get(model.pid)
                ordinal = ordinal_on(model, gpu)
                if held is None or ordinal is None:
                    continue
                reserved = model.device(ordinal).settled(t_ns, STEADY_NS)
                if reserved is not None:
                    self._happenings.outside(t_ns, device, model.pid, model.number, held - reserved)
        self._lists = waiting

    # --- the picture --------------------------------------------------------------------------

    def _picture(self) -> RunState:
        life = self._life_now()
        over = life in (Life.ENDED, Life.FAILED, Life.LOST)
        now_ns = wire.now_ns() if self._life.here and not over else self._last_ns
        moment, moment_ns = self._moment() if over else (None, None)
        picture = Picture(now_ns, moment_ns, self._driver, self._ranks, self._alive)
        devices = picture.devices()
        return RunState(
            facts=self._facts(life, moment, moment_ns),
            now_ns=now_ns,
            devices=devices,
            ranks=picture.ranks(),
            phases=picture.phases(),
            processes=picture.processes(),
            events=self._happenings.events(),
            host=self._driver.host_state(),
            output_bytes=self._output_bytes(),
            health=self._health,
            driver_reason=self._driver.reason if not self._driver.gpus else None,
        )

    def _keeper_life(self) -> Life:
        return self._life.keeper_life()

    def _life_now(self) -> Life:
        return self._life.run_life()

    def _alive(self, who: Who) -> bool:
        """Whether a process lives, as far as can be known from here."""
        return is_alive(*who) if self._life.here else who[0] in self._driver.tree_pids()

    def _moment(self) -> tuple[str, int]:
        """The moment of an ended run that people want to see: its failure, else the last one of its life."""
        ended_ns = max((t for t, _ in self._life.endings()), default=self._last_ns)
        failures = [
            (m.failure.t_ns, m) for m in self._ranks.values() if m.failure is not None and not m.recovered
        ]
        if failures and self._life.run_life() is not Life.ENDED:
            t_ns, model = min(failures, key=itemgetter(0))
            who = f"rank {model.number}" if model.number is not None else f"process {model.pid}"
            return f"at the out-of-memory error of {who}", t_ns
        spoke = [model.spoke_ns for model in self._ranks.values()]
        return "shortly before the end", min([ended_ns, *spoke])

    def _facts(self, life: Life, moment: str | None, moment_ns: int | None) -> RunFacts:
        recorder = Life.ENDED if self._driver.bye else Life.STARTING
        if self._driver_who[0] and not self._driver.bye:
            recorder = Life.RUNNING if self._alive(self._driver_who) else Life.LOST
        keeper = self._keeper_life()
        return facts_of(self.file, self.run, self._life, life, keeper, recorder, moment, moment_ns)

    def _output_bytes(self) -> int | None:
        if not self.file.interactive:
            return None
        try:
            return self.run.output_log.stat().st_size
        except OSError:
            return None

    # --- what a view may do -------------------------------------------------------------------

    def read_output(self, start: int, size: int) -> bytes:
        """Up to ``size`` bytes of the output log from offset ``start``."""
        try:
            with self.run.output_log.open("rb") as file:
                file.seek(start)
                return file.read(size)
        except OSError:
            return b""

    def stop(self, how: signal.Signals | str) -> str:
        """Send the keeper a signal that it passes on. Returns a sentence on what was done."""
        number = how if isinstance(how, signal.Signals) else signal.Signals[str(getattr(how, "value", how))]
        for keeper in self._life.keepers.values():
            if keeper.exit is not None:
                continue
            pid, ticks = keeper.pid, keeper.started_ticks
            if number is signal.SIGKILL and keeper.workload is not None:
                pid, ticks = keeper.workload.pid, keeper.workload.started_ticks
            if not self._life.here:
                return f"the run is on {self.file.host}; stop it there"
            if not is_alive(pid, ticks):
                continue
            try:
                os.kill(pid, number)
            except PermissionError:
                return f"not permitted: the run belongs to {self.file.user}"
            return f"{number.name} was sent to the workload"
        self._happenings.add(self._last_ns, Severity.INFO, "nothing to stop: the workload has ended")
        return "nothing to stop: the workload has ended"

    def type_in(self, data: bytes) -> None:
        """Type bytes into the workload's terminal. Raises :class:`BadInput` where it has none."""
        if not self.file.interactive:
            raise BadInput("this run has no terminal of its own: it reads what it was started with")
        with contextlib.suppress(BlockingIOError):
            try:
                fd = os.open(self.run.input, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                raise BadInput("the workload has ended; there is nobody to type to") from error
            try:
                os.write(fd, data)
            finally:
                os.close(fd)

"""Ranks of the live runs that gpumem-tui records on this machine, and their failures, by their recordings.

Reads recordings of this user that have not ended, from about a minute back. A
recording that cannot be read is passed over: the driver's view does not depend on it.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpumem_tui.agent import wire
from gpumem_tui.analysis.rankstate import Life, RankState
from gpumem_tui.analysis.state import RunState
from gpumem_tui.analysis.top import RunAlarm, RunShare
from gpumem_tui.analysis.waiting import MEMORY_KINDS
from gpumem_tui.errors import GpumemError
from gpumem_tui.journal import rundir
from gpumem_tui.session.life import is_alive

if TYPE_CHECKING:
    from gpumem_tui.session import Recording

LOOK_EVERY_S = 3.0
"""How often new runs are looked for."""

READ_EVERY_S = 2.0
"""How often the runs that are followed are read."""

BACK_NS = 60_000_000_000

MOST = 16
"""Runs that are followed at once, the latest."""


class LiveRuns:
    """The live runs of one set of cards: the real ones, or the simulated ones of ``state``."""

    def __init__(self, state: Path | None = None) -> None:
        """``state`` is the state file of the simulated machine that is looked at; None for real cards."""
        self._state = state
        self._next_s = self._next_read_s = 0.0
        self._runs: dict[str, Recording] = {}
        self._over: set[str] = set()
        """Runs that have ended since we followed them."""
        self.shares: dict[tuple[str | int, int], RunShare] = {}
        """By device (UUID, else index) and pid, as the driver has it."""
        self.alarms: tuple[RunAlarm, ...] = ()

    def read(self) -> None:
        """Take what is new in every live run, if it is time."""
        if time.monotonic() < self._next_read_s:
            return
        self._next_read_s = time.monotonic() + READ_EVERY_S
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + LOOK_EVERY_S
            self._look()
        self.shares = {}
        alarms: list[RunAlarm] = []
        for name, recording in list(self._runs.items()):
            try:
                state = recording.read()
            except GpumemError:
                del self._runs[name]
                continue
            self.shares |= _shares(state)
            alarms += [RunAlarm(f.t_ns, name, f.headline) for f in state.failures if f.kind in MEMORY_KINDS]
            if state.facts.life not in (Life.STARTING, Life.RUNNING):
                self._over.add(name)
        self.alarms = tuple(alarms)

    def _look(self) -> None:
        try:
            entries = rundir.list_runs()
        except GpumemError:
            return
        live = [entry for entry in entries if entry.facts is not None and self._is_here(entry)][:MOST]
        names = {entry.run.name for entry in live}
        for name in self._runs.keys() - names:
            del self._runs[name]
        for entry in live:
            if entry.run.name not in self._runs:
                from gpumem_tui.session import Recording  # half of what top would import, and rarely needed

                try:
                    self._runs[entry.run.name] = Recording(entry.run, since_ns=wire.now_ns() - BACK_NS)
                except GpumemError:
                    continue

    def _is_here(self, entry: rundir.RunEntry) -> bool:
        """Whether it lives, on this boot of this machine, on the cards that are looked at."""
        facts = entry.facts
        if facts is None or facts.boot is None or facts.boot != wire.boot_id():
            return False
        its_state = entry.run.path / "simcard.state" if facts.simulated is not None else None
        if its_state != self._state:
            return False
        if entry.run.name in self._runs:
            return entry.run.name not in self._over
        return is_alive(facts.keeper_pid, facts.keeper_ticks)


def _shares(state: RunState) -> dict[tuple[str | int, int], RunShare]:
    ranks = {rank.pid: rank for rank in state.ranks}
    by_rank = {rank.rank: rank for rank in state.ranks if rank.rank is not None}
    uuids = {device.index: device.uuid for device in state.devices}
    found: dict[tuple[str | int, int], RunShare] = {}
    for row in state.processes:
        if not row.ours:
            continue
        uuid = uuids.get(row.device)
        rank = by_rank.get(row.rank) if row.rank is not None else ranks.get(row.pid)
        level = next((level for level in rank.levels if level.uuid == uuid), None) if rank else None
        found[row.device if uuid is None else uuid, row.pid] = RunShare(
            run=state.facts.run,
            rank=row.rank,
            phase=_phase(rank),
            step=rank.step if rank is not None else None,
            allocated_bytes=level.allocated_bytes if level is not None else None,
            reserved_bytes=level.reserved_bytes if level is not None else None,
            identified_by=row.identified_by,
        )
    return found


def _phase(rank: RankState | None) -> str:
    return rank.spans[-1].phase if rank is not None and rank.spans else ""

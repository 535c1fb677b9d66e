"""What an exporter is given: who the run is, who its writers are, and its records one by one."""

from collections.abc import Iterable, Mapping

import msgspec

from gpumem_tui.analysis.state import RunState
from gpumem_tui.records import Header, Record


class Names(msgspec.Struct, frozen=True):
    """How a run's processes and devices are called, from its state."""

    run: str
    cards: str
    """``real``, or ``SIMULATED 2 × 24 GiB``."""
    recorded: bool
    started_ns: int
    started_wall_ns: int
    ranks: Mapping[int, int | None]
    """Rank by pid."""
    devices: Mapping[tuple[int, int], int]
    """The driver's index of a process's device, by (pid, ordinal), where a UUID ties them."""
    uuids: Mapping[int, str | None]
    """By the driver's index."""

    def wall_ns(self, t_ns: int) -> int:
        """A moment of the recording on the calendar, nanoseconds since 1970."""
        return self.started_wall_ns + t_ns - self.started_ns


Records = Iterable[tuple[Header, Record]]
"""Every record with its writer."""


def names_of(state: RunState) -> Names:
    """The names that a state tells."""
    indices = {device.uuid: device.index for device in state.devices if device.uuid is not None}
    facts = state.facts
    return Names(
        run=facts.run,
        cards="real" if facts.simulated is None else f"SIMULATED {facts.simulated}",
        recorded=facts.recorded,
        started_ns=facts.started_ns,
        started_wall_ns=facts.started_wall_ns,
        ranks={rank.pid: rank.rank for rank in state.ranks},
        devices={
            (rank.pid, level.ordinal): indices[level.uuid]
            for rank in state.ranks
            for level in rank.levels
            if level.uuid in indices
        },
        uuids={device.index: device.uuid for device in state.devices},
    )

"""How the allocator's memory lies: at a failure, and of a run that goes on when somebody asks (``r``).

Pools and holes, and every block where a snapshot was kept. Asking is a file in the run
directory; what comes of it is read from the recording like everything else.
"""

from gpumem_tui.analysis.memorymap import memory_map
from gpumem_tui.analysis.snapshot import Snapshot
from gpumem_tui.analysis.state import RunState
from gpumem_tui.errors import GpumemError
from gpumem_tui.records.failure import FailureRecord
from gpumem_tui.views import failurepanels, memorymappanel, present
from gpumem_tui.views.prose import wrapped
from gpumem_tui.views.text import Line
from gpumem_tui.views.tui.screens.view import RowsView
from gpumem_tui.views.tui.widgets.sheet import Part, Sheet

LIVE = (
    "r asks every rank for a map of its blocks now. It holds up the rank's Python and its allocator for "
    "about a microsecond a block, so a rank with more than 50 000 blocks refuses. A failure brings its "
    "pools along, and with run --history the map of every block."
)
OVER = "A failure brings its pools along, and with run --history the map of every block."

MOST_ROWS = 24
"""Rows of a map at most: a character stands for more where there is more."""

Loaded = dict[str, Snapshot | str | None]
"""Snapshots by their path in the recording; why there is none; None while it is read."""


class MemoryMapScreen(RowsView, Sheet):
    """A section for each failure that has pools."""

    newest = True

    def __init__(self) -> None:
        super().__init__(id="map")
        self.focused_panel = True
        self._state: RunState | None = None
        self._loaded: Loaded = {}

    def show_state(self, state: RunState) -> None:
        """Draw a picture; snapshots that it names are read once, behind it."""
        self._state = state
        kept = [each.record for each in state.maps] + [each.record for each in state.failures]
        for name in [record.history for record in kept if record is not None]:
            if name is not None and name not in self._loaded:
                self._loaded[name] = None
                self.run_worker(self._load(name), name=f"map {name}")
        if self.size.width and self.size.height:
            self.show_parts(map_parts(state, self.size.width, self._loaded))

    async def _load(self, name: str) -> None:
        reach = self.monitor.feed.reach
        try:
            self._loaded[name] = await self.monitor.errand(lambda: reach.read_snapshot(name))
        except GpumemError as error:
            self._loaded[name] = str(error)
        if self._state is not None:
            self.show_state(self._state)

    def on_resize(self) -> None:
        """Draw again for the new size."""
        if self._state is not None:
            self.show_state(self._state)

    def next_panel(self, step: int) -> None:
        """The next failure's pools."""
        self.next_part(step)

    def _focused(self) -> Sheet:
        return self


def map_parts(state: RunState, cells: int, loaded: Loaded) -> list[Part]:
    """A section for each map that was asked for and each failure with pools; how to get more."""
    parts: list[Part] = []
    for found in state.maps:
        who = f"rank {found.rank}" if found.rank is not None else f"process {found.pid}"
        where = f"GPU {state.devices[found.device].index}" if found.device is not None else ""
        at = present.wall_clock(state.facts, found.t_ns)
        head = "  ".join(word for word in (who, where, f"(cuda:{found.ordinal})", at) if word)
        if found.record is None:
            lines = wrapped(f"no map: {found.reason}", cells, "missing", first="   ")
        else:
            lines = _of(found.record, found.ordinal, cells, loaded)
        parts.append((f"memory map: {head}", lines))
    for failure in state.failures:
        if failure.record is not None:
            lines = _of(failure.record, failure.ordinal, cells, loaded)
            who = "  ".join(failurepanels.who(state, failure))
            parts.append((f"memory map: {who}", lines))
    how = wrapped(OVER if state.facts.over else LIVE, cells, "dim", first="   ")
    return [*parts, ("memory map" if not parts else "more", how)]


def _of(record: FailureRecord, ordinal: int | None, cells: int, loaded: Loaded) -> list[Line]:
    lines = memorymappanel.pool_lines(record.pools, cells)
    if not lines:
        why = record.missing.get("pools", "the allocator has no segment")
        lines = wrapped(f"pools are not known: {why}", cells, "missing", first="   ")
    if record.history is None:
        return lines
    found = loaded.get(record.history)
    if found is None:
        return [*lines, *wrapped("the map of every block is being read …", cells, "dim", first="   ")]
    if isinstance(found, str):
        return [*lines, *wrapped(f"no map of its blocks: {found}", cells, "missing", first="   ")]
    device = ordinal if ordinal is not None else next(iter(found.devices()), 0)
    drawn = memory_map(found.segments, device, width=max(1, cells - 6), rows=MOST_ROWS)
    return [*lines, (), *memorymappanel.map_lines(drawn, cells)]

"""Maps of allocators that somebody asked for while the run went on: the latest of each rank and device."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpumem_tui import records
from gpumem_tui.analysis.failurestate import MapState
from gpumem_tui.analysis.state import DeviceState
from gpumem_tui.errors import UnreadableRecording
from gpumem_tui.journal.failurefile import read_failure
from gpumem_tui.records.failure import FailureRecord
from gpumem_tui.session.rank import RankModel

Who = tuple[int, int | None]


class MapBook:
    """Those of one run."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._lines: dict[tuple[Who, int], records.Map] = {}
        self._read: dict[str, FailureRecord | str] = {}
        """Records by their path, or why one cannot be read."""

    def take(self, who: Who, line: records.Map) -> None:
        """A line of a rank's journal."""
        before = self._lines.get((who, line.ordinal))
        if before is not None and before.path is not None:
            self._read.pop(before.path, None)
        self._lines[who, line.ordinal] = line

    def states(self, ranks: Mapping[Who, RankModel], devices: Sequence[DeviceState]) -> tuple[MapState, ...]:
        """By rank and device."""
        found = []
        for (who, ordinal), line in self._lines.items():
            model = ranks[who]
            record, reason = self._record(line)
            found.append(
                MapState(
                    t_ns=line.t_ns,
                    pid=model.pid,
                    rank=model.number,
                    ordinal=ordinal,
                    device=_position(model, ordinal, devices),
                    record=record,
                    reason=reason,
                    took_ns=line.took_ns,
                )
            )
        return tuple(sorted(found, key=lambda m: (m.rank is None, m.rank or 0, m.pid, m.ordinal)))

    def _record(self, line: records.Map) -> tuple[FailureRecord | None, str | None]:
        if line.path is None:
            return None, line.reason or "nothing was written"
        if Path(line.path).parent != Path("failures"):  # a journal is data: it does not choose what we open
            return None, f"{line.path}: not in failures/"
        if line.path not in self._read:
            try:
                self._read[line.path] = read_failure(self._run / line.path)
            except UnreadableRecording as error:
                self._read[line.path] = str(error)
        known = self._read[line.path]
        return (None, known) if isinstance(known, str) else (known, None)


def _position(model: RankModel, ordinal: int, devices: Sequence[DeviceState]) -> int | None:
    facts = model.device(ordinal).facts
    for position, device in enumerate(devices):
        if facts is not None and facts.uuid is not None and device.uuid == facts.uuid:
            return position
    return None

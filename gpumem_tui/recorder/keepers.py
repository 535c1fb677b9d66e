"""When a recording ends: the keepers of a run directory, and whether each has finished.

Several keepers may share one recording. Each writes its journal: its header says who
it is, ``start`` names the workload, ``exit`` ends it. One that died says nothing any
more; its process tells. Refuses to decide by age or silence.
"""

from pathlib import Path

from gpumem_tui.errors import UnreadableRecording
from gpumem_tui.records import Exit, Start, decode_header, decode_line
from gpumem_tui.sources.processes import read_stat

_CHUNK_BYTES = 1 << 16
_LONGEST_LINE_BYTES = 1 << 20


class _Journal:
    """One file of a keeper's journal, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keeper: tuple[int, int | None] | None = None
        self._offset = 0
        self._rest = b""

    def read(self) -> list[Start | Exit]:
        """What is new; nothing where the file cannot be read."""
        found: list[Start | Exit] = []
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                while chunk := file.read(_CHUNK_BYTES):
                    self._offset += len(chunk)
                    *lines, self._rest = (self._rest + chunk).split(b"\n")
                    if len(self._rest) > _LONGEST_LINE_BYTES:
                        self._rest = b""  # no line of ours
                    found += self._take(lines)
        except OSError:
            pass  # folded or moved in between: what it said is known already
        return found

    def _take(self, lines: list[bytes]) -> list[Start | Exit]:
        found: list[Start | Exit] = []
        for line in lines:
            if self.keeper is None:
                head = decode_header(line)
                if head is not None:
                    self.keeper = (head.pid, head.started_ticks)
            elif line.startswith((b'["start"', b'["exit"')):  # most lines count output: not worth decoding
                record = decode_line(line)
                if isinstance(record, Start | Exit):
                    found.append(record)
        return found


class Keepers:
    """All keepers of one recording, as far as they are known."""

    def __init__(self, journal: Path, pid: int | None, started_ticks: int | None) -> None:
        """``journal`` is the run's folder of journals; the first keeper is known from run.json."""
        self._folder = journal
        self._journals: dict[str, _Journal] = {}
        self._exited: set[tuple[int, int | None]] = set()
        self._known: set[tuple[int, int | None]] = set() if pid is None else {(pid, started_ticks)}
        self.roots: set[tuple[int, int | None]] = set()
        """The workloads, each as (pid, started ticks)."""
        self.died = False
        """Whether a keeper ended without a word on how its workload did."""

    def look(self) -> bool:
        """Read what is new in their journals; whether one of them is still at work."""
        for path in self._folder.glob("keeper*.jsonl"):
            if path.name not in self._journals:
                self._journals[path.name] = _Journal(path)
        for journal in self._journals.values():
            try:
                news = journal.read()
            except UnreadableRecording:
                continue  # of a newer version: its process still tells when it is gone
            keeper = journal.keeper
            if keeper is None:
                continue
            self._known.add(keeper)
            for record in news:
                if isinstance(record, Start):
                    self.roots.add((record.pid, record.started_ticks))
                else:
                    self._exited.add(keeper)
        at_work = [keeper for keeper in self._known - self._exited if _lives(*keeper)]
        self.died = len(at_work) < len(self._known - self._exited)
        return bool(at_work)


def _lives(pid: int, started_ticks: int | None) -> bool:
    stat = read_stat(pid)
    return stat is not None and not stat.has_ended and started_ticks in (None, stat.started_ticks)

"""One line on a recording, cheaply: from run.json and the keeper's journal alone."""

import time
from dataclasses import asdict, dataclass

from gpumem_tui import records
from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.journal.rundir import RunEntry
from gpumem_tui.session.life import KeeperModel, RunLife
from gpumem_tui.units import format_seconds


@dataclass(frozen=True)
class Glance:
    """What ``runs`` shows of one recording."""

    name: str
    path: str
    state: str
    """running, exit code 0, killed by SIGKILL, lost, unreadable: …"""
    started_wall_ns: int
    age: str
    command: str
    host: str | None
    simulated: bool

    def as_json(self) -> dict[str, object]:
        """Stable keys, raw values."""
        return asdict(self)


def glance(entry: RunEntry) -> Glance:
    """Look at one recording. Never raises: what cannot be read is said in its state."""
    age = format_seconds(max(0.0, time.time() - entry.started_wall_ns / 1e9)) + " ago"
    facts = entry.facts
    if facts is None:
        why = f"unreadable: {entry.problem}"
        return Glance(entry.run.name, str(entry.run.path), why, entry.started_wall_ns, age, "", None, False)
    life = RunLife(facts, entry.run.journal)
    for path in sorted(entry.run.journal.glob("keeper-*.jsonl")):
        _take(life, path.read_bytes().splitlines())
    state = life.run_life()
    return Glance(
        name=entry.run.name,
        path=str(entry.run.path),
        state=state.value
        if state in (Life.STARTING, Life.RUNNING, Life.LOST)
        else life.sentence() or state.value,
        started_wall_ns=entry.started_wall_ns,
        age=age,
        command="".join(c if c.isprintable() else " " for c in " ".join(facts.command)),
        host=facts.host,
        simulated=facts.simulated is not None,
    )


def _take(life: RunLife, lines: list[bytes]) -> None:
    head = records.decode_header(lines[0]) if lines else None
    if head is None:
        return
    keeper = life.keepers.setdefault((head.pid, head.started_ticks), KeeperModel(head))
    for line in lines[1:]:
        keeper.take(records.decode_line(line))

"""Writes recordings of hours or days: a training that breathes, evaluations, a neighbour that comes and goes.

What is older than ``whole_s`` is written as the recorder would have folded it, in buckets
of ``bucket_s`` seconds; with ``bucket_s`` 0 everything is raw. The same arguments give
the same recording, byte for byte but for what headers say of this process.
"""

import functools
import math
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpumem_tui import records
from gpumem_tui.agent import wire
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.runfile import RunFile

SECOND = 10**9
MIB, GIB = 1 << 20, 1 << 30
START_NS = 1_000 * SECOND
TOTAL = 80 * GIB
DRIVER_RESERVED = GIB // 2
CONTEXT = 480 * MIB
STEP_S = 0.5
EVAL_EVERY_S, EVAL_S = 1800, 60
FIRST_PID = 40_000
SEGMENT_BYTES = 4 << 20


def write(
    path: Path,
    *,
    hours: float,
    ranks: int = 8,
    devices: int = 8,
    seed: int = 0,
    bucket_s: int = 10,
    whole_s: float = 600,
    ended: bool = True,
) -> RunDirectory:
    """A whole run directory. Rank r holds device r modulo ``devices``."""
    run = RunDirectory(path)
    for folder in (run.journal, run.rings, run.failures):
        folder.mkdir(parents=True)
    run.write_facts(
        RunFile(
            run=path.name, command=["python", "train.py"], cwd="/", host="node", user="ada", boot="other",
            wall_ns=1_796_000_400 * SECOND, t_ns=START_NS, version="0", interactive=False,
            keeper_pid=1, keeper_ticks=1,
        )
    )  # fmt: skip
    seconds = int(hours * 3600)
    folded_s = max(0, int(seconds - whole_s)) // bucket_s * bucket_s if bucket_s else 0
    for rank in range(ranks):
        writer = _Writer(run, "rank", FIRST_PID + rank, bucket_s, ring="none")
        writer.lines(START_NS, _about_rank(rank, rank % devices, ranks), folded=bool(folded_s))
        for at in range(0, folded_s, bucket_s or 1):
            writer.lines(_at(at), _rank_bucket(rank, at, bucket_s, seed), folded=True)
        for at in range(folded_s, seconds):
            writer.lines(_at(at), _rank_second(rank, at, seed), folded=False)
        writer.lines(_at(seconds), [records.Bye(_at(seconds) - 1)] if ended else [], folded=False)
        writer.close()
    _write_driver(run, seconds, folded_s, bucket_s, ranks, devices, seed, ended)
    keeper = _Writer(run, "keeper", 1, 0)
    lines: list[object] = [records.Start(START_NS, FIRST_PID, 1)]
    if ended:
        lines.append(records.Exit(_at(seconds), 0))
    keeper.lines(START_NS, lines, folded=False)
    keeper.close()
    return run


def levels(rank: int, second: float, seed: int = 0) -> tuple[int, int]:
    """Allocated and reserved bytes of a rank at a second of the run."""
    base = _base(rank, seed)
    if second % EVAL_EVERY_S > EVAL_EVERY_S - EVAL_S:
        return base + 6 * GIB, base + 16 * GIB
    wave = (1 + math.sin(second / STEP_S * 2 * math.pi)) / 2
    growth = int(min(1.0, second / 7200) * 8 * GIB)
    return base + int(wave * 7 * GIB), base + 8 * GIB + growth // (2 * MIB) * (2 * MIB)


@functools.cache
def _base(rank: int, seed: int) -> int:
    return random.Random(seed * 1_000 + rank).randint(20, 30) * GIB


def phase_at(second: float) -> str:
    """The innermost phase at a second of the run; the same for every rank."""
    if second % EVAL_EVERY_S > EVAL_EVERY_S - EVAL_S:
        return "eval"
    within = second % STEP_S
    return "forward" if within < 0.2 else "backward" if within < 0.42 else "optimizer"


def _at(second: float) -> int:
    return START_NS + round(second * SECOND)


class _Writer:
    """Segments of one writer; folded and raw lines go to segments of their own."""

    def __init__(self, run: RunDirectory, role: str, pid: int, bucket_s: int, **about: object) -> None:
        self._run, self._role, self._pid, self._bucket_s, self._about = run, role, pid, bucket_s, about
        self._lines: list[bytes] = []
        self._size = self._number = 0
        self._folded = False
        self._began_ns = START_NS

    def lines(self, t_ns: int, lines: list[object], *, folded: bool) -> None:
        if self._lines and (folded != self._folded or self._size > SEGMENT_BYTES):
            self.close()
        if not self._lines:
            self._began_ns, self._folded = t_ns, folded
        for line in lines:
            self._lines.append(msgspec.json.encode(line) + b"\n")
            self._size += len(self._lines[-1])

    def close(self) -> None:
        named = (self._pid, 1) if self._role != "driver" else ()
        name = wire.segment_name(self._role, self._number, *named)
        head = {
            **wire.header(self._role, self._run.path.name, self._number, **self._about),
            "host": "node", "boot": "other", "pid": self._pid, "started_ticks": 1, "t_ns": self._began_ns,
        }  # fmt: skip
        if self._folded:
            name = name.replace(".jsonl", ".fold.jsonl")
            seen = [[phase, ""] for phase in ("train", "forward", "backward", "optimizer", "eval")]
            head.update(folded=True, bucket_ns=self._bucket_s * SECOND, last_seq=2, seen=seen)
        (self._run.journal / name).write_bytes(wire.encode_header(head) + b"".join(self._lines))
        self._lines, self._size, self._number = [], 0, self._number + 1


def _about_rank(rank: int, device: int, ranks: int) -> list[object]:
    return [
        records.Rank(START_NS, rank, rank, ranks, ranks, "env"),
        records.Torch(START_NS, "2.9.0", "cuda", "13.0", "native", "", True),
        records.Device(START_NS, 0, f"uuid-{device}", None, "NVIDIA H100", TOTAL - DRIVER_RESERVED, "uuid"),
        records.Begin(START_NS, 1, 1, None, 1, "train", "", None, []),
    ]


def _rank_bucket(rank: int, at: int, bucket_s: int, seed: int) -> list[object]:
    """What folding leaves of a stretch: counters, and the spans of each phase."""
    tenths = [*range(0, bucket_s * 10 - 1, max(3, bucket_s)), bucket_s * 10 - 1]
    points = [levels(rank, at + tenth / 10, seed) for tenth in tenths]
    allocated, reserved = zip(*points, strict=True)
    until = _at(at + bucket_s) - SECOND // 10

    def extent(values: tuple[int, ...]) -> tuple[int, int, int]:
        return min(values), max(values), values[-1]

    lines: list[object] = [
        records.Samples(_at(at), until, 0, bucket_s * 10, extent(allocated), extent(reserved), 0, 0)
    ]
    phases = ("eval",) if phase_at(at + bucket_s / 2) == "eval" else ("forward", "backward", "optimizer")
    for number, phase in enumerate(phases):
        count = max(1, int(bucket_s / STEP_S))
        took = (200, 220, 80)[number] * SECOND // 1000
        lines.append(
            records.Spans(
                _at(at), until, phase, "", 0, False, count, 0, (took, took, took),
                extent(allocated), extent(reserved), extent(allocated), extent(reserved),
            )
        )  # fmt: skip
    if at % 600 == 0:
        lines.append(_composition(rank, at, seed))
    return lines


def _rank_second(rank: int, at: int, seed: int) -> list[object]:
    """One second as a process writes it."""
    lines: list[tuple[int, object]] = []
    for tenth in range(10):
        second = at + tenth / 10
        allocated, reserved = levels(rank, second, seed)
        lines.append(
            (_at(second), records.Sample(_at(second), 0, allocated, reserved, alloc_retries=0, ooms=0))
        )
    for number, (begins, ends, phase) in enumerate(_spans(at)):
        span = 100 + at * 16 + number
        step = int(at / STEP_S) + number // 3
        low, high = levels(rank, begins, seed), levels(rank, ends, seed)
        lines.append(
            (_at(begins), records.Begin(_at(begins), span * 2, span, 1, 1, phase, "", step, [(0, *low)]))
        )
        end = records.End(
            _at(ends), span * 2 + 1, span, None, [(0, *high, max(low[0], high[0]), high[1], True)]
        )
        lines.append((_at(ends), end))
    if at % 30 == 0:
        lines.append((_at(at), _composition(rank, at, seed)))
    return [line for _, line in sorted(lines, key=lambda item: item[0])]


def _spans(at: int) -> Iterator[tuple[float, float, str]]:
    if phase_at(at + 0.5) == "eval":
        yield at, at + 0.999, "eval"
        return
    for step in (at, at + STEP_S):
        yield step, step + 0.2, "forward"
        yield step + 0.2, step + 0.42, "backward"
        yield step + 0.42, step + 0.499, "optimizer"


def _composition(rank: int, at: int, seed: int) -> records.Composition:
    allocated, _ = levels(rank, at, seed)
    return records.Composition(
        _at(at), 0, int(at / STEP_S), 6 * GIB, 6 * GIB, 12 * GIB, 0, allocated, True, 1_000_000
    )


def _write_driver(
    run: RunDirectory,
    seconds: int,
    folded_s: int,
    bucket_s: int,
    ranks: int,
    devices: int,
    seed: int,
    ended: bool,
) -> None:
    writer = _Writer(run, "driver", 2, bucket_s)
    about: list[object] = [
        records.Gpu(START_NS, index, f"uuid-{index}", None, "NVIDIA H100", TOTAL) for index in range(devices)
    ]
    about += [
        records.Process(START_NS, FIRST_PID + rank, 1, 1, "python", "ada", "python train.py")
        for rank in range(ranks)
    ]
    about.append(records.Process(START_NS, 9_000, 1, 1, "notebook", "bob", "jupyter-lab"))
    writer.lines(START_NS, about, folded=bool(folded_s))
    at = 0
    while at < seconds:
        folded = at < folded_s
        width = bucket_s if folded else 1
        moment = _at(at + width) - SECOND // 10
        lines: list[object] = []
        for index in range(devices):
            held = {
                FIRST_PID + r: levels(r, at + width - 0.1, seed)[1] + CONTEXT
                for r in range(index, ranks, devices)
            }
            if index == 0 and at % 7200 > 3600:
                held[9_000] = 2 * GIB
            free = TOTAL - DRIVER_RESERVED - sum(held.values())
            used = TOTAL - DRIVER_RESERVED - free
            if folded:
                lines.append(
                    records.Memories(
                        _at(at), moment, index, width * 2, TOTAL, (used, used, used), (free, free, free),
                        DRIVER_RESERVED,
                    )
                )  # fmt: skip
            else:
                lines.append(records.Memory(moment, 30_000, index, TOTAL, free, used, DRIVER_RESERVED, 2))
            rows = [(pid, size, "C", None) for pid, size in held.items()]
            lines.append(records.Processes(moment, 30_000, index, rows))
        tree = [(FIRST_PID + rank, 1, 1, 4 * GIB) for rank in range(ranks)]
        lines.append(records.Tree(moment, tree))
        writer.lines(_at(at), lines, folded=folded)
        at += width
    writer.lines(_at(seconds), [records.Bye(_at(seconds))] if ended else [], folded=False)
    writer.close()

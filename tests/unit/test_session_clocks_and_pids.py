"""Wall clocks that jump, and pids that are used again: neither changes what a recording tells."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.agent import wire
from gpumem_tui.analysis.state import RunState
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.runfile import RunFile
from gpumem_tui.session import Recording
from gpumem_tui.session.stream import records_of
from gpumem_tui.units import GIB
from gpumem_tui.views.export import tables

START = 10**12
WALL = 1_796_000_400 * 10**9
RANK, STRANGER = (100, 1), (100, 9)
"""One pid, two processes: the second began later."""


def at(seconds):
    return START + int(seconds * 1e9)


def recorded(path, *, wall_ns=(WALL,) * 6, reused=False):
    """A killed run of one rank, in two segments each; ``wall_ns`` is what the headers say of the clock."""
    run = RunDirectory(path)
    for folder in (run.journal, run.rings, run.failures):
        folder.mkdir()
    run.write_facts(
        RunFile(
            run="r", command=["x"], cwd="/", host="h", user="u", boot="other", wall_ns=WALL, t_ns=START,
            version="0", interactive=False, keeper_pid=1, keeper_ticks=1,
        )
    )  # fmt: skip
    rank = [
        [("device", at(1), 0, "aa", None, "card", 24 * GIB, "uuid"), ("sample", at(1.5), 0, GIB, 2 * GIB)],
        [
            ("sample", at(2), 0, GIB, 2 * GIB),
            ("mark", at(2), "checkpoint"),
            ("sample", at(3), 0, GIB, 2 * GIB),
        ],
    ]
    driver = [
        [
            ("gpu", START, 0, "aa", None, "card", 24 * GIB, None, "1", None),
            ("tree", START, [[*RANK, 99, 1 << 20]]),
            *listed(0, None),
            ("process", at(2), *RANK, 1, "python", "u", "python x", True),
            *listed(2, 3 * GIB),
        ],
        [*listed(3, 3 * GIB), *listed(5, None)],
    ]
    if reused:
        driver[1] += [
            ("tree", at(6), []),
            ("process", at(7), *STRANGER, 1, "miner", "eve", "miner", True),
            *listed(7, 5 * GIB),
        ]
    keeper = [[("start", START, *RANK)], [("exit", at(9 if reused else 6), None, 9)]]
    clock = iter(wall_ns)
    for role, who, segments in (("rank", RANK, rank), ("driver", None, driver), ("keeper", (99, 1), keeper)):
        for number, lines in enumerate(segments):
            pid, ticks = who or (55, 1)
            head = wire.header(role, "r", number, pid=pid, started_ticks=ticks, t_ns=lines[0][1])
            head["wall_ns"] = next(clock)
            told = [wire.encode_header(head), *(wire.encode(*line) for line in lines)]
            name = wire.segment_name(role, number, who and pid, who and ticks)
            (run.journal / name).write_bytes(b"".join(told))
    return run


def listed(second, used):
    """A reading of memory and a process list, in which pid 100 holds so much."""
    taken = used or 0
    rows = [] if used is None else [(100, used, "C", None)]
    return [
        ("memory", at(second), 5, 0, 24 * GIB, 24 * GIB - taken, taken, 0, 2, None),
        ("processes", at(second), 5, 0, rows, None),
    ]


def told(run) -> tuple[RunState, list[str]]:
    """The picture, but for the folder, and the timeline as it is exported."""
    state = Recording(run).read()
    facts = msgspec.structs.replace(state.facts, path="")
    rows = list(tables.lines("timeline", state, records_of(run)))
    return msgspec.structs.replace(state, facts=facts), rows


@given(wall_ns=st.tuples(*[st.integers(0, 1 << 62)] * 6))
def test_whatever_the_wall_clock_does_during_a_run_picture_and_times_are_the_same(tmp_path_factory, wall_ns):
    steady = recorded(tmp_path_factory.mktemp("steady"))
    jumping = recorded(tmp_path_factory.mktemp("jumping"), wall_ns=wall_ns)

    assert told(jumping) == told(steady)


@pytest.fixture
def reused(tmp_path):
    """The picture of a run whose rank was killed, and whose pid a stranger then got."""
    recording = Recording(recorded(tmp_path, reused=True))
    recording.read()
    return recording


def test_a_stranger_with_the_pid_of_a_dead_rank_is_a_stranger_in_the_list(reused):
    state = reused.read_at(at(8), START, at(9))

    (row,) = state.processes
    assert (row.pid, row.ours, row.rank, row.name, row.used_bytes) == (100, False, None, "miner", 5 * GIB)


def test_its_memory_is_not_counted_as_the_ranks(reused):
    (device,) = reused.read_at(at(8), START, at(9)).devices

    assert sum(other.used.bytes for other in device.ledger.others) == 5 * GIB
    assert device.ledger.ranks == ()


def test_that_it_came_is_told_and_the_dead_ranks_own_lists_are_not_taken_for_its(reused):
    events = [(event.t_ns, event.text) for event in reused.read().events]

    assert [t_ns for t_ns, text in events if "miner" in text] == [at(7)]

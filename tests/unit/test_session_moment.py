"""Which moment of an ended run its ledgers are of."""

import pytest

from gpumem_tui.agent import wire
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.runfile import RunFile
from gpumem_tui.session import Recording
from gpumem_tui.units import GIB, MIB

SECOND = 10**9
START = 10**12
FREE_AT_FIRST, RESERVED, CONTEXT = 20 * GIB, 3 * GIB, 500 * MIB


def at(second):
    return START + round(second * SECOND)


@pytest.fixture
def ended(tmp_path):
    """An ended run of one rank: the driver listed it at these seconds, and it fell silent at ``spoke``."""

    def make(listed, spoke):
        run = RunDirectory(tmp_path)
        for folder in (run.journal, run.rings, run.failures):
            folder.mkdir()
        run.write_facts(
            RunFile(
                run="r", command=["x"], cwd="/", host="h", user="u", boot="other", wall_ns=START, t_ns=START,
                version="0", interactive=False, keeper_pid=1, keeper_ticks=1,
            )
        )  # fmt: skip
        rank = [
            ("device", at(1), 0, "aa", None, "card", FREE_AT_FIRST, "uuid"),
            ("sample", at(1.6), 0, 2 * GIB, RESERVED),
            ("sample", at(spoke), 0, 2 * GIB, RESERVED),
            ("bye", at(spoke)),
        ]
        driver = [("gpu", START, 0, "aa", None, "card", 24 * GIB, None, "1", None)]
        for second in range(6):
            used = RESERVED + CONTEXT if second in listed else 0
            rows = [(100, used, "C", None)] if used else []
            figures = (24 * GIB, FREE_AT_FIRST - used, 24 * GIB - FREE_AT_FIRST + used, 0, 2, None)
            driver += [("memory", at(second), 5, 0, *figures), ("processes", at(second), 5, 0, rows, None)]
        keeper = [("start", START, 100, 1), ("exit", at(4), 0, None)]
        for role, pid, lines in (("rank", 100, rank), ("driver", None, driver), ("keeper", 99, keeper)):
            head = wire.header(role, "r", 0, pid=pid or 0, started_ticks=1, t_ns=START)
            told = [wire.encode_header(head), *(wire.encode(*line) for line in lines)]
            (run.journal / wire.segment_name(role, 0, pid, 1)).write_bytes(b"".join(told))
        return Recording(run).read()

    return make


@pytest.mark.parametrize(
    ("listed", "spoke"),
    [
        ({2}, 1.9),  # it fell silent before its only list, which shows it still
        ({2, 3}, 3.2),
        ({1, 2}, 2.8),  # its memory was gone before the last list that it lived to see
    ],
)
def test_it_is_one_at_which_the_rank_still_held_its_memory(ended, listed, spoke):
    state = ended(listed, spoke)

    [share] = state.devices[0].ledger.ranks
    assert state.facts.moment_ns == at(max(listed))
    assert (share.reserved.bytes, share.outside.bytes) == (RESERVED, CONTEXT)


def test_where_no_list_names_the_rank_it_is_when_it_was_last_heard(ended):
    state = ended(set(), 2.2)

    assert state.facts.moment_ns == at(2.2)

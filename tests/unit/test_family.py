"""Processes as a forest: who was started by whom."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from toppictures import process

from gpumem_tui.analysis.family import flat, forest
from gpumem_tui.analysis.top import Ancestor


def below(pid, *chain, device=0):
    """A process on a card, and who is above it, its parent first."""
    return process(
        device, pid, ancestors=tuple(Ancestor(above, "launcher", "bob", "torchrun") for above in chain)
    )


def drawn(processes):
    """(pid, on a card, level, whether it is the last of its siblings)."""
    return [
        (
            branch.launcher.pid if branch.process is None else branch.process.pid,
            branch.process is not None,
            len(branch.lasts),
            branch.lasts[-1:] == (True,),
        )
        for branch in forest(processes)
    ]


def test_ranks_stand_below_their_launcher_which_is_on_no_card():
    assert drawn([below(11, 10, 2), below(12, 10, 2)]) == [
        (10, False, 0, False),
        (11, True, 1, False),
        (12, True, 1, True),
    ]


def test_a_launcher_of_one_process_is_no_row():
    assert drawn([below(11, 10, 2)]) == [(11, True, 0, False)]


def test_a_process_on_a_card_stands_above_its_own_child():
    assert drawn([below(12, 11, 10), below(11, 10)]) == [(11, True, 0, False), (12, True, 1, True)]


def test_two_launchers_of_one_shell_stand_below_it():
    rows = drawn([below(11, 10, 2), below(21, 20, 2), below(12, 10, 2), below(22, 20, 2)])

    assert [(pid, level) for pid, _, level, _ in rows] == [
        *((2, 0), (10, 1), (11, 2), (12, 2), (20, 1), (21, 2), (22, 2))
    ]


def test_rows_of_one_process_on_several_cards_stay_together():
    rows = forest([below(11, 10), below(12, 10), below(11, 10, device=1)])

    assert [(b.process.pid, b.process.device) for b in rows if b.process] == [(11, 0), (11, 1), (12, 0)]


def test_branches_keep_the_order_of_their_first_rows():
    rows = drawn([below(31, 30), below(11, 10), below(32, 30), below(12, 10)])

    assert [pid for pid, *_ in rows] == [30, 31, 32, 10, 11, 12]


@given(
    st.lists(
        st.tuples(st.integers(2, 20), st.integers(0, 2), st.lists(st.integers(2, 20), max_size=4)),
        max_size=30,
        unique_by=lambda row: row[:2],
    )
)
def test_every_row_is_in_the_forest_once_whoever_is_said_to_have_started_it(rows):
    processes = [below(pid, *chain, device=device) for pid, device, chain in rows]
    branches = forest(processes)
    kept = [branch.process for branch in branches if branch.process is not None]

    assert sorted(kept, key=msgspec.json.encode) == sorted(processes, key=msgspec.json.encode)
    assert [branch.process for branch in flat(processes)] == processes
    launchers = [branch.launcher.pid for branch in branches if branch.process is None]
    assert len(launchers) == len(set(launchers))
    assert not set(launchers) & {pid for pid, *_ in rows}

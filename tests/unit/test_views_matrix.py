"""Ranks × GPUs: what a cell is, what stands out, and that it fits, as literal text."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tui import scripted

from gpumem_tui.analysis.rankstate import Levels
from gpumem_tui.records import Reason
from gpumem_tui.units import GIB, MIB
from gpumem_tui.views import present
from gpumem_tui.views.matrix import Stand, cell_sentence, listing, matrix
from gpumem_tui.views.matrixpanels import grid, matrix_lines, short_gib
from gpumem_tui.views.text import line_width, plain

CONTEXT = 460 * MIB
AT = present.wall_clock(scripted.facts(), scripted.START)


def contexts(count, on=0):
    """``count`` ranks on a card each, and all but one with a context on one card besides."""
    state = scripted.picture(60, count, foreign=0)
    stray = [
        scripted._row(on, 4700 + i, i, True, "python train.py", "ada", CONTEXT)
        for i in range(count)
        if i != on
    ]
    return msgspec.structs.replace(state, processes=(*state.processes, *stray))


def together(count):
    """All ranks on card 0 of ``count`` cards."""
    state = scripted.picture(60, count, foreign=0)
    ranks = [
        msgspec.structs.replace(rank, levels=(msgspec.structs.replace(rank.levels[0], uuid="uuid-0"),))
        for rank in state.ranks
    ]
    rows = [msgspec.structs.replace(row, device=0) for row in state.processes]
    return msgspec.structs.replace(state, ranks=tuple(ranks), processes=tuple(rows))


def text(state, cells=80):
    return [plain(line).rstrip() for line in matrix_lines(matrix(state), state, cells)]


def stands(state):
    return {(row.title, place): cell.stand for row in matrix(state).rows for place, cell in row.cells.items()}


def test_each_rank_on_a_card_of_its_own_is_calm():
    state = scripted.picture(60, 4, foreign=0)

    assert stands(state) == {(f"rank {i}", i): Stand.HOME for i in range(4)}
    assert [text for _, text in matrix(state).remarks] == ["4 ranks, each on a card of its own; nobody else"]


def test_contexts_that_ranks_leave_on_the_first_card_stand_out_by_size_and_time():
    state = contexts(4)

    assert stands(state)["rank 3", 0] is Stand.CONTEXT
    assert matrix(state).remarks == (
        (
            "warning",
            f"ranks 1–3 hold a context on GPU 0, 3 × 460 MiB, and nothing reserved in it; since {AT}",
        ),
    )


def test_ranks_that_share_a_card_stand_out_with_the_cards_that_stay_empty():
    state = together(4)

    assert set(stands(state).values()) == {Stand.SHARED}
    assert matrix(state).remarks[0] == ("warning", "ranks 0–3 share GPU 0; 3 of 4 cards have no rank")


def test_tensors_on_a_card_that_is_not_the_ranks_own_are_astray():
    state = contexts(2)
    first, second = state.ranks
    astray = Levels(0, "uuid-0", state.now_ns, 64 * MIB, 128 * MIB, 0, 0)
    second = msgspec.structs.replace(second, levels=(astray, *second.levels))
    state = msgspec.structs.replace(state, ranks=(first, second))

    assert stands(state)["rank 1", 0] is Stand.STRAY
    assert (
        "warning",
        "rank 1 holds 460 MiB on GPU 0, which is not its card: 128 MiB reserved",
    ) in matrix(state).remarks


def test_since_when_is_not_told_before_all_has_been_read():
    state = scripted.picture(60, 2, foreign=0)
    row = msgspec.structs.replace(state.processes[0], since_ns=scripted.START + 20 * scripted.SECOND)
    late = msgspec.structs.replace(state.processes[1], since_ns=scripted.START + 50 * scripted.SECOND)
    state = msgspec.structs.replace(
        state, processes=(row, late), unread_before_ns=scripted.START + 40 * scripted.SECOND
    )
    since = {r.title: cell.since_ns for r in matrix(state).rows for cell in r.cells.values()}

    assert since == {"rank 0": None, "rank 1": late.since_ns}


def spread(rank, *places):
    """A rank with 8 GiB reserved on each of some cards."""
    levels = tuple(
        Levels(ordinal, f"uuid-{place}", rank.spoke_ns, 4 * GIB, 8 * GIB, 0, 0)
        for ordinal, place in enumerate(places)
    )
    return msgspec.structs.replace(rank, levels=levels)


def test_a_model_that_is_spread_over_cards_is_at_home_on_each_of_them():
    state = scripted.picture(60, 4, foreign=0)
    both = tuple(spread(rank, 2 * n, 2 * n + 1) for n, rank in enumerate(state.ranks[:2]))
    state = msgspec.structs.replace(state, ranks=both, processes=())

    assert set(stands(state).values()) == {Stand.HOME}
    assert matrix(state).remarks == (("dim", "2 ranks, each on cards of its own; nobody else"),)


def test_a_process_alone_on_several_cards_is_spread_over_them():
    state = scripted.picture(60, 4, foreign=0)
    alone = msgspec.structs.replace(spread(state.ranks[0], 0, 1, 2), rank=None)
    state = msgspec.structs.replace(state, ranks=(alone,), processes=())

    assert matrix(state).remarks == (("dim", f"pid {alone.pid} is spread over 3 cards; nobody else"),)


def test_a_card_that_is_the_first_of_another_rank_is_no_home_however_much_lies_there():
    state = scripted.picture(60, 2, foreign=0)
    first, second = state.ranks
    state = msgspec.structs.replace(state, ranks=(spread(first, 0, 1), spread(second, 1)), processes=())

    assert stands(state)["rank 0", 1] is Stand.STRAY
    assert stands(state)["rank 1", 1] is Stand.HOME


def test_a_rank_that_the_driver_hides_keeps_what_it_has_reserved_as_a_lower_bound():
    state = scripted.hidden_processes(60)
    (row,) = matrix(state).rows
    cell = row.cells[0]

    assert (cell.used_bytes, cell.why) == (None, "hidden")
    assert cell.bytes == cell.reserved_bytes == state.ranks[0].levels[0].reserved_bytes
    assert any("█ ≥11.60" in line for line in text(state))


def test_a_figure_that_the_driver_refuses_is_missing_with_its_reason():
    state = scripted.picture(60, 2)
    rows = [
        msgspec.structs.replace(row, used_bytes=None, reason=Reason.NO_PERMISSION) if not row.ours else row
        for row in state.processes
    ]
    state = msgspec.structs.replace(state, processes=tuple(rows))
    table = matrix(state)

    assert cell_sentence(table.rows[-1], 0, table, state) == (
        f"bob 9000 on GPU 0: held size unknown (no permission), since {AT}; not of this run"
    )


def test_sixteen_ranks_on_sixteen_cards_fit_into_80_cells():
    lines = text(contexts(16))

    assert lines[0].split() == [str(n) for n in range(16)]
    assert lines[1] == "  rank 0  █ 12" + "   ·" * 15
    assert lines[16] == "  rank 15 ▒.45" + "   ·" * 14 + "█ 12"
    assert lines[17] == "   GiB held  █ its card  ▒ context alone"


def test_two_cards_at_80_cells_show_what_is_reserved_and_since_when():
    lines = text(scripted.picture(60, 2))

    assert lines[1] == f"  rank 0   █  12.05 (11.60)  {AT}                          ·"
    assert lines[3] == f"  bob 9000 ╳   6.00          {AT}                          ·"


def test_a_filter_keeps_the_rows_that_have_the_word():
    state = scripted.picture(60, 4)

    assert [row.title for row in matrix(state, "bob").rows] == ["bob 9000"]
    assert [row.title for row in matrix(state, "RANK 2").rows] == ["rank 2"]


def test_more_cards_than_fit_keep_the_chosen_one_in_view():
    state = scripted.picture(60, 40)
    drawn = grid(matrix(state), state, 80, (0, 39))

    assert drawn.first + drawn.shown == 40
    assert drawn.place_at(drawn.name_cells + 4 * drawn.shown - 1) == 39


@pytest.mark.parametrize(
    ("numbers", "words"), [([3], "rank 3"), ([0, 2], "ranks 0, 2"), ([0, 1, 2, 5], "ranks 0–2, 5")]
)
def test_ranks_are_listed_by_spans(numbers, words):
    assert listing(numbers) == words


@given(st.integers(0, 900 * GIB))
def test_a_short_figure_has_at_most_three_characters_and_is_right_to_its_last(size):
    shown = short_gib(size)

    assert len(shown) <= 3
    assert float(shown) == pytest.approx(size / GIB, abs=0.51 if size >= 9.9 * GIB else 0.051)


@settings(deadline=None)
@given(st.integers(0, 16), st.integers(20, 220), st.integers(0, 15))
def test_every_line_is_exactly_as_wide_as_asked(count, cells, chosen):
    state = contexts(count) if count else scripted.picture(60, 0, ranks=())
    table = matrix(state)
    drawn = grid(table, state, cells, (0, min(chosen, max(0, count - 1))))

    assert {line_width(line) for line in (drawn.head, *drawn.rows)} == {cells}

"""Finished spans become rows: what they grow by, and whose figures are lower bounds."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui import records
from gpumem_tui.session.phasetable import FEWEST, PhaseTable
from gpumem_tui.units import MIB


def table_of(levels, exact=True) -> PhaseTable:
    """Spans of one phase with (end, peak) of allocated."""
    table = PhaseTable()
    for number, (end, peak) in enumerate(levels):
        begin = records.Begin(number, 2 * number, number, None, 1, "eval", "Net", number, [(0, 1, 1)])
        table.began(begin)
        table.add(begin, records.End(number, 2 * number + 1, number, None, [(0, end, 1, peak, 1, exact)]))
    return table


def warm(table):
    (row,) = (row for row in table.rows(1, 0) if not row.cold)
    return row


def test_what_a_phase_leaves_behind_each_time_is_its_growth():
    row = warm(table_of([(100 * MIB + i * 12 * MIB, 500 * MIB) for i in range(40)]))

    assert (row.end_growth_bytes, row.peak_growth_bytes) == (12 * MIB, 0)


def test_one_outlier_is_no_growth_and_hides_none():
    flat = [(100, 200)] * 30
    flat[20] = (9_000, 9_000)
    rising = [(i * 10, i * 10) for i in range(40)]
    rising[20] = (9_000, 9_000)

    assert warm(table_of(flat)).end_growth_bytes == 0
    assert warm(table_of(rising)).end_growth_bytes == 10


def test_of_few_spans_nothing_is_said():
    row = warm(table_of([(i, i) for i in range(FEWEST)]))  # the first of them is the cold one

    assert (row.end_growth_bytes, row.peak_growth_bytes, row.growth_spans) == (None, None, 0)


@given(st.lists(st.integers(0, 2**40), min_size=FEWEST + 1, max_size=120))
def test_what_never_rises_never_grows(ends):
    falling = sorted(ends, reverse=True)

    assert not warm(table_of([(end, end) for end in falling])).end_growth_bytes


@given(st.integers(1, 2**30), st.integers(FEWEST + 1, 120))
def test_a_straight_line_has_its_slope(slope, count):
    levels = [(i * slope, i * slope) for i in range(count)]
    row = warm(table_of(levels))

    assert all(b[0] - a[0] == slope for a, b in pairwise(levels))
    assert row.end_growth_bytes == row.peak_growth_bytes == slope
    assert row.growth_spans <= count


def test_folded_spans_keep_their_lower_bounds_and_go_on_with_the_trend():
    table = table_of([(i * 10, i * 10) for i in range(20)])
    points = [(i * 10,) * 3 for i in range(20, 60, 10)]
    for number, (at,) in enumerate(zip(points, strict=True)):
        table.add_folded(
            records.Spans(number, number, "eval", "Net", 0, False, 10, 0, (1,) * 3, at, at, at, at, inexact=1)
        )
    row = warm(table)

    assert row.exact is False
    assert row.end_growth_bytes is not None
    assert row.end_growth_bytes > 0
    assert row.start_allocated_bytes is None


def test_folded_spans_of_an_older_recording_are_as_exact_as_they_said():
    table = PhaseTable()
    table.add_folded(records.Spans(0, 1, "eval", "Net", 0, False, 3, 0, (1,) * 3, *[(5,) * 3] * 4))

    assert warm(table).exact is True

"""The slope of a series: what it believes, and what it does not."""

from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.analysis.trend import slope_of

MIB = 1 << 20


def test_one_jump_at_the_end_is_no_growth_of_the_series():
    slope = slope_of([(step, 10 * MIB * step) for step in range(20)] + [(20, 5000 * MIB)])

    assert slope.bytes_per_unit == 10 * MIB
    assert slope.grown_bytes == 200 * MIB


def test_growth_that_has_stopped_is_not_steady():
    points = [(step, MIB * min(step, 20)) for step in range(40)]

    assert not slope_of(points).steady


@given(st.lists(st.integers(0, 1 << 40), min_size=3, max_size=60))
def test_no_more_is_said_to_have_grown_than_lies_between_the_ends(sizes):
    slope = slope_of(list(enumerate(sizes)))

    assert slope.grown_bytes <= sizes[-1] - sizes[-48:][0]

"""A curve stays within its bound, keeps every extreme, and never bridges a gap."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.session import curve as curves
from gpumem_tui.session.curve import Curve

SECOND = 10**9
points = st.lists(
    st.tuples(st.sampled_from([1] * 40 + [30]), st.integers(0, 1 << 40)), min_size=41, max_size=400
)


def grown(steps, bound):
    """A curve of points so many seconds apart, with a small bound."""
    before, curves.POINTS = curves.POINTS, bound
    try:
        curve, now, raw = Curve(), 0, []
        for seconds, value in steps:
            now += seconds * SECOND
            curve.add(now, now, value, value, value)
            raw.append((now, value))
        return curve.series(), raw
    finally:
        curves.POINTS = before


@given(st.lists(st.integers(0, 1 << 40), max_size=400))
def test_extremes_and_the_last_value_survive_folding(values):
    series, raw = grown([(1, value) for value in values], bound=32)

    assert [max(series.high, default=None), min(series.low, default=None)] == [
        max((v for _, v in raw), default=None),
        min((v for _, v in raw), default=None),
    ]
    assert list(series.last[-1:]) == [v for _, v in raw[-1:]]


@given(points)
def test_a_folded_point_is_true_of_its_time_and_never_mostly_a_gap(steps):
    series, raw = grown(steps, bound=32)

    assert len(series.t_ns) <= 32
    for since, until, low, high, last in zip(
        *(getattr(series, f) for f in series.__struct_fields__), strict=True
    ):
        inside = [(t, v) for t, v in raw if since <= t <= until]
        assert (min(v for _, v in inside), max(v for _, v in inside)) == (low, high)
        assert inside[-1] == (until, last)
        gaps = [b[0] - a[0] for a, b in itertools.pairwise(inside)]
        assert all(gap <= 2 * SECOND or gap <= 0.7 * (until - since) for gap in gaps)


@given(st.integers(100, 3000), st.sampled_from([32, 64, 256]))
def test_however_long_it_gets_no_part_is_coarser_than_its_share_of_the_whole(count, bound):
    series, raw = grown([(1, value) for value in range(count)], bound)

    widest = max(t - since for since, t in zip(series.since_ns, series.t_ns, strict=True))
    whole = raw[-1][0] - raw[0][0]
    assert widest <= whole / (bound // curves.OLD_SHARE)


def test_sparse_points_are_folded_rather_than_lost():
    series, raw = grown([(30, value) for value in range(500)], bound=32)

    assert len(series.t_ns) <= 32
    assert (series.low[0], series.since_ns[0]) == (0, raw[0][0])


def test_a_value_is_settled_where_all_points_around_a_moment_have_it():
    curve = Curve()
    for second, value in enumerate([5, 5, 5, 9, 9]):
        curve.add(second * SECOND, second * SECOND, value, value, value)

    assert curve.settled(SECOND + 1, SECOND) == 5
    assert curve.settled(2 * SECOND + 1, SECOND) is None
    assert curve.settled(4 * SECOND + 1, SECOND) is None
    assert Curve().settled(0, SECOND) is None


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=100), st.data())
def test_a_series_stays_as_it_was_while_the_curve_goes_on(values, data):
    taken_at = data.draw(st.integers(0, len(values)))
    before, curves.POINTS = curves.POINTS, 32
    try:
        curve = Curve()
        for number, value in enumerate(values[:taken_at]):
            curve.add(number, number, value, value, value)
        columns = msgspec.structs.astuple(curve.series())
        copied = [[*column] for column in columns]
        for number, value in enumerate(values[taken_at:], taken_at):
            curve.add(number, number, value, value, value)
    finally:
        curves.POINTS = before

    assert [[*column] for column in columns] == copied
    assert [[*column[-3:]] for column in columns] == [column[-3:] for column in copied]
    assert all(len(column) == len(copied[0]) for column in columns)


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("damaged", [1 << 63, -(1 << 63) - 1])
def test_a_value_that_no_counter_has_is_no_point(place, damaged):
    curve = Curve()
    curve.add(1, 1, 10, 20, 15)
    values = [2, 2, 10, 20, 15]
    values[place] = damaged

    curve.add(*values)
    curve.add(3, 3, 30, 30, 30)

    series = curve.series()
    assert [list(column) for column in (series.since_ns, series.t_ns, series.last)] == [
        *[[1, 3], [1, 3], [15, 30]],
    ]

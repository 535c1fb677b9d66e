"""Slots of the ring become lines; runs of equal short spans become one, true of all of them."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui import records
from gpumem_tui.agent import ring
from gpumem_tui.agent.edges import FEWEST, MOST_WAITING, SHORT_NS, EdgeLines
from gpumem_tui.session.rank import RankModel

MS = 1_000_000


def slot(seq, edge, span, phase="decode", t_ns=0, levels=(None,) * 4, ordinal=0, more=0, parent=0, **changes):
    """One slot; levels are allocated, reserved and their peaks."""
    about = {"exact": True, "thread": 7, "step": span, "error": None} | changes
    return ring.Edge(
        seq, edge, more, phase, "Net", ordinal, about["exact"], span, parent, about["thread"], about["step"],
        t_ns, *levels, about["error"],
    )  # fmt: skip


def spans(count, first=1, took_ns=2 * MS, phase="decode", **changes) -> list[ring.Edge]:
    """So many equal spans in a row, each a byte larger than the one before."""
    found = []
    for number in range(first, first + count):
        at = 10 * MS * number
        begin = slot(2 * number, ring.BEGIN, number, phase, at, (number, 100, None, None))
        levels = (number + 1, 100, number + 5, 100)
        found += [
            begin,
            slot(2 * number + 1, ring.END, number, phase, at + took_ns, levels, **changes),
        ]
    return found


def decoded(lines: Iterable[bytes]) -> list:
    return [records.decode_line(line) for line in lines]


def kinds(lines: Iterable[bytes]) -> list[str]:
    return [type(record).__name__ for record in decoded(lines)]


def test_a_run_of_equal_short_spans_is_one_line_with_its_extents():
    found = decoded(EdgeLines().lines(spans(21)))

    assert [type(record) for record in found] == [records.Begin, records.End, records.Spans]
    assert found[-1] == records.Spans(
        20 * MS, 212 * MS, "decode", "Net", 0, False, 20, 0, (2 * MS,) * 3, (7, 26, 26), (100,) * 3,
        (3, 22, 22), (100,) * 3, inexact=0, seq=43, step=21, thread=7,
    )  # fmt: skip


def test_the_first_span_of_a_phase_stays_whole_for_it_is_the_cold_one():
    lines = EdgeLines()

    assert kinds(lines.lines(spans(FEWEST))) == ["Begin", "End"] * FEWEST
    assert kinds(lines.lines(spans(FEWEST, first=FEWEST + 1))) == ["Spans"]


def test_few_long_or_failed_spans_stay_whole():
    lines = EdgeLines()
    lines.lines(spans(1))

    assert kinds(lines.lines(spans(FEWEST - 1))) == ["Begin", "End"] * (FEWEST - 1)
    assert kinds(lines.lines(spans(30, took_ns=SHORT_NS))) == ["Begin", "End"] * 30
    assert kinds(lines.lines(spans(30, error="KeyError"))) == ["Begin", "End"] * 30


def test_a_protocol_that_wants_every_repeat_has_it():
    lines = EdgeLines(fold=False)

    assert kinds(lines.lines(spans(40))) == ["Begin", "End"] * 40


def test_other_phases_and_spans_within_end_a_run():
    lines = EdgeLines()
    lines.lines(spans(1) + spans(1, phase="eval"))
    outer = [slot(90, ring.BEGIN, 90, "eval", ordinal=-1), slot(300, ring.END, 90, "eval", ordinal=-1)]
    nested = [outer[0], *spans(1, first=50, parent=90), outer[1]]

    assert kinds(lines.lines(spans(9) + spans(9, phase="eval"))) == ["Spans", "Spans"]
    assert kinds(lines.lines(nested)) == ["Begin", "Begin", "End", "End"]


def test_lower_bounds_among_them_are_counted():
    lines = EdgeLines()
    lines.lines(spans(1))

    (folded,) = decoded(lines.lines(spans(9) + spans(3, first=10, exact=False)))

    assert (folded.count, folded.inexact) == (12, 3)


def test_an_edge_whose_slots_come_in_two_drains_is_one_line_with_both_devices():
    lines = EdgeLines()
    first = slot(1, ring.BEGIN, 1, levels=(5, 6, None, None), more=1)
    second = slot(2, ring.BEGIN, 1, levels=(7, 8, None, None), ordinal=1)

    assert lines.lines([first]) == []
    (begin,) = decoded(lines.lines([second]))
    assert begin.levels == [(0, 5, 6), (1, 7, 8)]


def test_edges_that_lost_their_last_slot_are_given_up():
    lines = EdgeLines()
    for number in range(10 * MOST_WAITING):
        assert lines.lines([slot(number, ring.BEGIN, number, levels=(5, 6, None, None), more=1)]) == []

    assert len(lines._waiting) <= MOST_WAITING + 1


@given(st.lists(st.tuples(st.sampled_from(["decode", "eval"]), st.integers(1, 20)), max_size=12), st.data())
def test_folded_or_whole_the_phase_table_counts_the_same(shape, data):
    edges, first = [], 1
    for phase, count in shape:
        edges += spans(count, first=first, phase=phase)
        first += count
    folded, whole = RankModel(1, 1), RankModel(1, 1)
    lines, at = EdgeLines(), 0
    while at < len(edges):
        more = data.draw(st.integers(1, len(edges) - at))
        for record in decoded(lines.lines(edges[at : at + more])):
            folded.take(record)
        at += more
    for edge in edges:
        for record in decoded(EdgeLines().lines([edge])):
            whole.take(record)

    def told(model):
        return [
            (r.phase, r.cold, r.count, r.peak_allocated_bytes, r.end_allocated_bytes, r.exact)
            for r in model.rows()
        ]

    assert told(folded) == told(whole)
    assert (folded.seq, folded.step) == (whole.seq, whole.step)

"""The ledger sums to the whole, tells a reason where a value is missing, and never clamps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.analysis.ledger import Counters, DriverProcess, DriverReading, Term, ledger
from gpumem_tui.records import Reason

GIB = 1 << 30
sizes = st.integers(0, 1 << 40)
maybe = st.none() | sizes


@st.composite
def machines(draw):
    """A device with any mix of known and missing figures."""
    counters = [
        Counters(pid=100 + i, rank=i, t_ns=draw(st.integers(0, 10**10)), allocated_bytes=a, reserved_bytes=r)
        for i, (a, r) in enumerate(draw(st.lists(st.tuples(maybe, maybe), max_size=4)))
    ]
    rows = [
        DriverProcess(pid=pid, used_bytes=used, name="p")
        for pid, used in draw(st.dictionaries(st.integers(98, 110), maybe, max_size=8)).items()
    ]
    driver = DriverReading(
        t_ns=5 * 10**9,
        total_bytes=draw(maybe),
        free_bytes=draw(maybe),
        driver_reserved_bytes=draw(maybe),
        processes_t_ns=draw(st.none() | st.just(5 * 10**9)),
        processes=tuple(rows),
    )
    return driver, counters


@given(machines())
def test_parts_sum_to_the_total_whatever_is_missing(machine):
    driver, counters = machine

    book = ledger(driver, counters)

    if driver.total_bytes is not None and driver.free_bytes is not None:
        assert sum(size for _, size in book.parts()) == driver.total_bytes


@given(machines())
def test_a_missing_reading_is_never_a_value(machine):
    driver, counters = machine

    book = ledger(driver, counters)

    for share, source in zip(book.ranks, counters, strict=True):
        if source.allocated_bytes is None or source.reserved_bytes is None:
            assert share.cached.bytes is None
            assert share.cached.reason is not None
    for other in book.others:
        row = next(r for r in driver.processes if r.pid == other.pid)
        assert other.used.bytes == row.used_bytes
    if driver.free_bytes is None or driver.total_bytes is None:
        assert book.device_used.bytes is None
        assert book.unattributed.bytes is None


def whole(**changes):
    """24 GiB, 8 of which one rank holds, and 6 a stranger."""
    settings = {
        "t_ns": 1_000,
        "total_bytes": 24 * GIB,
        "free_bytes": 9 * GIB,
        "driver_reserved_bytes": GIB,
        "processes_t_ns": 1_000,
        "processes": (DriverProcess(1, 8 * GIB), DriverProcess(2, 6 * GIB, "stranger")),
    }
    return DriverReading(**{**settings, **changes})


OURS = [Counters(pid=1, rank=0, t_ns=1_000, allocated_bytes=5 * GIB, reserved_bytes=7 * GIB)]


def test_with_every_holder_visible_nothing_is_unattributed():
    book = ledger(whole(), OURS)

    assert book.unattributed.bytes == 0
    assert book.merged is None
    assert book.ranks[0].cached.bytes == 2 * GIB
    assert book.ranks[0].outside.bytes == 1 * GIB
    assert [o.used.bytes for o in book.others] == [6 * GIB]


def test_a_hidden_process_is_exactly_what_is_unattributed():
    book = ledger(whole(processes=(DriverProcess(1, 8 * GIB),)), OURS)

    assert book.unattributed.bytes == 6 * GIB


def test_without_per_process_figures_the_unknown_terms_are_one_labelled_term():
    rows = (DriverProcess(1, None), DriverProcess(2, None))

    book = ledger(whole(processes=rows), OURS)

    assert book.ranks[0].outside.reason is Reason.NOT_SUPPORTED
    assert book.unattributed.bytes is None
    assert book.merged is not None
    assert book.merged.bytes == 7 * GIB
    assert "outside PyTorch" in book.merged_label
    assert "other processes" in book.merged_label


def test_a_list_that_is_read_in_part_keeps_its_rows_and_calls_nothing_unattributed():
    book = ledger(whole(processes_reason=Reason.NO_PERMISSION), OURS)

    assert [other.used.bytes for other in book.others] == [6 * GIB]
    assert book.unattributed.bytes is None
    assert book.merged.bytes == 0
    assert book.merged_label == "processes that are not listed + unattributed"


def test_a_process_whose_allocator_cannot_be_read_is_one_term_and_the_rest_still_closes():
    pluggable = [Counters(1, 0, None, None, None, reason=Reason.UNAVAILABLE)]

    book = ledger(whole(), pluggable)

    assert ("used:1", 8 * GIB) in book.parts()
    assert book.ranks[0].outside.reason is Reason.UNAVAILABLE
    assert book.unattributed.bytes == 0


def test_version_one_of_the_driver_call_is_labelled():
    book = ledger(whole(driver_reserved_bytes=None), OURS)

    assert book.device_used.bytes == 15 * GIB
    assert book.device_used.detail == "includes driver-reserved"
    assert book.driver_reserved.bytes is None


def test_outside_may_be_negative_and_is_not_clamped():
    sleeping = [Counters(pid=1, rank=0, t_ns=1_000, allocated_bytes=5 * GIB, reserved_bytes=9 * GIB)]

    assert ledger(whole(), sleeping).ranks[0].outside.bytes == -1 * GIB


def test_a_skew_beyond_the_tolerance_is_shown():
    late = [Counters(pid=1, rank=0, t_ns=2_000_001_000, allocated_bytes=GIB, reserved_bytes=GIB)]

    share = ledger(whole(), late, tolerance_ns=300_000_000).ranks[0]

    assert share.skew_ns == 2_000_000_000
    assert share.skewed


def test_a_lost_device_has_a_reason_in_every_driver_term():
    lost = DriverReading(None, None, None, None, reason=Reason.LOST, processes_reason=Reason.LOST)

    book = ledger(lost, OURS)

    assert book.total.reason is book.free.reason is book.device_used.reason is Reason.LOST
    assert book.ranks[0].used.reason is Reason.LOST
    assert book.ranks[0].allocated.bytes == 5 * GIB


def test_a_term_is_a_value_or_a_reason():
    with pytest.raises(ValueError, match="either bytes or a reason"):
        Term(None)
    with pytest.raises(ValueError, match="either bytes or a reason"):
        Term(1, reason=Reason.LOST)

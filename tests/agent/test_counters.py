"""Random programs over counters of an allocator that is a model: the user sees what they would without us.

The model has what matters of the real one: levels, their peaks, a reset that makes every
peak the level, and private pools that come and go.
"""

import copy
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.agent.counters import Counters
from gpumem_tui.agent.ring import Ring
from gpumem_tui.agent.spans import Spans

NAMES = ("allocated_bytes", "reserved_bytes", "requested_bytes", "inactive_split_bytes")
POOLS = "reserved_bytes_by_private_pools"


class Allocator:
    """Counters of one device, as ``torch._C`` gives them."""

    def __init__(self):
        self.stats = {name: {"all": leaf()} for name in NAMES}
        self.stats["oversize_allocations"] = leaf()
        self.stats[POOLS] = {}
        self.resets = 0

    def add(self, number, size):
        """Change the level of one counter."""
        name = (*NAMES, "oversize_allocations")[number]
        counter = self.stats[name].get("all", self.stats[name])
        change(counter, size)

    def pool(self, number, size):
        """Change what a private pool has reserved; nothing left: it is gone."""
        pools = self.stats[POOLS]
        counter = pools.setdefault((0, number), {"all": leaf()})["all"]
        change(counter, size)
        if not counter["current"]:
            del pools[0, number]

    def read(self, ordinal):
        return copy.deepcopy(self.stats)

    def reset(self, ordinal):
        self.resets += 1
        for counter in leaves(self.stats):
            counter["peak"] = counter["current"]


def leaf():
    return {"current": 0, "peak": 0}


def change(counter, size):
    counter["current"] = max(0, counter["current"] + size)
    counter["peak"] = max(counter["peak"], counter["current"])


def leaves(stats):
    if "peak" in stats:
        return [stats]
    return [found for part in stats.values() for found in leaves(part)]


def monitored(allocator, reset_peaks=True):
    c = SimpleNamespace(_cuda_memoryStats=allocator.read, _cuda_resetPeakMemoryStats=allocator.reset)
    counters = Counters(SimpleNamespace(_C=c), reset_peaks)
    counters.install(SimpleNamespace(_C=c))
    return counters, c


SIZES = st.integers(-3, 3).map(lambda n: n * 512)
PROGRAMS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 4), SIZES),
        st.tuples(st.just("pool"), st.integers(0, 1), SIZES),
        st.sampled_from([("begins",), ("ends",), ("fold",), ("user resets",), ("user reads",)]),
    ),
    max_size=60,
)


@given(program=PROGRAMS)
def test_what_the_user_reads_and_resets_is_what_it_would_be(program):
    ours, theirs = Allocator(), Allocator()
    counters, c = monitored(ours)
    for name, *arguments in [*program, ("user reads",)]:
        if name in ("add", "pool"):
            for allocator in (ours, theirs):
                getattr(allocator, name)(*arguments)
        elif name == "begins":
            counters.begin_anew(0)
        elif name == "ends":
            counters.levels(0)
        elif name == "fold":
            counters.fold()
        elif name == "user resets":
            c._cuda_resetPeakMemoryStats(0)
            theirs.reset(0)
        else:
            assert gone_left_out(c._cuda_memoryStats(0)) == gone_left_out(theirs.read(0))


def gone_left_out(stats):
    """Without private pools: one that comes again begins anew in the allocator, with peaks of its own."""
    return {name: value for name, value in stats.items() if name != POOLS}


@given(
    program=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 1), SIZES),
            st.sampled_from([("begin",), ("end",), ("user resets",), ("fold",)]),
        ),
        max_size=60,
    )
)
def test_the_peaks_of_every_span_are_exact_to_the_byte(tmp_path_factory, program):
    allocator = Allocator()
    counters, c = monitored(allocator)
    ring = Ring(str(tmp_path_factory.mktemp("ring") / "r"), 1, 1)
    spans = Spans(
        ring, SimpleNamespace(readable=(0,), active=(0,)), counters.levels, counters.begin_anew, True
    )
    counters.on_user_reset = spans.keep_peaks
    open_, told = [], []

    def levels():
        return [allocator.stats[name]["all"]["current"] for name in NAMES[:2]]

    for name, *arguments in [*program, *[("end",)] * 60]:
        if name == "add":
            allocator.add(*arguments)
            for _, peaks in open_:
                peaks[:] = map(max, peaks, levels())
        elif name == "begin":
            open_.append((spans.begin("phase", ""), levels()))
        elif name == "end" and open_:
            span, peaks = open_.pop()
            spans.end(span, None)
            told.append((span.id, *peaks))
        elif name == "user resets":
            c._cuda_resetPeakMemoryStats(0)
        elif name == "fold":
            counters.fold()
    ends = [edge for edge in ring.drain() if edge.peak_allocated_bytes is not None]
    ring.close()

    assert [(e.span, e.peak_allocated_bytes, e.peak_reserved_bytes) for e in ends] == told
    assert all(edge.exact for edge in ends)


def test_a_span_whose_begin_could_not_be_read_has_no_exact_peak(tmp_path):
    allocator = Allocator()
    counters, _ = monitored(allocator)
    ring, reading = Ring(str(tmp_path / "r"), 1, 1), SimpleNamespace(readable=(), active=(0,))
    spans = Spans(ring, reading, counters.levels, counters.begin_anew, True)
    allocator.add(0, 1024)
    allocator.add(0, -1024)

    span = spans.begin("within a pool of the user's", "")
    reading.readable = (0,)
    spans.end(span, None)
    begin, end = ring.drain()
    ring.close()

    assert begin.allocated_bytes is None
    assert not end.exact


def test_a_begin_at_which_both_counters_stand_at_their_peaks_resets_nothing():
    allocator = Allocator()
    counters, _ = monitored(allocator)
    allocator.add(0, 1024)

    counters.begin_anew(0)
    assert allocator.resets == 0

    allocator.add(0, -512)
    counters.begin_anew(0)
    assert allocator.resets == 1


def test_without_resets_the_allocator_s_peaks_are_left_alone():
    allocator = Allocator()
    counters, _ = monitored(allocator, reset_peaks=False)
    allocator.add(0, 1024)
    allocator.add(0, -512)

    levels = counters.begin_anew(0)

    assert levels == (512, 0, 1024, 0)
    assert allocator.resets == 0


def test_a_peak_that_comes_again_after_the_user_s_reset_is_carried_again():
    allocator = Allocator()
    counters, c = monitored(allocator)

    def spike():
        allocator.add(0, 1024)
        allocator.add(0, -1024)
        counters.begin_anew(0)

    spike()
    c._cuda_resetPeakMemoryStats(0)
    spike()

    assert c._cuda_memoryStats(0)["allocated_bytes"]["all"]["peak"] == 1024

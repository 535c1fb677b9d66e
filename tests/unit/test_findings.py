"""What the figures of a failure say: one verdict where one explanation is left, otherwise "unknown"."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.analysis.findings import (
    Amount,
    Kind,
    Neighbour,
    Situation,
    Strength,
    Verdict,
    diagnose,
)
from gpumem_tui.units import GIB, MIB

SUPPORTED, POSSIBLE, UNDECIDED = Strength.SUPPORTED, Strength.POSSIBLE, Strength.UNDECIDED


def gib(number):
    """An amount as a message prints it: two decimals of a GiB."""
    half = GIB // 200
    middle = round(number * GIB)
    return Amount(max(0, middle - half), middle + half, "message", f"{number:.2f} GiB")


def failure(kind=Kind.ALLOCATOR, neighbours=(), **figures):
    """A failure of the device allocator with figures in GiB."""
    plain = {n: v for n, v in figures.items() if not isinstance(v, int | float) or isinstance(v, bool)}
    amounts = {n: gib(v) for n, v in figures.items() if n not in plain}
    listed = tuple(Neighbour(pid, None if used is None else gib(used)) for pid, used in neighbours)
    return Situation(kind=kind, neighbours=listed, self_listed="own" in figures, **plain, **amounts)


def verdicts(situation):
    return [(f.verdict, f.strength) for f in diagnose(situation)]


def first(situation):
    return verdicts(situation)[0]


CARD = {"total": 23.65, "hint": "expandable_segments"}

CASES = {
    "live tensors and the request are more than the card": (
        failure(**CARD, requested=6.2, free=1.1, allocated=21.0, idle=0.4, own=22.4),
        (Verdict.CAPACITY, SUPPORTED),
    ),
    "one request larger than the card": (
        failure(**CARD, requested=31.0, free=22.9, allocated=0.2, idle=0.0, own=0.7),
        (Verdict.CAPACITY, SUPPORTED),
    ),
    "a small request on a card full of live tensors": (
        failure(**CARD, requested=0.02, free=0.01, allocated=22.5, idle=0.3, own=23.6),
        (Verdict.CAPACITY, SUPPORTED),
    ),
    "another process holds half of the card": (
        failure(**CARD, requested=2.5, free=0.6, allocated=9.1, idle=0.3, own=9.9, neighbours=[(91, 13.1)]),
        (Verdict.OTHER_PROCESS, SUPPORTED),
    ),
    "idle memory in pieces": (
        failure(**CARD, requested=4.0, free=0.9, allocated=12.2, idle=9.6, own=22.7),
        (Verdict.FRAGMENTATION, SUPPORTED),
    ),
    "gigabytes of this process outside PyTorch": (
        failure(**CARD, requested=2.0, free=0.4, allocated=14.1, idle=0.5, own=23.2),
        (Verdict.OUTSIDE_PYTORCH, SUPPORTED),
    ),
    "a cap, with free memory on the card": (
        failure(total=79.1, requested=3.0, free=73.9, allocated=4.2, idle=0.4, cap=5.0, own=5.1),
        (Verdict.CAP, SUPPORTED),
    ),
    "rejected in advance": (failure(Kind.REJECTED, requested=5.6), (Verdict.CAP, SUPPORTED)),
    "free is larger than the request": (
        failure(**CARD, requested=2.0, free=11.0, allocated=11.1, idle=0.6, own=12.4),
        (Verdict.FREE_NOT_USABLE, UNDECIDED),
    ),
    "MPS at its limit": (
        failure(Kind.MPS, requested=0.6, allocated=16.5, other_allocations=1.3, cap=18.1),
        (Verdict.CAP, SUPPORTED),
    ),
    "XPU, which prints no free": (
        failure(requested=1.7, total=15.9, allocated=14.9, idle=0.3),
        (Verdict.CAPACITY, SUPPORTED),
    ),
    "private pools that hold much": (
        failure(**CARD, requested=2.0, free=0.3, allocated=20.0, private_pools=6.0, idle=0.6, own=22.9),
        (Verdict.PRIVATE_POOLS, POSSIBLE),
    ),
    # near misses and mixtures: no confident verdict
    "idle memory and a neighbour would each do": (
        failure(**CARD, requested=3.0, free=0.5, allocated=6.0, idle=6.0, own=12.5, neighbours=[(91, 10.6)]),
        (Verdict.UNKNOWN, UNDECIDED),
    ),
    "outside memory and a neighbour would each do": (
        failure(**CARD, requested=2.0, free=0.4, allocated=9.5, idle=0.4, own=15.0, neighbours=[(91, 8.2)]),
        (Verdict.UNKNOWN, UNDECIDED),
    ),
    "idle memory and outside memory would each do": (
        failure(**CARD, requested=3.0, free=0.4, allocated=10.0, idle=5.0, own=23.2),
        (Verdict.UNKNOWN, UNDECIDED),
    ),
    "several shares, none of which would do alone": (
        failure(**CARD, requested=6.0, free=0.5, allocated=12.0, idle=3.0, own=17.0, neighbours=[(91, 4.0)]),
        (Verdict.UNKNOWN, UNDECIDED),
    ),
    "an old message that names no holders": (
        failure(**CARD, requested=2.0, free=0.4, allocated=9.5, reserved=10.0),
        (Verdict.UNKNOWN, UNDECIDED),
    ),
    "a driver that gives no figures": (
        failure(**CARD, requested=2.0, free=0.4, allocated=9.5, idle=0.5, neighbours=[(5, None), (6, None)]),
        (Verdict.UNKNOWN, UNDECIDED),
    ),
    "nothing but the request": (failure(requested=2.0), (Verdict.UNKNOWN, UNDECIDED)),
    "nothing at all": (failure(), (Verdict.UNKNOWN, UNDECIDED)),
    "more allocated than the card has": (
        failure(total=8.0, requested=1.0, free=0.0, allocated=13.0, idle=0.5),
        (Verdict.UNKNOWN, UNDECIDED),
    ),
    "more free than the card has": (
        failure(total=4.0, requested=5.0, free=9.0, allocated=0.5, idle=0.0),
        (Verdict.UNKNOWN, UNDECIDED),
    ),
    "cudaMallocAsync, whose pool is not printed": (
        failure(requested=3.0, total=15.8, free=1.4, allocated=9.0),
        (Verdict.UNKNOWN, UNDECIDED),
    ),
    "an assertion in place of the message": (failure(Kind.NVML_ASSERT), (Verdict.UNKNOWN, UNDECIDED)),
    "a library that may have lacked memory": (
        failure(Kind.OUTSIDE, certain=False, call="CUBLAS_STATUS_NOT_INITIALIZED"),
        (Verdict.UNKNOWN, UNDECIDED),
    ),
    "killed by nobody named": (failure(Kind.HOST_KILL, certain=False), (Verdict.UNKNOWN, UNDECIDED)),
    # elsewhere
    "NCCL got nothing": (failure(Kind.OUTSIDE, call="NCCL"), (Verdict.OUTSIDE_PYTORCH, SUPPORTED)),
    "killed by the kernel": (failure(Kind.HOST_KILL, call="31.0"), (Verdict.HOST_MEMORY, SUPPORTED)),
    "bad_alloc": (failure(Kind.HOST_ALLOCATION), (Verdict.HOST_MEMORY, SUPPORTED)),
    "bus error": (failure(Kind.SHARED_MEMORY), (Verdict.SHARED_MEMORY, SUPPORTED)),
    "more than an exabyte": (failure(Kind.IMPOSSIBLE), (Verdict.IMPOSSIBLE_SIZE, SUPPORTED)),
    "pressure": (failure(Kind.PRESSURE, pressure_count=3), (Verdict.PRESSURE, SUPPORTED)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_first_verdict(name):
    situation, expected = CASES[name]

    assert first(situation) == expected


@pytest.mark.parametrize("name", CASES)
def test_an_unknown_says_what_is_missing_and_every_verdict_how_to_check(name):
    leading = diagnose(CASES[name][0])[0]

    assert leading.check or leading.verdict is Verdict.IMPOSSIBLE_SIZE
    assert leading.headline
    if leading.strength is UNDECIDED:
        assert leading.missing


def test_a_request_that_prints_like_free_is_no_contradiction():
    findings = diagnose(failure(total=16.0, requested=6.05, free=6.05, allocated=9.0, idle=0.2, own=9.8))

    assert findings[0].verdict is not Verdict.FREE_NOT_USABLE
    assert any(e.source == "rounding" for e in findings[0].evidence)


def test_in_a_container_this_process_is_not_taken_for_another():
    container = failure(**CARD, requested=2.0, free=0.6, allocated=21.9, idle=0.4, neighbours=[(4242, 22.9)])
    findings = diagnose(container)

    assert findings[0].verdict is Verdict.CAPACITY
    assert any("4242" in e.says and "container" in e.says for e in findings[0].evidence)


def test_in_a_container_beside_a_real_neighbour_each_gets_its_own_figure():
    container = failure(
        **CARD, requested=2.0, free=0.5, allocated=8.8, idle=0.2, neighbours=[(10, 13.4), (4242, 9.6)]
    )
    findings = diagnose(container)

    assert findings[0].verdict is Verdict.OTHER_PROCESS
    assert any("process 10 holds" in e.says for e in findings[0].evidence)
    assert not any("process 4242 holds" in e.says for e in findings[0].evidence)


def test_two_listed_processes_that_may_both_be_this_one_leave_it_open():
    both = failure(
        **CARD, requested=2.0, free=0.4, allocated=10.6, idle=0.2, neighbours=[(1, 11.4), (2, 11.5)]
    )

    assert first(both) == (Verdict.UNKNOWN, UNDECIDED)


def test_a_small_neighbour_is_not_blamed_for_a_full_card():
    display = failure(
        **CARD, requested=0.02, free=0.01, allocated=22.2, idle=0.2, own=23.2, neighbours=[(900, 0.4)]
    )

    assert verdicts(display) == [(Verdict.CAPACITY, SUPPORTED)]


def test_many_processes_of_one_size_are_said_beside_the_verdict():
    strays = failure(
        **CARD, requested=1.0, free=0.3, allocated=10.0, idle=0.2, own=11.0,
        neighbours=[(n, 1.19) for n in range(100, 110)],
    )  # fmt: skip

    assert (Verdict.SAME_SIZE_PROCESSES, POSSIBLE) in verdicts(strays)
    assert first(strays) == (Verdict.OTHER_PROCESS, SUPPORTED)


@pytest.mark.parametrize(
    ("idle", "says"), [(9.6, "may help"), (0.3, "could not have helped"), (1.9, "could not have helped")]
)
def test_the_hint_is_judged_by_the_figures(idle, says):
    findings = diagnose(failure(**CARD, requested=4.0, free=0.9, allocated=22.0 - idle, idle=idle, own=22.7))

    assert any(says in e.says for f in findings for e in f.evidence)


@pytest.mark.parametrize(
    ("phase", "verdict"), [("eval", Verdict.EVALUATION), ("load", Verdict.LOAD), ("backward", None)]
)
def test_a_phase_adds_what_it_makes_possible_and_never_leads(phase, verdict):
    full = failure(**CARD, requested=6.2, free=1.1, allocated=21.0, idle=0.4, own=22.4, phase=phase)
    rest = verdicts(full)[1:]

    assert first(full) == (Verdict.CAPACITY, SUPPORTED)
    assert rest == ([(verdict, POSSIBLE)] if verdict else [])


def test_optimizer_state_is_possible_where_the_traceback_was_making_it():
    full = failure(
        **CARD,
        requested=0.2,
        free=0.1,
        allocated=22.9,
        idle=0.1,
        own=23.5,
        phase="optimizer",
        first_optimizer_step=True,
    )

    assert (Verdict.OPTIMIZER_STATE, POSSIBLE) in verdicts(full)


@pytest.mark.parametrize("name", CASES)
def test_no_finding_recommends_what_is_done_by_reflex(name):
    words = repr(diagnose(CASES[name][0]))

    assert "empty_cache" not in words
    assert "gc.collect" not in words


FIGURES = ("requested", "total", "free", "allocated", "idle", "reserved", "private_pools", "cap", "own")
amounts = st.one_of(st.none(), st.floats(0, 100).map(gib))


@given(
    kind=st.sampled_from(Kind),
    certain=st.booleans(),
    figures=st.fixed_dictionaries(
        dict.fromkeys(
            ("requested", "total", "free", "allocated", "idle", "reserved", "private_pools", "cap", "own"),
            amounts,
        )
    ),
    listed=st.lists(st.tuples(st.integers(1, 99), amounts), max_size=4, unique_by=lambda row: row[0]),
    phase=st.sampled_from([None, "load", "forward", "backward", "optimizer", "eval"]),
)
def test_whatever_is_known_the_findings_are_sound(kind, certain, figures, listed, phase):
    situation = Situation(
        kind=kind,
        certain=certain,
        phase=phase,
        neighbours=tuple(Neighbour(pid, used) for pid, used in listed),
        self_listed=figures["own"] is not None,
        **figures,
    )
    findings = diagnose(situation)
    leading = findings[0]

    assert (leading.verdict is Verdict.UNKNOWN) <= (leading.strength is UNDECIDED)
    assert sum(f.strength is SUPPORTED for f in findings) <= 1
    if leading.verdict in (Verdict.CAPACITY, Verdict.FRAGMENTATION, Verdict.OTHER_PROCESS):
        assert situation.requested is not None
        assert situation.free is None or not situation.free.certainly_at_least(situation.requested)
    if leading.verdict is Verdict.FRAGMENTATION:
        assert situation.idle is not None or situation.reserved is not None


@given(low=st.integers(0, GIB), width=st.integers(0, MIB), other=st.integers(0, GIB))
def test_certainty_never_comes_from_overlapping_bounds(low, width, other):
    one, two = Amount(low, low + width, "a"), Amount(other, other + width, "b")

    assert not (one.certainly_at_least(two) and one.certainly_below(two))
    assert one.certainly_below(two) <= (low < other)
    assert one.certainly_at_least(two) <= (low >= other)

"""Diagnosis over recordings: two causes at once, near misses, ends without memory, and what always holds."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.analysis.findings import (
    Amount,
    Growth,
    Holes,
    Host,
    Kept,
    Kind,
    Neighbour,
    Situation,
    Strength,
    Training,
    Trend,
    Verdict,
    Who,
    diagnose,
)
from gpumem_tui.units import GIB

SUPPORTED, POSSIBLE, UNDECIDED = Strength.SUPPORTED, Strength.POSSIBLE, Strength.UNDECIDED


def gib(number):
    return Amount.exact(round(number * GIB), "recording")


def recorded(**changes):
    """A training on a 24 GiB card whose 2 GiB request failed: 20 GiB live, 0.5 GiB context, 1 GiB free."""
    figures = {"requested": 2, "total": 24, "free": 1, "allocated": 20, "reserved": 22.5, "own": 23}
    figures |= {name: changes.pop(name) for name in figures if name in changes}
    amounts = {name: gib(value) if value is not None else None for name, value in figures.items()}
    base = Situation(
        kind=Kind.ALLOCATOR, recorded=True, self_listed=True, unlisted=gib(0), phase="forward", **amounts
    )
    return msgspec.structs.replace(base, **changes)


def other(used, grew=None, who=Who.STRANGER, pid=71, seconds=10.0):
    growth = Growth(gib(grew), seconds) if grew is not None else None
    return Neighbour(pid, gib(used), "python", who, 3 if who in (Who.RANK, Who.STRAY) else None, growth)


def holes(largest, idle, private=0.0, expandable=False, streams=0.0):
    return Holes(
        gib(largest), gib(idle), gib(streams), gib(private), gib(streams), 2 if streams else 1, expandable
    )


def growing(grown, units=40, steady=True, unit="step"):
    return Trend(unit, round(grown * GIB / units), units, gib(grown), steady)


def first(situation):
    found = diagnose(situation)[0]
    return found.verdict, found.strength


def verdicts(situation):
    return [(f.verdict, f.strength) for f in diagnose(situation)]


LEAK = growing(8)
NEIGHBOUR = {"allocated": 14, "reserved": 14.2, "own": 14.7, "free": 1.3}

SINGLE = {
    "a neighbour that grew": (
        recorded(**NEIGHBOUR, neighbours=(other(8, grew=6),)),
        Verdict.OTHER_PROCESS,
    ),
    "a neighbour that was there all the time": (
        recorded(**NEIGHBOUR, neighbours=(other(8),)),
        Verdict.OTHER_PROCESS,
    ),
    "processes left behind": (
        recorded(**NEIGHBOUR, neighbours=(other(4, who=Who.ORPHAN), other(4, who=Who.ORPHAN, pid=72))),
        Verdict.ORPHANS,
    ),
    "ranks that share the card": (
        recorded(**NEIGHBOUR, neighbours=(other(8, who=Who.RANK),)),
        Verdict.RANKS_ON_ONE_CARD,
    ),
    "contexts that strayed": (
        recorded(
            allocated=19,
            reserved=19,
            own=19.5,
            free=1,
            neighbours=tuple(other(0.5, who=Who.STRAY, pid=80 + n) for n in range(7)),
        ),
        Verdict.STRAY_CONTEXTS,
    ),
    "memory that nobody is listed for": (
        recorded(**NEIGHBOUR, unlisted=gib(8)),
        Verdict.UNLISTED,
    ),
    "memory outside PyTorch that came with a phase": (
        recorded(allocated=16, reserved=16.2, own=22.7, outside_growth=Growth(gib(6), 30, "phase rollout")),
        Verdict.OUTSIDE_PYTORCH,
    ),
    "idle memory in pieces": (
        recorded(allocated=14, reserved=22.5, holes=holes(1.5, 8)),
        Verdict.FRAGMENTATION,
    ),
    "idle memory in the pools of another stream": (
        recorded(allocated=14, reserved=22.5, holes=holes(0.1, 0.1, streams=8)),
        Verdict.FRAGMENTATION,
    ),
    "idle memory in private pools": (
        recorded(allocated=14, reserved=22.5, holes=holes(0.1, 0.5, private=8)),
        Verdict.PRIVATE_POOLS,
    ),
    "an attempt that failed and is still there": (
        recorded(reserved=22, kept=Kept(gib(8), 12.0, "forward")),
        Verdict.KEPT,
    ),
    "weights and copies of them": (
        recorded(reserved=22, phase=None, training=Training(steps=0, parameters=gib(7))),
        Verdict.LOAD,
    ),
    "growth per step": (recorded(reserved=22, trend=LEAK), Verdict.GROWTH),
    "an evaluation that keeps its outputs": (
        recorded(reserved=22, phase="eval", eval_trend=growing(9, 30, unit="batch")),
        Verdict.EVALUATION,
    ),
    "an evaluation that needs more than training": (
        recorded(reserved=22, phase="eval", training=Training(steps=9, training_peak=gib(12))),
        Verdict.EVALUATION,
    ),
    "a fraction of the card": (recorded(free=12, allocated=5, reserved=5.5, own=6, cap=gib(6)), Verdict.CAP),
    "loading": (
        recorded(reserved=22, phase="load", training=Training(steps=0)),
        Verdict.LOAD,
    ),
    "the first optimizer step": (
        recorded(
            reserved=22,
            phase="optimizer",
            training=Training(steps=1, optimizer_stepped=False, makes_state=True),
        ),
        Verdict.OPTIMIZER_STATE,
    ),
    "live tensors": (recorded(reserved=22), Verdict.CAPACITY),
    "a request as large as the card": (
        recorded(requested=25, free=23, allocated=0.2, reserved=0.3, own=0.8),
        Verdict.CAPACITY,
    ),
}


@pytest.mark.parametrize("name", SINGLE)
def test_one_cause_is_the_verdict_and_the_only_one_supported(name):
    situation, verdict = SINGLE[name]

    assert first(situation) == (verdict, SUPPORTED)
    assert sum(strength is SUPPORTED for _, strength in verdicts(situation)) == 1


COMBINED = {
    "a neighbour grew, and so did every step": (
        recorded(allocated=15, reserved=15.4, own=16, free=1, neighbours=(other(7, grew=6),), trend=LEAK),
        {Verdict.OTHER_PROCESS, Verdict.GROWTH},
    ),
    "a neighbour grew, and memory lies in pieces": (
        recorded(
            allocated=10, reserved=16, own=16.5, free=1.2, neighbours=(other(6, grew=5),), holes=holes(0.5, 6)
        ),
        {Verdict.OTHER_PROCESS, Verdict.FRAGMENTATION},
    ),
    "every step grew, and memory lies in pieces": (
        recorded(allocated=14, reserved=22.5, trend=LEAK, holes=holes(0.5, 8)),
        {Verdict.GROWTH, Verdict.FRAGMENTATION},
    ),
    "a library grew in a phase, and a neighbour did": (
        recorded(
            allocated=10,
            reserved=10.2,
            own=16,
            free=1,
            outside_growth=Growth(gib(5), 9, "phase rollout"),
            neighbours=(other(7, grew=7),),
        ),
        {Verdict.OUTSIDE_PYTORCH, Verdict.OTHER_PROCESS},
    ),
    "ranks share the card, and somebody who is not listed holds as much": (
        recorded(
            allocated=8, reserved=8.2, own=8.7, free=1, neighbours=(other(7, who=Who.RANK),), unlisted=gib(7)
        ),
        {Verdict.RANKS_ON_ONE_CARD, Verdict.UNLISTED},
    ),
    "an evaluation keeps its outputs, and a neighbour came": (
        recorded(
            allocated=15,
            reserved=15.4,
            own=16,
            free=1,
            phase="eval",
            eval_trend=growing(9, 30, unit="batch"),
            neighbours=(other(7, grew=7),),
        ),
        {Verdict.EVALUATION, Verdict.OTHER_PROCESS},
    ),
}


@pytest.mark.parametrize("name", COMBINED)
def test_two_causes_of_which_each_would_do_are_both_named_and_none_is_preferred(name):
    situation, causes = COMBINED[name]
    findings = diagnose(situation)

    assert first(situation) == (Verdict.UNKNOWN, UNDECIDED)
    assert {f.verdict for f in findings[1:] if f.strength is POSSIBLE} >= causes
    assert all(cause.value in findings[0].headline for cause in causes)
    assert findings[0].trial is not None
    assert findings[0].missing


FULL_OF_SHARES = {"allocated": 9, "reserved": 11, "own": 12.8, "free": 1.5, "requested": 2.5}

NEAR_MISSES = {
    "a neighbour grew, and not enough to matter": recorded(
        **FULL_OF_SHARES,
        unlisted=gib(2),
        neighbours=(other(2.3, 0.4), other(2.3, pid=72, who=Who.ORPHAN), other(2.3, pid=73, who=Who.STRAY)),
    ),
    "every step grew, for three steps": recorded(**FULL_OF_SHARES, trend=growing(3, 3)),
    "every step grew now and then": recorded(**FULL_OF_SHARES, trend=growing(4, 40, steady=False)),
    "memory outside PyTorch grew by a hundredth of the card": recorded(
        **FULL_OF_SHARES, outside_growth=Growth(gib(0.3), 5, "phase rollout")
    ),
    "a hole would have been large enough": recorded(
        allocated=12, reserved=20, own=20.5, free=1.5, holes=holes(3, 8)
    ),
    "as much was free as was asked": recorded(free=2.5, allocated=12, reserved=12.4, own=13),
    "the card was full and nobody says of whom": recorded(
        allocated=9,
        reserved=9.4,
        own=None,
        free=1,
        self_listed=False,
        unlisted=None,
        list_reason="no permission",
    ),
    "the counters could not be read": recorded(allocated=None, reserved=None),
    "the first optimizer step failed in a temporary, on a card that others fill": recorded(
        **FULL_OF_SHARES,
        phase="optimizer",
        training=Training(steps=1, optimizer_stepped=False, makes_state=False),
    ),
    "an evaluation failed as large as training, and nothing grew": recorded(
        **FULL_OF_SHARES,
        phase="eval",
        training=Training(steps=9, training_peak=gib(12)),
    ),
    "a library could not start while half of the card was free": Situation(
        kind=Kind.OUTSIDE,
        recorded=True,
        certain=False,
        call="cublasCreate(handle)",
        free=gib(12),
        total=gib(24),
    ),
    "killed, and the cgroup counted no kill": Situation(
        kind=Kind.HOST_KILL, recorded=True, error="killed by SIGKILL", host=Host(kills=0)
    ),
    "ended by a signal that nobody explains": Situation(
        kind=Kind.SIGNAL, recorded=True, error="killed by SIGTERM"
    ),
    "more is live than the card has": recorded(allocated=30, reserved=31),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_is_unknown_and_says_what_would_decide(name):
    findings = diagnose(NEAR_MISSES[name])
    leading = findings[0]

    assert leading.verdict is Verdict.UNKNOWN or leading.verdict is Verdict.FREE_NOT_USABLE
    assert leading.strength is UNDECIDED
    assert leading.check
    assert leading.missing
    assert not any(f.strength is SUPPORTED for f in findings)


def test_what_changed_leads_over_what_was_so_all_the_time():
    both = recorded(
        allocated=14,
        reserved=14.4,
        own=15,
        free=1,
        trend=growing(9),
        neighbours=(other(8, who=Who.STRANGER),),
    )

    assert verdicts(both)[:2] == [(Verdict.GROWTH, SUPPORTED), (Verdict.OTHER_PROCESS, POSSIBLE)]


def test_a_need_is_not_blamed_where_a_neighbour_has_the_room():
    step = Training(steps=1, optimizer_stepped=False, makes_state=True)
    crowded = recorded(**NEIGHBOUR, neighbours=(other(8),), phase="optimizer", training=step)

    assert verdicts(crowded)[:2] == [(Verdict.OTHER_PROCESS, SUPPORTED), (Verdict.OPTIMIZER_STATE, POSSIBLE)]


def test_expandable_segments_are_proposed_only_where_they_can_help():
    pieces = SINGLE["idle memory in pieces"][0]
    on = msgspec.structs.replace(pieces, holes=holes(1.5, 8, expandable=True))

    assert "expandable_segments:True" in diagnose(pieces)[0].trial
    assert "expandable" not in diagnose(on)[0].trial
    assert any(
        "could not have helped" in e.says for e in diagnose(recorded(holes=holes(0.1, 0.5)))[0].evidence
    )


def test_segments_that_expand_already_are_not_proposed_for_another_stream_s_idle_memory():
    elsewhere = holes(0, 0, streams=8, expandable=True)
    finding = diagnose(recorded(allocated=14, reserved=22.5, holes=elsewhere))[0]

    assert finding.verdict is Verdict.FRAGMENTATION
    assert "one stream" in finding.trial


@pytest.mark.parametrize(
    ("captures", "made", "trial"),
    [
        (5, 0, "one pool"),
        (1, 0, "without graph capture"),
        (0, 1, "no MemPool"),
        (2, 1, "without graph capture"),
    ],
)
def test_the_trial_for_private_pools_is_by_whose_they_are(captures, made, trial):
    idle = msgspec.structs.replace(holes(0.1, 0.5, private=8), captures=captures, made_pools=made)
    finding = diagnose(recorded(allocated=14, reserved=22.5, holes=idle))[0]

    assert (finding.verdict, trial in finding.trial) == (Verdict.PRIVATE_POOLS, True)


def test_a_request_of_many_cards_is_not_answered_with_half_a_batch():
    finding = diagnose(recorded(requested=256, free=20, allocated=3, reserved=3.2, own=3.7))[0]

    assert finding.verdict is Verdict.CAPACITY
    assert "11 times smaller" in finding.trial


def test_an_optimizer_that_steps_all_parameters_at_once_may_step_them_one_by_one():
    stepping = recorded(reserved=22, phase="optimizer", training=Training(steps=3, for_each=True))

    assert "foreach=False" in diagnose(stepping)[0].trial


def test_an_evaluation_that_keeps_more_than_one_tensor_a_batch_keeps_a_graph():
    kept = growing(9, 9, unit="batch")
    small = Training(largest_other=gib(0.1), live_other=gib(9))
    one = Training(largest_other=gib(0.9), live_other=gib(9))
    graph = diagnose(recorded(reserved=22, phase="eval", eval_trend=kept, training=small))[0]
    outputs = diagnose(recorded(reserved=22, phase="eval", eval_trend=kept, training=one))[0]

    assert "inference_mode" in graph.trial
    assert "outputs.cpu()" in outputs.trial


def test_an_evaluation_that_gave_part_back_is_not_said_to_have_kept_more_than_there_is():
    growth = growing(22, 46, unit="batch")
    finding = diagnose(
        recorded(requested=12, allocated=12, reserved=12.5, free=11, phase="eval", eval_trend=growth)
    )[0]

    assert "had more live at the end of each batch, by" in finding.headline


def test_loading_after_work_had_begun_is_not_said_to_be_before_any_step():
    again = recorded(reserved=22, phase="load", training=Training(steps=3, computed=True))

    assert all("before any step" not in finding.headline for finding in diagnose(again))


def test_pieces_of_a_twentieth_of_a_large_card_lead_where_they_are_twice_the_request():
    large = recorded(total=80, free=0.5, allocated=72, reserved=78.5, own=79.2, requested=2)

    assert first(msgspec.structs.replace(large, holes=holes(1.5, 6.4))) == (Verdict.FRAGMENTATION, SUPPORTED)
    assert first(msgspec.structs.replace(large, holes=holes(1.5, 2.4))) == (Verdict.CAPACITY, SUPPORTED)


def test_what_brought_a_process_to_its_cap_is_said_behind_the_cap():
    capped = recorded(free=12, allocated=5.4, reserved=5.5, own=6, cap=gib(6), trend=growing(4))

    assert verdicts(capped) == [(Verdict.CAP, SUPPORTED), (Verdict.GROWTH, POSSIBLE)]


def test_ranks_that_share_the_only_card_are_not_sent_to_another_one():
    shared = SINGLE["ranks that share the card"][0]
    astray = msgspec.structs.replace(shared, free_elsewhere=3)

    assert "set_device" in diagnose(astray)[0].trial
    assert "set_device" not in diagnose(shared)[0].trial
    assert "meant to share" in diagnose(shared)[0].check


def test_an_optimizer_that_is_made_late_makes_its_state_late():
    late = Training(steps=90, optimizer_stepped=True, makes_state=True)
    leading = diagnose(recorded(reserved=22, phase="optimizer", training=late))[0]

    assert (leading.verdict, leading.strength) == (Verdict.OPTIMIZER_STATE, SUPPORTED)
    assert leading.headline.startswith("this optimizer's first step")


def test_an_error_soon_after_a_caught_failure_is_not_called_foreign_to_memory():
    error = Situation(kind=Kind.EXCEPTION, recorded=True, error="RuntimeError: no batch size fits")
    soon = msgspec.structs.replace(error, caught_seconds=0.2)

    assert first(error) == (Verdict.NOT_MEMORY, SUPPORTED)
    assert first(soon) == (Verdict.UNKNOWN, UNDECIDED)
    assert diagnose(soon)[0].missing


def test_growth_that_is_one_tensor_may_be_an_input_and_says_so():
    kept = SINGLE["growth per step"][0]
    one = msgspec.structs.replace(kept, training=Training(steps=40, largest_other=gib(5)))
    leading = diagnose(one)[0]

    assert first(one) == (Verdict.GROWTH, SUPPORTED)
    assert "an input that grows, or one that is appended to" in leading.headline
    assert "fixed size" in leading.trial
    assert "keeps something" not in leading.headline


def test_an_evaluation_that_keeps_its_outputs_may_fail_between_two_calls():
    between = recorded(reserved=22, phase=None, eval_trend=growing(9, 30, unit="batch"))
    pieces = msgspec.structs.replace(between, allocated=gib(14), reserved=gib(22.5), holes=holes(1.5, 8))

    assert first(between) == (Verdict.EVALUATION, SUPPORTED)
    assert first(pieces) == (Verdict.UNKNOWN, UNDECIDED)


def test_a_cache_that_grows_in_an_evaluation_is_not_called_kept_outputs():
    kept = SINGLE["an evaluation that keeps its outputs"][0]
    cache = msgspec.structs.replace(kept, training=Training(kv_cache=gib(6)))

    assert "outputs" in diagnose(kept)[0].headline
    assert "KV cache that grows" in diagnose(cache)[0].headline
    assert "outputs" not in diagnose(cache)[0].trial


def test_growth_says_how_much_a_step_and_over_how_many():
    headline = diagnose(SINGLE["growth per step"][0])[0].headline

    assert "205 MiB a step" in headline
    assert "8.00 GiB over the last 40 steps" in headline


def test_memory_that_pytorch_keeps_idle_is_named_where_a_library_finds_none():
    starved = Situation(
        kind=Kind.OUTSIDE,
        recorded=True,
        call="cublasCreate(handle)",
        free=gib(0.1),
        total=gib(24),
        allocated=gib(10),
        idle=gib(12),
    )

    assert first(starved) == (Verdict.RESERVED_IDLE, SUPPORTED)


def test_a_library_that_asked_for_more_than_was_free_found_too_little_however_much_that_was():
    asked = Situation(
        kind=Kind.OUTSIDE, recorded=True, call="CuPy", requested=gib(13), free=gib(12), total=gib(24)
    )
    (finding, *_) = diagnose(asked)

    assert (finding.verdict, finding.strength) == (Verdict.OUTSIDE_PYTORCH, SUPPORTED)
    assert "which asked for 13.0 GiB" in finding.headline


def test_a_driver_that_said_out_of_memory_beside_much_free_is_not_called_foreign_to_memory():
    (finding, *_) = diagnose(
        Situation(kind=Kind.OUTSIDE, recorded=True, certain=True, free=gib(12), total=gib(24))
    )

    assert finding.verdict is Verdict.UNKNOWN
    assert "it asked for more than that at once, or memory is not the reason" in finding.headline


@pytest.mark.parametrize("kind", [Kind.EXCEPTION, Kind.SIGNAL, Kind.SILENCE])
def test_who_ends_after_another_rank_is_a_victim(kind):
    victim = Situation(kind=kind, recorded=True, error="SIGTERM", first_rank="rank 1", first_seconds=2.5)
    (finding,) = diagnose(victim)

    assert finding.verdict is Verdict.ANOTHER_RANK
    assert "rank 1" in finding.headline
    assert "2.5 s" in finding.headline


def test_who_is_a_victim_by_its_own_words_alone_rests_on_these_words():
    words = "RuntimeError: DataLoader worker (pid 7) exited unexpectedly"
    (finding,) = diagnose(Situation(kind=Kind.EXCEPTION, recorded=True, error=words, first_rank="process 7"))

    assert [evidence.source for evidence in finding.evidence] == [words]


def test_a_counted_kill_is_host_memory_with_its_figures():
    killed = Situation(kind=Kind.HOST_KILL, recorded=True, host=Host(kills=1, limit=gib(64), rss=gib(63)))
    (finding,) = diagnose(killed)

    assert (finding.verdict, finding.strength) == (Verdict.HOST_MEMORY, SUPPORTED)
    assert any("63.0 GiB" in e.says for e in finding.evidence)


# --- what always holds ----------------------------------------------------------------------------

sizes = st.floats(0, 40).map(gib)
maybe = st.one_of(st.none(), sizes)
growths = st.one_of(
    st.none(), st.builds(Growth, sizes, st.floats(0, 100), st.sampled_from([None, "phase x"]))
)
neighbours = st.lists(
    st.builds(Neighbour, st.integers(1, 99), maybe, st.just("x"), st.sampled_from(Who), st.none(), growths),
    max_size=4,
    unique_by=lambda n: n.pid,
).map(tuple)
trends = st.one_of(
    st.none(),
    st.builds(Trend, st.just("step"), st.integers(-GIB, GIB), st.integers(2, 99), sizes, st.booleans()),
)


@given(
    figures=st.fixed_dictionaries(
        dict.fromkeys(
            ("requested", "total", "free", "allocated", "reserved", "own", "cap", "unlisted"), maybe
        )
    ),
    listed=neighbours,
    trend=trends,
    eval_trend=trends,
    growth=growths,
    pools=st.one_of(
        st.none(), st.builds(holes, st.floats(0, 20), st.floats(0, 20), st.floats(0, 9), st.booleans())
    ),
    phase=st.sampled_from([None, "load", "forward", "backward", "optimizer", "eval", "rollout"]),
    makes_state=st.booleans(),
)
def test_whatever_was_recorded_the_findings_are_sound(
    figures, listed, trend, eval_trend, growth, pools, phase, makes_state
):
    situation = Situation(
        kind=Kind.ALLOCATOR,
        recorded=True,
        phase=phase,
        neighbours=listed,
        self_listed=figures["own"] is not None,
        trend=trend,
        eval_trend=eval_trend,
        outside_growth=growth,
        holes=pools,
        training=Training(steps=3, optimizer_stepped=False, makes_state=makes_state),
        **figures,
    )
    findings = diagnose(situation)
    leading = findings[0]
    words = repr(findings)

    assert (leading.verdict is Verdict.UNKNOWN) <= (leading.strength is UNDECIDED)
    assert sum(f.strength is SUPPORTED for f in findings) <= 1
    assert all(f.strength is not SUPPORTED for f in findings[1:])
    assert "empty_cache" not in words
    assert "gc.collect" not in words
    if leading.strength is SUPPORTED and leading.verdict is not Verdict.CAP:
        assert situation.requested is not None
        assert not situation.free.certainly_at_least(situation.requested)

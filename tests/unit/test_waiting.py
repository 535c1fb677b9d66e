"""Conditions that top waits for, and alarms: fulfilled, told once, and never by a missing reading."""

from types import SimpleNamespace

import msgspec
import pytest
from toppictures import GIB, card, picture, process

from gpumem_tui.analysis.top import SORTS, RunAlarm
from gpumem_tui.analysis.waiting import Alarms, RunAlarms, Waiting, judge, missing_devices, parse_condition
from gpumem_tui.errors import BadInput
from gpumem_tui.records import Reason

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "what", "sign", "value", "where", "hold"),
    [
        ("free>20GiB on 0", "free", ">", 20 * GIB, ("0",), 0),
        ("free > 20 GiB on 0,1 for 30s", "free", ">", 20 * GIB, ("0", "1"), 30),
        ("USED<=1GiB on any", "used", "<=", GIB, ("any",), 0),
        ("utilization<5% on all", "utilization", "<", 5, ("all",), 0),
        ("processes<1 on 0:1", "processes", "<", 1, ("0:1",), 0),
        ("processes=0", "processes", "=", 0, ("any",), 0),
    ],
)
def test_a_condition_is_read(text, what, sign, value, where, hold):
    found = parse_condition(text)

    assert (found.what, found.sign, found.value, found.where, found.hold_s) == (
        what,
        sign,
        value,
        where,
        hold,
    )


@pytest.mark.parametrize(
    "text",
    ["", "free", "free>", "free>20GB on 0", "speed>3", "free>20GiB on", "free>1GiB on any,0", "processes<x"],
)
def test_what_is_no_condition_is_refused_with_how_it_is_written(text):
    with pytest.raises(BadInput, match=r"write it as|ambiguous"):
        parse_condition(text)


def test_free_memory_fulfils_it_on_that_card_only():
    state = picture(card(0, free=5 * GIB), card(1, free=21 * GIB))

    assert judge(parse_condition("free>20GiB on 1"), state).fulfilled
    assert not judge(parse_condition("free>20GiB on 0"), state).fulfilled
    assert not judge(parse_condition("free>20GiB on 0,1"), state).fulfilled
    assert not judge(parse_condition("free>20GiB on all"), state).fulfilled


def test_any_names_the_cards_that_fulfil_it():
    state = picture(card(0, free=5 * GIB), card(1, free=21 * GIB), card(2, free=22 * GIB))

    assert [d.label for d in judge(parse_condition("free>20GiB"), state).devices] == ["1", "2"]


@pytest.mark.parametrize("text", ["free>1GiB", "free<100GiB", "used<100GiB", "used>=0", "free>1GiB on all"])
def test_a_missing_reading_fulfils_nothing_and_says_why(text):
    verdict = judge(parse_condition(text), picture(card(0, free=None, reason=Reason.LOST)))

    assert not verdict.fulfilled
    assert "lost" in verdict.now


def test_processes_that_cannot_be_listed_are_not_zero():
    state = picture(card(0, processes_reason=Reason.NO_PERMISSION))
    verdict = judge(parse_condition("processes<1"), state)

    assert not verdict.fulfilled
    assert verdict.now == "GPU 0: processes — (no permission)"


def test_processes_are_counted_by_card():
    state = picture(card(0), card(1), processes=[process(0, 7)])

    assert judge(parse_condition("processes<1 on 1"), state).fulfilled
    assert not judge(parse_condition("processes<1 on 0"), state).fulfilled


def test_a_card_that_is_not_there_is_named():
    condition = parse_condition("free>1GiB on 0,7")
    state = picture(card(0, free=2 * GIB))

    assert missing_devices(condition, state) == ["7"]
    assert not judge(condition, state).fulfilled


def test_a_condition_must_hold_without_a_break():
    waiting = Waiting(parse_condition("free>20GiB for 10s"))
    course = [(0, 21), (6, 21), (8, 19), (9, 21), (18, 21), (19, 21)]
    over = [
        waiting.take(msgspec.structs.replace(picture(card(0, free=free * GIB)), now_ns=t * SECOND))
        for t, free in course
    ]

    assert over == [False] * 5 + [True]


def test_growth_is_told_once_and_again_after_it_went_down():
    alarms = Alarms(2 * GIB, oom=False)
    told = [
        alarms.take(picture(card(0), processes=[process(0, 7, used=8 * GIB, rise=rise * GIB)]))
        for rise in (1, 3, 4, 0, 3)
    ]

    assert [len(each) for each in told] == [0, 1, 0, 0, 1]
    assert told[1] == ["GPU 0: process 7 (bob, python) took 3.00 GiB within a minute; 10.0 GiB are free"]


def test_a_recorded_rank_is_no_neighbour():
    alarms = Alarms(GIB, oom=False)

    assert alarms.take(picture(card(0), processes=[process(0, 7, rise=3 * GIB, run="mine")])) == []


def test_a_failure_of_a_run_is_told_once_and_old_ones_are_no_news():
    alarms = Alarms(None, oom=True)
    old, new = RunAlarm(1, "a-run", "out of memory"), RunAlarm(2, "a-run", "out of memory again")
    told = [
        alarms.take(msgspec.structs.replace(picture(card(0)), alarms=those))
        for those in ((old,), (old, new), (old, new))
    ]

    assert told == [[], ["a-run: out of memory again"], []]


def test_the_verb_offers_the_themes_that_there_are():
    from gpumem_tui.cli import top
    from gpumem_tui.views.tui.themes import PALETTES

    assert set(top.THEMES) == set(PALETTES)
    assert set(top.SORTS) == set(SORTS)


def run_picture(second, *rows, failures=()):
    """What alarms look at of a run's picture."""
    return SimpleNamespace(
        now_ns=second * SECOND,
        facts=SimpleNamespace(started_ns=0),
        processes=[
            SimpleNamespace(
                device=0, pid=pid, ours=ours, used_bytes=used * GIB, since_ns=since * SECOND, user="bob",
                name="vllm", growth_bytes=None if growth is None else growth * GIB,
            )
            for pid, ours, used, since, growth in rows
        ],
        failures=[
            SimpleNamespace(pid=pid, t_ns=t_ns, kind=kind, headline=f"{kind} of {pid}")
            for pid, t_ns, kind in failures
        ],
    )  # fmt: skip


def test_a_stranger_on_a_run_s_cards_that_grows_or_comes_is_told_once():
    alarms = RunAlarms(2 * GIB, oom=False)
    told = [
        alarms.take(run_picture(100, (7, False, 5, 1, 0), (8, True, 9, 1, 9))),
        alarms.take(run_picture(101, (7, False, 8, 1, 3), (8, True, 9, 1, 9))),
        alarms.take(run_picture(102, (7, False, 8, 1, 3))),
        alarms.take(run_picture(103, (7, False, 8, 1, 3), (9, False, 4, 103, None))),
    ]

    assert told == [
        [],
        ["GPU 0: process 7 (bob, vllm) took 3.00 GiB within a minute"],
        [],
        ["GPU 0: process 9 (bob, vllm) took 4.00 GiB within a minute"],
    ]


def test_strangers_that_were_there_when_the_run_began_have_not_come():
    assert RunAlarms(GIB, oom=False).take(run_picture(20, (7, False, 5, 2, None))) == []


def test_a_run_s_failures_of_memory_are_told_once_and_others_are_not():
    alarms = RunAlarms(None, oom=True)
    old, new, other = (1, 5, "out of memory"), (2, 6, "outside the allocator"), (3, 7, "exception")

    assert alarms.take(run_picture(1, failures=[old])) == []
    assert alarms.take(run_picture(2, failures=[old, new, other])) == ["outside the allocator of 2"]
    assert alarms.take(run_picture(3, failures=[old, new, other])) == []

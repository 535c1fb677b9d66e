"""The view on slow lines: keys answer soon, pictures wait for each other, little is sent."""

import signal
import time

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.views.tui import line
from gpumem_tui.views.tui.line import LineSpeed


class Clock:
    """A clock that goes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def answering(*took):
    """A line whose terminal has answered in these times."""
    clock = Clock()
    speed = LineSpeed(clock)
    speed.answered()
    for seconds in took:
        assert speed.ask()
        clock.now += seconds
        speed.answered()
    return speed, clock


def test_a_terminal_that_has_never_answered_is_not_asked():
    assert not LineSpeed().ask()
    assert not LineSpeed().busy()


def test_while_a_question_is_open_the_line_is_busy_and_nothing_is_asked():
    speed, _ = answering()

    assert speed.ask()
    assert speed.busy()
    assert not speed.ask()


def test_some_long_answers_in_a_row_make_a_line_slow_and_some_short_ones_fast_again():
    long, short = line.LONG_S + 0.1, line.SHORT_S / 2

    assert not answering(*[long] * (line.SLOW_AFTER - 1))[0].slow
    assert not answering(long, long, short, long)[0].slow
    assert answering(*[long] * line.SLOW_AFTER)[0].slow
    assert answering(*[long] * line.SLOW_AFTER, *[short] * (line.FAST_AFTER - 1))[0].slow
    assert not answering(*[long] * line.SLOW_AFTER, *[short] * line.FAST_AFTER)[0].slow


def test_a_terminal_that_stops_answering_holds_nothing_up_for_ever():
    speed, clock = answering()
    speed.ask()
    clock.now += line.PATIENCE_S + 1

    assert not speed.busy()
    assert speed.ask()


@given(st.lists(st.tuples(st.sampled_from(("ask", "answer", "busy")), st.floats(0, 30))))
def test_however_answers_come_a_line_is_never_busy_longer_than_its_patience(happenings):
    speed, clock = answering()
    for what, seconds in happenings:
        clock.now += seconds
        {"ask": speed.ask, "answer": speed.answered, "busy": speed.busy}[what]()
    clock.now += line.PATIENCE_S + 1

    assert not speed.busy()


@pytest.mark.slow
def test_a_key_shows_its_effect_soon_over_20_kb_a_second_and_300_ms(slow):
    view = slow("--devices", "8", rate=20_000, trip_s=0.3, size=(120, 40))
    view.wait_for("processes on the cards")
    view.pump(2)
    effects = {}
    for keys, text in (
        ("2", "── ledger ──"),
        ("3", "── now ──"),
        ("4", "ranks × GPUs"),
        ("6", "loading weights"),
        ("?", "Where is every byte"),
        ("1", "── ranks, "),
        (" ", "paused at"),
        ("t", "theme: light"),
    ):
        before = len(view.raw)
        effects[keys] = view.effect_s(keys, text)
        view.pump(0.7)
        print(f"{keys!r}: {effects[keys]:.2f} s to its effect, {len(view.raw) - before:,} bytes")

    assert sorted(effects.values())[len(effects) // 2] <= 0.7
    assert max(effects.values()) <= 1.2  # one of them may meet a picture on its way


@pytest.mark.slow
def test_on_a_very_slow_line_pictures_become_rare_and_keys_still_answer(slow):
    view = slow("--devices", "8", "--interval", "0.5", rate=350, trip_s=0.3, size=(80, 24))
    view.started = time.monotonic() + 20  # more patience: its first picture takes as long as all others
    view.wait_for("slow line: a picture every 5 s")
    effect = view.effect_s(" ", "paused at")

    assert effect < 6


@pytest.mark.slow
def test_a_view_that_is_stopped_gives_the_terminal_back_and_takes_it_again(slow):
    view = slow("--devices", "1", rate=1_000_000, trip_s=0)
    view.wait_for("allocated")
    view.process.send_signal(signal.SIGTSTP)
    while psutil.Process(view.process.pid).status() != psutil.STATUS_STOPPED:
        view.pump(0.02)
    view.pump(0.1)
    given_back = view.restored()
    view.screen.reset()
    view.process.send_signal(signal.SIGCONT)
    view.wait_for("allocated")
    view.type("q")
    view.wait_for("detach, the run goes on")
    view.type("d")
    code = view.wait()

    assert given_back
    assert code == 0
    assert view.restored()

"""Events of a whole run: each can be reached again, in bounded memory, and none is dropped unsaid."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui import records
from gpumem_tui.analysis.state import Severity
from gpumem_tui.session.happenings import MOST, SHOWN, Happenings
from gpumem_tui.views.timeline import Timeline

SECOND = 1_000_000_000


def book(count, *, loud_every=0):
    made = Happenings()
    for number in range(count):
        loud = loud_every and number % loud_every == 0
        made.add(number * SECOND, Severity.WARNING if loud else Severity.INFO, f"event {number}", rank=0)
    return made


def test_a_picture_has_the_latest_events_and_says_how_many_were_before():
    kept = book(1000)

    assert [event.text for event in kept.events()] == [f"event {n}" for n in range(1000 - SHOWN, 1000)]
    assert kept.earlier() == 1000 - SHOWN


def test_what_an_error_said_is_cut_visibly():
    short, long = Happenings(), Happenings()
    short.of_rank(0, records.UncaughtException(1, error="KeyError", text="key\nand more"))
    long.of_rank(0, records.UncaughtException(1, error="KeyError", text="word " * 50))

    assert short.events()[0].text == "KeyError, not caught: key"
    assert long.events()[0].text == f"KeyError, not caught: {('word ' * 24)[:119].rstrip()}…"


def test_of_a_moment_of_the_past_it_has_those_up_to_then():
    kept = book(1000)

    assert kept.events(20 * SECOND)[-1].text == "event 20"
    assert len(kept.events(20 * SECOND)) == 21
    assert kept.earlier(20 * SECOND) == 0
    assert kept.events(700 * SECOND)[0].text == f"event {701 - SHOWN}"
    assert kept.earlier(700 * SECOND) == 701 - SHOWN


def test_warnings_far_back_are_still_marked_where_many_calm_events_came_since():
    kept = book(3000, loud_every=1500)

    assert [event.text for event in kept.marked()] == ["event 0", "event 1500"]
    assert [event.text for event in kept.marked(100 * SECOND)] == ["event 0"]


def test_keys_reach_every_event_of_a_long_run_one_by_one():
    kept, timeline, visited = book(1000), Timeline(), []
    timeline.know(0, 2000 * SECOND)
    timeline.window(72)
    while timeline.next_of([event.t_ns for event in kept.events(timeline.cursor_ns)], -1):
        visited.append(timeline.cursor_ns // SECOND)
    back = [timeline.cursor_ns // SECOND]
    while (ahead := kept.next_ns(timeline.cursor_ns)) is not None:
        timeline.next_of([ahead], 1)
        back.append(timeline.cursor_ns // SECOND)

    assert visited == [*range(999, -1, -1)]
    assert back == [*range(1000)]


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from(Severity)), max_size=120))
def test_whatever_comes_is_kept_or_counted_and_never_more_than_a_bound(told):
    kept = Happenings(most=40)
    for second, severity in told:
        kept.add(second * SECOND, severity, "x")
    events = kept.events()

    assert len(events) <= 40
    assert sum(1 + event.more for event in events) == len(told)
    assert all(one.t_ns <= two.t_ns for one, two in itertools.pairwise(events))


def test_calm_events_of_long_ago_are_counted_by_their_neighbours_before_any_warning_is():
    kept = book(MOST + 1, loud_every=10)
    warnings = [event for event in kept.events(MOST * SECOND) if event.severity is Severity.WARNING]

    assert len(kept.events(400 * SECOND)) < 400
    assert all(event.more == 0 for event in warnings)
    assert [event.text for event in kept.marked(100 * SECOND)] == [f"event {n}" for n in range(0, 101, 10)]

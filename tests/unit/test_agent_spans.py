"""Which spans are open on which thread, as the ring has it."""

import contextvars
import threading
from types import SimpleNamespace

import pytest

from gpumem_tui.agent import ring
from gpumem_tui.agent.spans import Spans


@pytest.fixture
def spans(tmp_path):
    made = Spans(ring.Ring(str(tmp_path / "a.ring"), 1, 1), SimpleNamespace(readable=(), active=()))
    yield made
    made.ring.close()


def told(spans) -> list[tuple[str, str, str | None]]:
    """(begin or end, phase, error) of every edge."""
    return [("begin" if e.edge == ring.BEGIN else "end", e.phase, e.error) for e in spans.ring.drain()]


def on_another_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_what_was_left_open_within_ends_with_its_outer_span(spans):
    outer = spans.begin("forward", "")
    spans.begin("recompute", "")

    spans.end(outer, KeyError())

    assert told(spans)[2:] == [("end", "recompute", "KeyError"), ("end", "forward", "KeyError")]
    assert spans.open_spans() == []


def test_the_user_s_spans_of_tasks_that_take_turns_end_when_they_end(spans):
    first, second, third = (spans.begin(name, "", users=True) for name in ("first", "second", "third"))

    spans.end(first, None)
    inner = spans.begin("forward", "")
    spans.end(inner, None)
    spans.end(third, None)
    spans.end(second, None)

    assert inner.parent == third.id
    assert told(spans)[3:] == [
        ("end", "first", None), ("begin", "forward", None), ("end", "forward", None),
        ("end", "third", None), ("end", "second", None),
    ]  # fmt: skip
    assert spans.stack() == []


def test_a_call_whose_end_an_interrupt_took_is_not_around_what_comes_later(spans, monkeypatch):
    span = spans.begin("forward", "")
    monkeypatch.setattr(spans, "_close", lambda *_: (_ for _ in ()).throw(TimeoutError()))
    context = contextvars.copy_context()  # in which the span stays around
    with pytest.raises(TimeoutError):
        spans.end(span, None)
    monkeypatch.undo()

    assert context.run(spans.begin, "backward", "").parent == 0


def test_a_span_that_ends_on_another_thread_ends(spans):
    span = spans.begin("rollout", "")

    on_another_thread(lambda: spans.end(span, None))
    next_span = spans.begin("forward", "")

    assert next_span.parent == 0
    assert told(spans) == [("begin", "rollout", None), ("end", "rollout", None), ("begin", "forward", None)]


def test_a_span_ends_once(spans):
    span = spans.begin("rollout", "")

    spans.end(span, None)
    on_another_thread(lambda: spans.end(span, None))

    assert told(spans) == [("begin", "rollout", None), ("end", "rollout", None)]


def test_threads_have_stacks_of_their_own(spans):
    spans.begin("forward", "")
    other = []
    on_another_thread(lambda: other.append(spans.begin("eval", "")))

    assert other[0].parent == 0
    assert [span.phase for span in spans.open_spans()] == ["forward", "eval"]
    assert [span.phase for span in spans.stack()] == ["forward"]


def test_stale_spans_end_as_interrupted_but_not_the_user_s(spans):
    spans.begin("forward", "", users=True)
    spans.begin("forward", "")

    spans.end_stale(("forward",))

    assert told(spans)[2:] == [("end", "forward", "InterruptedError")]
    assert [span.users for span in spans.stack()] == [True]


def test_what_an_interrupt_left_open_ends_with_the_user_s_phase_around_it(spans):
    outer = spans.begin("rollout", "", users=True)
    spans.begin("forward", "")

    spans.end(outer, KeyError())

    assert told(spans)[2:] == [("end", "forward", "KeyError"), ("end", "rollout", "KeyError")]
    assert spans.calls() == spans.stack() == []


def test_a_context_that_outlives_the_span_it_was_made_in_is_within_it_no_more(spans):
    outer = spans.begin("rollout", "", users=True)
    later = contextvars.copy_context()
    spans.end(outer, None)

    assert later.run(spans.begin, "forward", "").parent == 0


def test_what_a_context_left_behind_holds_open_is_found_on_its_thread(spans):
    contextvars.copy_context().run(spans.begin, "forward", "")

    spans.end_stale(("forward",))

    assert told(spans)[1:] == [("end", "forward", "InterruptedError")]


def test_another_thread_within_the_same_context_ends_nothing_of_this_one(spans):
    spans.begin("forward", "")
    context = contextvars.copy_context()

    on_another_thread(lambda: context.run(spans.end_stale, ("forward",)))

    assert [span.phase for span in spans.open_spans()] == ["forward"]

"""Phases that the user names follow tasks and generators, in whatever order these take turns on a thread."""

import asyncio
import inspect
import sys
import threading
from types import SimpleNamespace

import pytest

import gpumem_tui
from gpumem_tui.agent import ring
from gpumem_tui.agent.named import Named
from gpumem_tui.agent.spans import Spans


class Told:
    """Spans by (phase, phase around it) in the order of their begins, phases of ends, errors by phase."""

    def __init__(self, edges):
        edges = list(edges)
        self.begins = [e for e in edges if e.edge == ring.BEGIN]
        phases = {e.span: e.phase for e in self.begins}
        self.nested = [(e.phase, phases.get(e.parent)) for e in self.begins]
        self.ends = [e.phase for e in edges if e.edge == ring.END]
        self.errors = {e.phase: e.error for e in edges if e.edge == ring.END and e.error}


@pytest.fixture
def spans(tmp_path, monkeypatch):
    """The spans of a process that is monitored, as far as the user's own phases are concerned."""
    made = Spans(ring.Ring(str(tmp_path / "a.ring"), 1, 1), SimpleNamespace(readable=(), active=()))
    steps = SimpleNamespace(count=1)
    phases = SimpleNamespace(
        spans=made, spans_now=lambda: made, on=True, on_first=lambda: None, steps=steps, heal=lambda: None
    )
    phases.named = Named(phases)
    agent = SimpleNamespace(tracing=lambda: False, monitored=SimpleNamespace(phases=phases))
    monkeypatch.setitem(sys.modules, "_gpumem_tui_agent", agent)
    yield made
    made.ring.close()


def told(spans):
    assert spans.open_spans() == []
    return Told(spans.ring.drain())


def call(spans, name="forward"):
    """A call of a model."""
    spans.end(spans.begin(name, ""), None)


def test_calls_in_tasks_that_take_turns_are_in_the_phase_of_their_own_task(spans):
    async def serve(name):
        with gpumem_tui.phase(name):
            for _ in range(3):
                await asyncio.sleep(0)
                call(spans, f"forward of {name}")

    async def main():
        await asyncio.gather(serve("one"), serve("two"), serve("three"))

    asyncio.run(main())

    nested = told(spans).nested
    assert {pair for pair in nested if pair[1]} == {
        ("forward of one", "one"), ("forward of two", "two"), ("forward of three", "three")
    }  # fmt: skip
    assert len(nested) == 12


def test_tasks_are_in_the_phase_that_made_them_while_it_lasts(spans):
    async def late(wait):
        await wait.wait()
        call(spans, "late")

    async def main():
        wait = asyncio.Event()
        with gpumem_tui.phase("outer"):
            await asyncio.gather(*(asyncio.to_thread(call, spans) for _ in range(2)))
            task = asyncio.create_task(late(wait))
        wait.set()
        await task

    asyncio.run(main())

    assert told(spans).nested == [
        ("outer", None), ("forward", "outer"), ("forward", "outer"), ("late", None)
    ]  # fmt: skip


def test_threads_have_phases_of_their_own(spans):
    with gpumem_tui.phase("outer"):
        thread = threading.Thread(target=call, args=(spans,))
        thread.start()
        thread.join()

    assert told(spans).nested == [("outer", None), ("forward", None)]


def test_a_decorated_coroutine_function_is_one_until_it_has_run(spans):
    @gpumem_tui.phase("rollout")
    async def rollout():
        await asyncio.sleep(0)
        call(spans)
        return 7

    assert inspect.iscoroutinefunction(rollout)
    assert asyncio.run(rollout()) == 7
    assert told(spans).nested == [("rollout", None), ("forward", "rollout")]


def test_what_the_caller_of_a_generator_does_is_not_in_its_phase(spans):
    @gpumem_tui.phase("tokens")
    def tokens(n):
        for i in range(n):
            call(spans, "decode")
            yield i
        return "end"

    def consume():
        return (yield from tokens(2))

    consumer = consume()
    assert next(consumer) == 0
    call(spans, "caller's")
    assert next(consumer) == 1
    with pytest.raises(StopIteration, match="end"):
        next(consumer)

    assert inspect.isgeneratorfunction(tokens)
    assert told(spans).nested == [
        ("tokens", None), ("decode", "tokens"), ("caller's", None), ("decode", "tokens")
    ]  # fmt: skip


def test_asynchronous_generators_that_take_turns_have_phases_of_their_own(spans):
    def tokens(name):
        @gpumem_tui.phase(name)
        async def made():
            for i in range(2):
                await asyncio.sleep(0)
                call(spans, f"decode of {name}")
                yield i

        assert inspect.isasyncgenfunction(made)
        return made()

    async def consume(name):
        return [i async for i in tokens(name)]

    async def main():
        return await asyncio.gather(consume("one"), consume("two"))

    assert asyncio.run(main()) == [[0, 1], [0, 1]]
    assert sorted(told(spans).nested, key=str) == [
        ("decode of one", "one"), ("decode of one", "one"),
        ("decode of two", "two"), ("decode of two", "two"), ("one", None), ("two", None),
    ]  # fmt: skip


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_decorated_generator_is_sent_to_thrown_at_and_closed_as_without(spans, asynchronous):
    def plain(log):
        try:
            log.append((yield len(log)))
            try:
                yield "waiting"
            except KeyError as error:
                log.append(repr(error))
            log.append((yield len(log)))
            yield "more"
        finally:
            log.append("closed")

    async def coroutine(log):
        try:
            log.append((yield len(log)))
            try:
                yield "waiting"
            except KeyError as error:
                log.append(repr(error))
            log.append((yield len(log)))
            yield "more"
        finally:
            log.append("closed")

    async def drive(function):
        log, values = [], []
        made = function(log)
        names = ("asend", "athrow", "aclose") if asynchronous else ("send", "throw", "close")
        send, throw, close = (getattr(made, name) for name in names)
        for step, *given in ((send, None), (send, "a"), (throw, KeyError("b")), (send, "c"), (close,)):
            value = step(*given)
            values.append(await value if asynchronous else value)
        return log, values

    function = coroutine if asynchronous else plain
    bare = asyncio.run(drive(function))
    decorated = asyncio.run(drive(gpumem_tui.phase("tokens")(function)))

    assert decorated == bare
    assert bare[0] == ["a", "KeyError('b')", "c", "closed"]
    assert told(spans).errors == {}


def test_what_a_generator_raises_is_its_span_s_error(spans):
    @gpumem_tui.phase("tokens")
    def tokens():
        yield 1
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(tokens())

    assert told(spans).errors == {"tokens": "KeyError"}


def test_a_phase_that_tasks_share_ends_for_each_as_it_leaves(spans):
    shared = gpumem_tui.phase("shared")

    async def serve(name, turns):
        with shared, gpumem_tui.phase(name):
            for _ in range(turns):
                await asyncio.sleep(0)
        call(spans, f"after {name}")

    async def main():
        await asyncio.gather(serve("long", 4), serve("short", 1))

    asyncio.run(main())

    found = told(spans)
    assert found.ends == ["short", "shared", "after short", "long", "shared", "after long"]
    assert [pair for pair in found.nested if "after" in pair[0]] == [
        ("after short", None), ("after long", None)
    ]  # fmt: skip


def test_a_phase_begun_within_itself_ends_from_within(spans):
    shared = gpumem_tui.phase("shared")
    with shared:
        call(spans, "outer")
        with shared:
            call(spans, "inner")
        call(spans, "outer")

    found = told(spans)
    shared_spans = [e.span for e in found.begins if e.phase == "shared"]
    assert [(e.phase, e.parent) for e in found.begins if e.phase != "shared"] == [
        ("outer", shared_spans[0]), ("inner", shared_spans[1]), ("outer", shared_spans[0])
    ]  # fmt: skip

"""Calls that may hang: one thread while none does, another as soon as one does, and nothing is lost."""

import threading
import time

import pytest

from gpumem_tui.sources.worker import Crew, Lane


@pytest.fixture
def crew():
    made = Crew("test")
    yield made
    made.retire()


@pytest.fixture
def gate():
    """What a hanging call waits for."""
    made = threading.Event()
    yield made
    made.set()


def collected(crew, count):
    """So many items, waited for."""
    found, until = [], time.monotonic() + 20
    while len(found) < count and time.monotonic() < until:
        crew.wait(0.1)
        found += crew.collect()
    return found


def who():
    yield threading.current_thread().name


def test_while_every_job_ends_soon_one_thread_does_them_all(crew):
    lanes = [Lane() for _ in range(16)]
    names = []
    for _ in range(3):
        for lane in lanes:
            crew.submit(lane, who)
        names += collected(crew, 16)

    assert len(names) == 48
    assert len(set(names)) <= 2  # a second one where the machine was too busy to run the first
    assert all(lane.busy_since_ns is None for lane in lanes)


def test_jobs_behind_those_that_hang_are_done_and_what_was_made_before_is_kept(crew, gate):
    def hang():
        yield "before"
        gate.wait(30)
        yield "after"

    hanging, others = [Lane() for _ in range(3)], [Lane() for _ in range(5)]
    for lane in hanging:
        crew.submit(lane, hang)
    for lane in others:
        crew.submit(lane, lambda: iter(["done"]))
    meanwhile = collected(crew, 8)
    busy = [lane.busy_since_ns is not None for lane in (*hanging, *others)]
    gate.set()

    assert sorted(meanwhile) == ["before"] * 3 + ["done"] * 5
    assert busy == [True] * 3 + [False] * 5
    assert collected(crew, 3) == ["after"] * 3


def test_a_lane_does_one_job_at_a_time(crew, gate):
    def hang():
        gate.wait(30)
        yield "done"

    lane = Lane()
    crew.submit(lane, hang)

    with pytest.raises(RuntimeError, match="still under way"):
        crew.submit(lane, hang)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_job_that_fails_frees_its_lane_and_the_others_go_on(crew):
    def fail():
        yield "begun"
        raise ValueError("a bug")

    lanes = [Lane() for _ in range(3)]
    for lane, job in zip(lanes, (fail, who, who), strict=True):
        crew.submit(lane, job)
    first = collected(crew, 3)
    crew.submit(lanes[0], who)

    assert first[0] == "begun"
    assert len(first) == 3
    assert len(collected(crew, 1)) == 1

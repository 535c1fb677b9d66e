"""Threads that make calls which may never return, so that nobody else has to wait for them.

A crew has lanes (a device each), one job at a time in a lane, and as few threads as it
takes: one, while every call returns soon, so that a picture of many devices costs one
wake-up; another as soon as a job waits behind a call that does not return. What a job
yields is kept as it is made, so that a call that hangs takes nothing with it that was
read before. The threads are daemons: a hung call does not keep the process from ending.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

PATIENCE_S = 0.05
"""A job that waits longer for the calls before it gets a thread of its own."""

T = TypeVar("T")


def ask_within(deadline_s: float, call: Callable[[], T]) -> T | None:
    """What one call returns; None where it has not returned by then, and it is left to itself."""
    answer: list[T] = []
    thread = threading.Thread(target=lambda: answer.append(call()), daemon=True)
    thread.start()
    thread.join(deadline_s)
    return answer[0] if answer else None


class Lane:
    """Jobs of which only one is done at a time."""

    def __init__(self) -> None:
        self.busy_since_ns: int | None = None
        """When the present job was begun, or handed over while it waits; None while there is none."""


class Crew(Generic[T]):
    """The threads. Its methods are called by its owner only, who sees the end of a job in :meth:`collect`."""

    def __init__(self, name: str) -> None:
        """The first thread starts with the first job."""
        self._name = name
        self._jobs: queue.SimpleQueue[tuple[Lane, Callable[[], Iterator[T]]] | None] = queue.SimpleQueue()
        self._made: queue.SimpleQueue[tuple[Lane, T | None]] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._under_way = 0
        self._quiet = threading.Event()
        self._quiet.set()

    def submit(self, lane: Lane, job: Callable[[], Iterator[T]]) -> None:
        """Hand a job over; the last one of its lane has ended."""
        if lane.busy_since_ns is not None:
            raise RuntimeError(f"a job of {self._name} is still under way")
        lane.busy_since_ns = time.monotonic_ns()
        with self._lock:
            self._under_way += 1
            self._quiet.clear()
        self._jobs.put((lane, job))
        self._have_threads(1)

    def wait(self, wait_s: float) -> None:
        """Until every job has ended, but no longer than this."""
        until_s = time.monotonic() + wait_s
        while (left_s := until_s - time.monotonic()) > 0 and not self._quiet.wait(min(left_s, PATIENCE_S)):
            if not self._jobs.empty():
                self._have_threads(len(self._threads) + 1)

    def collect(self) -> Iterator[T]:
        """What has been made since the last time; the lanes of jobs that have ended are free again."""
        while True:
            try:
                lane, item = self._made.get_nowait()
            except queue.Empty:
                return
            if item is None:
                lane.busy_since_ns = None
            else:
                yield item

    def retire(self) -> None:
        """End the threads after their present jobs."""
        for _ in self._threads:
            self._jobs.put(None)

    def _have_threads(self, count: int) -> None:
        """So many, but no more than there are jobs under way; a bug in a job ends a thread."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) < min(count, self._under_way):
            name = f"{self._name}-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
            self._threads[-1].start()

    def _work(self) -> None:
        while (task := self._jobs.get()) is not None:
            lane, job = task
            lane.busy_since_ns = time.monotonic_ns()
            try:
                for item in job():
                    self._made.put((lane, item))
            finally:
                self._made.put((lane, None))
                with self._lock:
                    self._under_way -= 1
                    if not self._under_way:
                        self._quiet.set()

"""A thread that makes calls which may never return, so that nobody else has to wait for them.

One job at a time; what it yields comes out as it is made, so that a call that hangs
takes nothing with it that was read before. The thread is a daemon: a hung call does
not keep the process from ending.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Outbox(Generic[T]):
    """Where several workers put what they made: (worker, item), and (worker, None) at the end of a job."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[tuple[Worker[T], T | None]] = queue.SimpleQueue()

    def put(self, worker: "Worker[T]", item: T | None) -> None:
        """Called by the workers."""
        self._items.put((worker, item))

    def take(self, wait_s: float) -> "tuple[Worker[T], T | None] | None":
        """The next item; None if there is none within ``wait_s``. Called by the owner of the workers."""
        try:
            return self._items.get(timeout=wait_s) if wait_s > 0 else self._items.get_nowait()
        except queue.Empty:
            return None


class Worker(Generic[T]):
    """The thread. ``submit`` and ``done`` are called by its owner only."""

    def __init__(self, name: str, outbox: Outbox[T]) -> None:
        """The thread starts with the first job."""
        self._name = name
        self._outbox = outbox
        self._jobs: queue.SimpleQueue[Callable[[], Iterator[T]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.busy_since_ns: int | None = None
        """When the present job was handed over; None while there is none."""

    def submit(self, job: Callable[[], Iterator[T]]) -> None:
        """Hand a job over; its owner has seen the end of the last one."""
        if self.busy_since_ns is not None:
            raise RuntimeError(f"{self._name} is still at work")
        self.busy_since_ns = time.monotonic_ns()
        if self._thread is None or not self._thread.is_alive():  # a bug in a job ends its thread, no more
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def done(self) -> None:
        """Its owner has taken the end of the job from the outbox."""
        self.busy_since_ns = None

    def retire(self) -> None:
        """End the thread after its present job."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                for item in job():
                    self._outbox.put(self, item)
            finally:
                self._outbox.put(self, None)

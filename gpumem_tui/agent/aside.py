"""Threads of ours that the user's program does not meet: started below ``threading``.

A program may join every thread that ``threading.enumerate`` lists, wait until
``threading.active_count`` is 1, or trace and profile whatever ``threading`` starts: ours
would hang the first two and be in the way of the others. Nothing here or in what these
threads run may call ``threading.current_thread``, which would list the caller for good.
They are daemons, and take no signal that is meant for the user's threads.
"""

from __future__ import annotations

import _thread
import signal
from typing import Callable

from .guard import contain

LONGEST_BEGIN_S = 1.0
"""How long a start waits for the thread to run, which takes less than a millisecond."""

SYNCHRONOUS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")
"""Signals of a thread's own doing: blocking these would kill without a word."""


class Aside:
    """One thread that does ``work`` once. ``where`` names it where an error of ours is told."""

    def __init__(self, work: Callable[[], None], where: str) -> None:
        self._work, self._where = work, where
        self._running, self._waiting = _thread.allocate_lock(), _thread.allocate_lock()
        self._ident = 0

    def start(self) -> None:
        """Start it. RuntimeError where the system or an ending interpreter starts no more threads.

        Returns once it runs: before, Python takes it for the thread that started it, and what
        is sent to that one (PyThreadState_SetAsyncExc) would come here.
        """
        self._running.acquire()
        self._waiting.acquire()
        try:
            _thread.start_new_thread(self._run, ())
        except BaseException:
            self._running.release()
            raise
        self._waiting.acquire(True, LONGEST_BEGIN_S)

    def _run(self) -> None:
        try:
            self._ident = _thread.get_ident()
            self._waiting.release()
            _leave_signals()
            self._work()
        except BaseException as error:  # noqa: BLE001  the named boundary of this thread: it would print
            contain(self._where, error)
        finally:
            self._running.release()

    def is_alive(self) -> bool:
        """Whether it was started and has not ended."""
        return self._running.locked()

    def is_current(self) -> bool:
        """Whether the calling thread is this one."""
        return self._ident == _thread.get_ident()

    def join(self, seconds: float) -> None:
        """Wait for its end, so long at most."""
        if self._running.acquire(True, seconds):
            self._running.release()


def _leave_signals() -> None:
    if hasattr(signal, "pthread_sigmask"):
        own = {getattr(signal, name) for name in SYNCHRONOUS if hasattr(signal, name)}
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.valid_signals()) - own)

"""Calls of the feed, in one thread of their own, so that a slow disk never holds up a key."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class Errands:
    """Runs calls one after the other; a daemon thread, so that a hung one never holds up the exit."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="feed", daemon=True).start()

    async def do(self, call: Callable[[], Answer]) -> Answer:
        """The call's answer, or what it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()

        def settle(act: Callable[[Any], None], value: Any) -> None:
            if not future.done():
                act(value)

        def run() -> None:
            try:
                answer = call()
            except BaseException as error:  # noqa: BLE001  # handed to whoever waits, in the loop
                self._tell(loop, settle, future.set_exception, error)
            else:
                self._tell(loop, settle, future.set_result, answer)

        self._waiting.put(run)
        return await future

    @staticmethod
    def _tell(loop: asyncio.AbstractEventLoop, settle: Callable[..., None], *values: Any) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, *values)

    def _work(self) -> None:
        while (run := self._waiting.get()) is not None:
            run()

    def end(self) -> None:
        """Take no more calls after those that wait."""
        self._waiting.put(None)

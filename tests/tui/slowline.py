"""A slow line: a terminal behind a pty that passes so many bytes a second, after so long a way."""

import os
import re
import select
import time
from collections import deque
from collections.abc import Callable, Iterator

import pytest
from tui.terminals import Terminal

_QUESTION = b"\x1b[?2026$p"
_BURST_S = 0.1
"""What a line that has rested passes at once, as time at its rate."""


class SlowTerminal(Terminal):
    """``rate`` bytes a second towards the terminal; ``trip_s`` there and back, half of it each way."""

    def __init__(self, *arguments: str, rate: int, trip_s: float, **options) -> None:
        super().__init__(*arguments, **options)
        self.rate, self.way_s = rate, trip_s / 2
        self._allowed = 0.0
        self._seen_s = time.monotonic()
        self._coming: deque[tuple[float, bytes]] = deque()
        self._going: deque[tuple[float, bytes]] = deque()

    def type(self, keys: str) -> None:
        """Keys arrive after the way."""
        self._going.append((time.monotonic() + self.way_s, keys.encode()))

    def pump(self, seconds: float) -> bytes:
        """Let the line work for a while; what has reached the terminal."""
        new = b""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            self._allowed = min(self._allowed + (now - self._seen_s) * self.rate, self.rate * _BURST_S)
            self._seen_s = now
            while self._going and self._going[0][0] <= now:
                os.write(self.master, self._going.popleft()[1])
            if self._allowed >= 1 and select.select([self.master], [], [], 0)[0]:
                try:
                    data = os.read(self.master, int(self._allowed))
                except OSError:
                    break
                self._allowed -= len(data)
                self._coming.append((now + self.way_s, data))
            while self._coming and self._coming[0][0] <= now:
                new += self._arrive(self._coming.popleft()[1])
            time.sleep(0.002)  # the line's own grain: there is nothing to wait for but time
        return new

    def _arrive(self, data: bytes) -> bytes:
        asked = self.raw.count(_QUESTION)
        self.raw += data
        self._stream.feed(re.sub(rb"\x1b\[[<>=][0-9;]*u", b"", data))
        for _ in range(self.raw.count(_QUESTION) - asked):
            self.type("\x1b[?2026;2$y")
        return data

    def effect_s(self, keys: str, text: str) -> float:
        """Seconds from a key to what it does on the terminal."""
        began = time.monotonic()
        self.type(keys)
        while text not in self.text:
            assert time.monotonic() - began < 20, f"{keys!r} did nothing; the screen is\n{self.text}"
            self.pump(0.005)
        return time.monotonic() - began


def opened(kind: type) -> Iterator[Callable]:
    """A function that opens terminals of a kind; they are closed with the test."""
    made = []

    def start(*arguments, **options):
        made.append(kind(*arguments, **options))
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.fixture
def terminal():
    yield from opened(Terminal)


@pytest.fixture
def slow():
    yield from opened(SlowTerminal)

"""How fast the line is: asks the terminal after a frame, and waits for its answer before the next one.

Nothing between us and the terminal says how much lies in its buffers (ptys, sshd,
sockets), so the end of the line is asked: it answers in order, when everything before
the question has been drawn. A terminal that never answers is never waited for.
"""

import time
from collections.abc import Callable

QUESTION = "\x1b[?2026$p"
"""Whether synchronised output is known; every terminal that knows it answers at once."""

LONG_S, SHORT_S = 1.0, 0.4
"""An answer that takes longer, or less, says that the line is slow, or is not."""

SLOW_AFTER, FAST_AFTER = 3, 5
"""How many such answers in a row it takes."""

PATIENCE_S = 10.0
"""An answer is waited for no longer."""


class LineSpeed:
    """What the answers say. Called by the drawing loop and by the thread that reads the terminal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked_s: float | None = None
        self._answers = False
        self._long = self._short = 0
        self.slow = False
        """Whether fewer pictures would do."""

    def ask(self) -> bool:
        """Whether to put the question behind what was just sent; it counts as put then."""
        if not self._answers or self.busy():
            return False
        self._asked_s = self._clock()
        return True

    def answered(self) -> None:
        """An answer has come; the first of all is to a question of Textual's own."""
        asked_s, self._asked_s, self._answers = self._asked_s, None, True
        if asked_s is None:
            return
        took_s = self._clock() - asked_s
        self._long = self._long + 1 if took_s > LONG_S else 0
        self._short = self._short + 1 if took_s < SHORT_S else 0
        if self._long >= SLOW_AFTER:
            self.slow = True
        elif self._short >= FAST_AFTER:
            self.slow = False

    def busy(self) -> bool:
        """Whether what was sent is still on its way."""
        if self._asked_s is None:
            return False
        if self._clock() - self._asked_s < PATIENCE_S:
            return True
        self._long += 1
        self.slow = self.slow or self._long >= SLOW_AFTER
        self._asked_s = None
        return False

"""A wish to stop that a signal handler may utter at any instruction, and a sleep that it ends."""

import os
import select


class Stop:
    """Not ``threading.Event``: its lock may be held by the very thread that the handler interrupts."""

    def __init__(self) -> None:
        """Holds two descriptors for the life of the process."""
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._sleep = select.poll()  # select.select() refuses descriptors from 1024 on
        self._sleep.register(self._reader, select.POLLIN)
        self.is_set = False

    def set(self) -> None:
        """Wake the sleeper, now and whenever it would sleep again."""
        if not self.is_set:
            self.is_set = True
            os.write(self._writer, b"!")

    def wait(self, seconds: float) -> None:
        """Sleep, unless there is the wish to stop."""
        self._sleep.poll(seconds * 1000)

"""One recorder for each recording on a node: who holds the lock of the run directory is it."""

import fcntl
import os
from pathlib import Path

from gpumem_tui.errors import CannotRecord

LOCK_NAME = "recorder.lock"


class Election:
    """Won or lost at once; the kernel gives the lock back when its holder ends, however it ends."""

    def __init__(self, run: Path) -> None:
        """Nothing is locked yet."""
        self._path = run / LOCK_NAME
        self._fd: int | None = None

    def stand(self) -> bool:
        """Whether this process is the recorder now. Raises :class:`CannotRecord` without a file to lock."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CannotRecord(f"cannot make {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def resign(self) -> None:
        """Let another one be it."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

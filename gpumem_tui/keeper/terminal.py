"""Keeps a workload on a pty of its own: the run outlives its viewer and the line it was started from.

What the workload writes goes to ``output.log`` as it comes; what is written to the
FIFO ``input`` is typed to it. A full disk never stops the workload: its output is
still read, and what could not be kept is counted. Ends when the workload has ended,
and with it, as closing a terminal would, if it is killed itself.
"""

import contextlib
import errno
import fcntl
import os
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from gpumem_tui.errors import CannotRecord
from gpumem_tui.keeper.batch import find_program
from gpumem_tui.keeper.log import KeeperLog
from gpumem_tui.records.ending import Ending

CHUNK_BYTES = 1 << 16
TOLD_EVERY_S = 0.1
"""How often the journal is told the size of the output log, at most."""
LINGER_S = 0.3
"""How long output of processes that outlive the workload is still taken."""

Screen = tuple[int, int]
"""Rows and columns."""


def keep_terminal(
    run: Path,
    command: Sequence[str],
    environment: Mapping[str, str],
    screen: Screen,
    modes: list[object] | None,
    ready: Callable[[int], None],
) -> int:
    """Fork a keeper that starts ``command`` on a pty; returns the keeper's pid at once.

    ``modes`` are the caller's terminal attributes (``termios.tcgetattr``), taken over
    as ``script`` does. ``ready`` is called here with the keeper's pid, before the workload
    is started; if it raises, nothing is started.
    Raises :class:`CommandNotFound` before anything is started, :class:`CannotRecord`
    where no pty is to be had.
    """
    program = find_program(command, environment)
    try:
        master, slave = os.openpty()
    except OSError as error:
        raise CannotRecord(f"no pseudo-terminal is to be had: {error.strerror}; use --batch") from error
    if modes is not None:
        termios.tcsetattr(slave, termios.TCSANOW, modes)  # type: ignore[arg-type]
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *screen, 0, 0))
    os.mkfifo(run / "input", 0o600)
    wait, go = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid:
        for fd in (master, slave, wait):
            os.close(fd)
        try:
            ready(pid)
            os.write(go, b"go")
        finally:
            os.close(go)  # without the word, the keeper ends
        return pid
    try:
        os.setsid()
        os.close(go)
        if not os.read(wait, 2):
            os._exit(0)
        _detach_streams()
        _keep(run, program, command, environment, master, slave)
    finally:
        os._exit(70)


def _detach_streams() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _keep(
    run: Path, program: str, command: Sequence[str], environment: Mapping[str, str], master: int, slave: int
) -> NoReturn:
    log = KeeperLog(run)
    wake, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, lambda number, frame: None)
    pid = _start(program, command, environment, slave)
    os.close(slave)
    log.started(pid)
    ending = _Pump(run, log, master, wake, pid).run()
    log.ended(ending)
    with contextlib.suppress(OSError):
        (run / "input").unlink()
    os._exit(0)


def _start(program: str, command: Sequence[str], environment: Mapping[str, str], slave: int) -> int:
    """The workload, as leader of a session whose terminal is the pty."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for stream in (0, 1, 2):
            os.dup2(slave, stream)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP,
                       signal.SIGINT, signal.SIGQUIT):  # fmt: skip
            signal.signal(number, signal.SIG_DFL)
        os.execve(program, list(command), dict(environment))
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\r\n".encode())
    finally:
        os._exit(127)


class _Pump:
    """Moves bytes between pty, output log and input, and watches for the end."""

    def __init__(self, run: Path, log: KeeperLog, master: int, wake: int, pid: int) -> None:
        self._log, self._master, self._wake, self._pid = log, master, wake, pid
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(run / "output.log", flags, 0o600)
        self._input = os.open(
            run / "input", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
        )  # RDWR: never at its end
        self._size = 0
        self._lost = 0
        self._told_size, self._told_at = 0, 0.0
        os.set_blocking(master, False)

    def run(self) -> Ending:
        """Until the workload has ended and its output is taken."""
        poll = select.poll()
        for fd in (self._master, self._wake, self._input):
            poll.register(fd, select.POLLIN)
        ending: Ending | None = None
        until = 0.0
        while True:
            timeout = 1000 if ending is None else max(0, int(1000 * (until - time.monotonic())))
            if self._size != self._told_size:
                timeout = min(timeout, int(1000 * TOLD_EVERY_S))
            ready = dict(poll.poll(timeout))
            open_ = self._take_output() if self._master in ready else True
            if not open_:
                poll.unregister(self._master)
            try:
                if self._input in ready:
                    self._pass_input()
                if self._wake in ready:
                    self._pass_signals()
                self._tell_size()
            except OSError as error:  # typing or a signal did not get through; the run goes on
                self._log.dropped(str(error))
            if ending is None:
                ending = self._ended()
                until = time.monotonic() + LINGER_S
                if ending is not None:
                    open_ = self._take_output()
            if ending is not None and (not open_ or self._master not in ready or time.monotonic() >= until):
                self._tell_size(now=True)
                return ending

    def _ended(self) -> Ending | None:
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        return Ending.of(status) if pid else None

    def _take_output(self) -> bool:
        """Everything that is there now. False at the end of the pty."""
        for _ in range(64):
            try:
                data = os.read(self._master, CHUNK_BYTES)
            except BlockingIOError:
                return True
            except OSError as error:
                if error.errno != errno.EIO:  # EIO: every slave is closed
                    self._log.dropped(f"output cannot be read: {error}")
                return False
            if not data:
                return False
            self._store(data)
        return True

    def _store(self, data: bytes) -> None:
        try:
            written = os.write(self._file, data)
        except OSError:
            written = 0
        self._size += written
        self._lost += len(data) - written

    def _tell_size(self, now: bool = False) -> None:
        at = time.monotonic()
        if not now and at - self._told_at < TOLD_EVERY_S:
            return
        if self._size != self._told_size:
            self._log.output(self._size)
            self._told_size, self._told_at = self._size, at
        if self._lost:
            self._log.dropped(f"{self._lost} bytes of output: the disk refused them")
            self._lost = 0

    def _pass_input(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._input, CHUNK_BYTES)
            os.write(self._master, data)

    def _pass_signals(self) -> None:
        numbers = os.read(self._wake, 512)
        for number in numbers:
            if number == signal.SIGCHLD:
                continue
            group = number in (signal.SIGINT, signal.SIGQUIT)
            self._log.signalled(number, "to the foreground group" if group else "passed on")
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if group:  # as the key would: to whoever is in the foreground of the pty
                    os.killpg(os.tcgetpgrp(self._master), number)
                else:
                    os.kill(self._pid, number)

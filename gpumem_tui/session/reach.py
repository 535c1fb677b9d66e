"""A run as far as a view may reach it: its output and snapshots, its ranks, its keeper, its input.

The only writing here is a signal to the keeper, bytes into the workload's input and a file
that asks for maps, each on the user's word.
"""

import contextlib
import os
import signal

from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.analysis.snapshot import Snapshot, read_snapshot
from gpumem_tui.errors import BadInput
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.runfile import RunFile
from gpumem_tui.session.life import RunLife, is_alive


class Reach:
    """Knows of the run what has been read of it so far."""

    def __init__(self, run: RunDirectory, file: RunFile, life: RunLife) -> None:
        self._run, self._file, self._life = run, file, life

    def read_output(self, start: int, size: int) -> bytes:
        """Up to ``size`` bytes of the output log from offset ``start``."""
        try:
            with self._run.output_log.open("rb") as file:
                file.seek(start)
                return file.read(size)
        except OSError:
            return b""

    def read_snapshot(self, name: str) -> Snapshot:
        """A memory snapshot that lies in the recording. Raises :class:`GpumemError`."""
        from gpumem_tui.sources.snapshots import read_plain  # dear, and seldom wanted

        path = (self._run.path / name).resolve()
        if not path.is_relative_to(self._run.path.resolve()):
            raise BadInput(f"{name} does not lie in this recording")
        return read_snapshot(read_plain(str(path)))

    def ask_map(self) -> str:
        """Ask every rank for a map of its blocks: a file that their samplers look at once a second.

        Returns a sentence. Raises :class:`BadInput` where nobody is left to ask.
        """
        if self._life.run_life() in (Life.ENDED, Life.FAILED, Life.LOST):
            raise BadInput("the run has ended: there is nobody to ask for a map")
        if not self._life.here:
            raise BadInput(f"the run is on {self._file.host}; ask for a map there")
        try:
            self._run.map_request.touch(mode=0o600)
        except OSError as error:
            raise BadInput(f"cannot ask for a map: {self._run.map_request}: {error.strerror}") from error
        return "every rank was asked for a map; it takes about a second"

    def stop(self, how: str) -> str:
        """Send the keeper a signal, by its name, that it passes on. Returns a sentence on what was done."""
        number = signal.Signals[how]
        for keeper in self._life.keepers.values():
            if keeper.exit is not None:
                continue
            pid, ticks = keeper.pid, keeper.started_ticks
            if number is signal.SIGKILL and keeper.workload is not None:
                pid, ticks = keeper.workload.pid, keeper.workload.started_ticks
            if not self._life.here:
                return f"the run is on {self._file.host}; stop it there"
            if not self._life.sees:
                return "the run is in another pid namespace, a container perhaps; stop it there"
            if not is_alive(pid, ticks):
                continue
            try:
                os.kill(pid, number)
            except PermissionError:
                return f"not permitted: the run belongs to {self._file.user}"
            return f"{number.name} was sent to the workload"
        return "nothing to stop: the workload has ended"

    def type_in(self, data: bytes) -> None:
        """Type bytes into the workload's terminal. Raises :class:`BadInput` where it has none."""
        if not self._file.interactive:
            raise BadInput("this run has no terminal of its own: it reads what it was started with")
        with contextlib.suppress(BlockingIOError):
            try:
                fd = os.open(self._run.input, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                raise BadInput("the workload has ended; there is nobody to type to") from error
            try:
                os.write(fd, data)
            finally:
                os.close(fd)

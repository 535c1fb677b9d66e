"""Memory snapshots on disk (``torch.cuda.memory._dump_snapshot``): pickles, read as plain data only.

A pickle is a program. It is read in a child process with bounded memory and time, by
an unpickler that refuses everything that would be imported or called; what comes
back is MessagePack. Owns that boundary; knows nothing of what a snapshot means.
"""

import subprocess
import sys
from pathlib import Path

import msgspec

from gpumem_tui.errors import GpumemError

LARGEST_BYTES = 2 << 30
"""Larger files are refused: a snapshot with a million history entries has a tenth of it."""

BASE_BYTES = 1 << 30
PER_BYTE = 16
"""Address space of the reader: so much, and so much for each byte of the file."""

SECONDS = 120
"""Time of the reader."""


class UnreadableSnapshot(GpumemError):
    """No memory snapshot, or one that is refused because it is more than plain data."""

    exit_code = 4


def is_pickle(path: str) -> bool:
    """Whether a file begins as a pickle does (protocols 2 to 5). False where it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            start = file.read(2)
    except OSError:
        return False
    return len(start) == 2 and start[0] == 0x80 and 2 <= start[1] <= 5


def read_plain(path: str) -> object:
    """Segments, failed requests and settings as plain lists and dicts. Raises :class:`UnreadableSnapshot`."""
    try:
        size = Path(path).stat().st_size
    except OSError as error:
        raise UnreadableSnapshot(f"{path}: cannot be read: {error.strerror or error}") from None
    if size > LARGEST_BYTES:
        raise UnreadableSnapshot(f"{path}: refused: larger than any memory snapshot ({size >> 20:,} MiB)")
    limits = (str(BASE_BYTES + PER_BYTE * size), str(SECONDS))
    command = [sys.executable, "-m", "gpumem_tui.sources.unpickling", str(Path(path).absolute()), *limits]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=2 * SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise UnreadableSnapshot(f"{path}: refused: reading it takes more than {2 * SECONDS} s") from None
    if done.returncode == 0:
        return msgspec.msgpack.decode(done.stdout)
    said = done.stderr.decode("utf-8", "replace").splitlines()  # the last line is ours
    why = said[-1] if said and done.returncode == 3 else "it broke its reader"
    raise UnreadableSnapshot(f"{path}: refused: {why}")

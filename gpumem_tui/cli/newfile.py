"""Files that users name for our output: written whole or not at all, and never over another."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gpumem_tui.errors import BadInput, CannotRecord, RecordingExists


def require_new(path: Path) -> None:
    """Before work is done for it: raises :class:`RecordingExists`, or :class:`CannotRecord`."""
    if path.exists() or path.is_symlink():
        raise _taken(path)
    if not path.parent.is_dir():
        raise CannotRecord(f"cannot write {path}: there is no directory {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise CannotRecord(f"cannot write {path}: {path.parent} cannot be written by you")


def write_new(path: Path, data: bytes) -> None:
    """Write a file that does not exist yet. Raises as :func:`new_file` does."""
    with new_file(str(path)) as file:
        file.write(data)


@contextlib.contextmanager
def new_file(name: str | None) -> Iterator[BinaryIO]:
    """A file to write to, which appears under ``name`` when all has been written; None: standard output.

    Raises :class:`RecordingExists` where the name is taken, :class:`BadInput` where it is
    a folder, :class:`CannotRecord` where it cannot be written.
    """
    if name is None or name == "-":
        with _standard_output() as file:
            yield file
        return
    path = Path(name)
    if path.is_dir():
        raise BadInput(f"{name} is a folder; give the name of a file")
    if os.path.lexists(path):
        raise _taken(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _put(temporary, path)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        raise CannotRecord(f"cannot write {name}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _taken(path: Path) -> RecordingExists:
    return RecordingExists(f"{path} exists already and is not overwritten; name another file")


def _put(temporary: Path, path: Path) -> None:
    """Give a finished file its name; unlike a rename, a link never replaces what came meanwhile."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        temporary.rename(path)


@contextlib.contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the exit would try it again
        raise CannotRecord(f"cannot write standard output: {error.strerror}") from error

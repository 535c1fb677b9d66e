"""Failure records on disk: the JSON files in ``failures/`` of a run directory. Refuses what is none."""

from pathlib import Path

import msgspec

from gpumem_tui.errors import UnreadableRecording
from gpumem_tui.records.failure import FailureRecord

LONGEST_BYTES = 8 << 20
"""A failure record is not longer; a larger file is none of ours."""


def read_failure(path: Path) -> FailureRecord:
    """The record in a file. Raises :class:`UnreadableRecording` where it is none, torn or too large."""
    try:
        if path.stat().st_size > LONGEST_BYTES:
            raise UnreadableRecording(f"{path}: too large for a failure record")
        return msgspec.json.decode(path.read_bytes(), type=FailureRecord)
    except OSError as error:
        raise UnreadableRecording(f"{path}: {error.strerror}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableRecording(f"{path}: not a failure record ({error})") from error

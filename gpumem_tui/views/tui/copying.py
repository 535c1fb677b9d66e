"""What leaves the view by people's wish: text for their clipboard, and a report in a file."""

import contextlib
import os
import re
from pathlib import Path

from gpumem_tui.analysis.state import RunState

LONGEST = 100_000
"""Characters that are put on a clipboard at most: terminals drop longer ones without a word."""


def clipped(text: str) -> str:
    """Text as terminals take it for a clipboard."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")[:LONGEST]


def save_run(state: RunState, folder: Path, kind: str) -> Path:
    """Write a report of a picture to a new file that only its owner can read; its path. Raises OSError.

    ``kind`` is ``txt`` or ``html``. Never overwrites: a taken name gets a number.
    """
    from gpumem_tui.views.report import html, sheet_of, text  # not before somebody wants one

    sheet = sheet_of(state)
    written = text.render(sheet, cells=120) if kind == "txt" else html.render(sheet)
    name = re.sub(r"[^A-Za-z0-9._-]", "-", state.facts.run).lstrip(".-") or "run"
    for number in range(1, 1000):
        path = folder / f"{name}-report{'' if number == 1 else f'-{number}'}.{kind}"
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
                file.write(written)
            return path
    raise FileExistsError(f"{folder} has a thousand reports of {name}")

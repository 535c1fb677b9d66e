"""Out-of-memory failures in text: from the bytes of any log to typed failures. Pure, bounded, no I/O.

:class:`Scanner` takes a log in blocks of bytes and gives a :class:`Reading`.
"""

from gpumem_tui.analysis.oomtext.facts import (
    Aftermath,
    Family,
    Holder,
    OomFailure,
    Planning,
    Pressure,
    Reading,
)
from gpumem_tui.analysis.oomtext.figures import Figure
from gpumem_tui.analysis.oomtext.scanner import Scanner
from gpumem_tui.analysis.oomtext.situate import pressure_situation, situation

__all__ = [
    "Aftermath",
    "Family",
    "Figure",
    "Holder",
    "OomFailure",
    "Planning",
    "Pressure",
    "Reading",
    "Scanner",
    "pressure_situation",
    "situation",
]

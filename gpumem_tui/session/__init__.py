"""From a recording to the picture that views draw. Reads the run directory and nothing else.

``Recording`` follows the journals, keeps one model of each writer, and makes a frozen
``RunState`` on demand; live view, replay, report and JSON all come through here. Each
name is imported when it is first asked for: the driver's view needs none before there
is a run.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumem_tui.session.playback import Moment, Playback
    from gpumem_tui.session.recording import Recording
    from gpumem_tui.session.staged import Staged

__all__ = ["Moment", "Playback", "Recording", "Staged"]

_MODULES = {
    "Moment": "playback",
    "Playback": "playback",
    "Recording": "recording",
    "Staged": "staged",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)

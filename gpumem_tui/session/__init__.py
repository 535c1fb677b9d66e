"""From a recording to the picture that views draw. Reads the run directory and nothing else.

``Recording`` follows the journals, keeps one model of each writer, and makes a frozen
``RunState`` on demand; live view, replay, report and JSON all come through here.
"""

from gpumem_tui.session.glance import Glance, glance
from gpumem_tui.session.playback import Playback
from gpumem_tui.session.recording import Recording
from gpumem_tui.session.staged import Staged

__all__ = ["Glance", "Playback", "Recording", "Staged", "glance"]

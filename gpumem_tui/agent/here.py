"""What each thread of the user's is in, as the hooks have noted it. No rules are here."""

from __future__ import annotations

import threading
from typing import Optional

from .seen import Model

NESTED = None
"""Token for "nothing to leave": a call within a phase that covers it."""


class Here(threading.local):
    """What the calling thread is in."""

    inside = False
    """Within a root module's call."""
    covered = False
    """Within load or save: what they call in turn is part of them."""
    generating = 0
    """Within ``generate``: 1 before its first forward, 2 after it."""
    checkpointing = False
    """Within the forward of what reentrant checkpointing will run again: without gradients, but training."""
    stepping = False
    """Within the step of an engine, whose own optimizers are part of it."""
    fixed: Optional[Model] = None
    """The model in evaluation mode that was last called with gradients enabled."""

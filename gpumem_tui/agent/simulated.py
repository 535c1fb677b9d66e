"""On a simulated card, where computed values are zeros: how long the loops that ask for one go on.

``generate`` of Hugging Face asks the device whether all sequences have ended; zeros say
never (greedy, sampling) or at once (beams). Here it goes on to its maximum length, as it
does on a real card where no end token comes, and that is the most memory it can take.
Nothing else is changed: a check such as ``if loss.isnan()`` still reads false.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Optional

STATE = "SIMCARD_STATE"
"""Set in a workload on simulated cards."""


def end_generation(module: Any) -> None:
    """Have the loops of ``transformers.generation.utils`` end at their maximum length."""
    mixin = module.GenerationMixin
    original = mixin._has_unfinished_sequences

    @functools.wraps(original)
    def has_unfinished(self: Any, *args: Any, **kwargs: Any) -> Any:
        unfinished = original(self, *args, **kwargs)  # ranks may wait for each other in it
        full = _is_full(sys._getframe(1).f_locals)
        return unfinished if full is None else not full

    mixin._has_unfinished_sequences = has_unfinished


def is_simulated() -> bool:
    """Whether this process runs on simulated cards."""
    return bool(os.environ.get(STATE))


def _is_full(loop: Any) -> Optional[bool]:
    """Whether the sequences of a generation loop, by its variables, are at full length; None: unknown."""
    longest = getattr(loop.get("stopping_criteria"), "max_length", None)
    length = loop.get("cur_len")  # beam search; other loops let input_ids grow
    if length is None:
        ids = loop.get("input_ids")
        length = None if ids is None else int(ids.shape[1])
    return None if longest is None or length is None else length >= longest

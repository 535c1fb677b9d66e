"""vLLM's start-up figures: what weights take, what is left for the KV cache, how many requests fit.

Evidence for planning and no failure. Sizes keep the text that was printed, without bounds
that its varying number of decimals would not justify.
"""

import re

from gpumem_tui.analysis.oomtext.clean import Segment
from gpumem_tui.analysis.oomtext.facts import Planning

_LINES = (
    ("weights", re.compile(r"[Mm]odel loading took (?P<value>\d[\d.]{0,12} ?[GM]i?B)")),
    ("weights", re.compile(r"model weights take (?P<value>\d[\d.]{0,12} ?[GM]i?B)")),
    ("KV cache", re.compile(r"[Aa]vailable KV cache memory: (?P<value>\d[\d.]{0,12} ?[GM]i?B)")),
    ("KV cache", re.compile(r"reserved for KV Cache is (?P<value>\d[\d.]{0,12} ?[GM]i?B)")),
    ("KV cache tokens", re.compile(r"GPU KV cache size: (?P<value>[\d,]{1,16}) tokens")),
    (
        "concurrency",
        re.compile(r"Maximum concurrency for (?P<value>[\d,]{1,12} tokens per request: \d[\d.]{0,10}x)"),
    ),
)


def planning_of(segment: Segment) -> list[Planning]:
    """The planning figures that this line prints."""
    return [
        Planning(what, match["value"], segment.line, segment.source.worker)
        for what, pattern in _LINES
        if (match := pattern.search(segment.text))
    ]

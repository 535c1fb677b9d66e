"""Start-up figures of vLLM (weights, KV cache, how many requests fit) and of XLA (what a program takes).

Evidence for planning and no failure. Sizes keep the text that was printed, without bounds
that its varying number of decimals would not justify.
"""

import re

from gpumem_tui.analysis.oomtext.clean import Segment
from gpumem_tui.analysis.oomtext.facts import Planning

_LINES = (
    ("XLA's program", re.compile(r"^ *total allocation: +(?P<value>\d[\d.]{0,9}[KMGT]iB)")),
    (
        "XLA's program, temporary",
        re.compile(r"preallocated temp allocation: +(?P<value>\d[\d.]{0,9}[KMGT]iB)"),
    ),
    ("XLA's program, parameters", re.compile(r"^ *parameter allocation: +(?P<value>\d[\d.]{0,9}[KMGT]iB)")),
    ("weights", re.compile(r"[Mm]odel loading took (?P<value>\d[\d.]{0,12} ?[GM]i?B)")),
    ("weights", re.compile(r"model weights take (?P<value>\d[\d.]{0,12} ?[GM]i?B)")),
    ("KV cache", re.compile(r"[Aa]vailable KV cache memory: (?P<value>-?\d[\d.]{0,12} ?[GM]i?B)")),
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

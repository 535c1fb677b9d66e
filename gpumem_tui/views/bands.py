"""Phases over time as one row of words: what a rank was doing in each column of a chart."""

from collections.abc import Sequence
from itertools import groupby

from gpumem_tui.analysis.state import SEVERAL, Band
from gpumem_tui.views.text import Span, clean, left, width
from gpumem_tui.views.timeline import Window

STEPS = "steps"
"""The word for columns in which several phases of training took turns."""

_FAR = 20
"""Windows within which the next change is looked for."""

_TRAINING = ("forward", "backward", "optimizer", "recompute")
ROLES = {
    STEPS: "steps",
    "forward": "forward",
    "recompute": "forward",
    "backward": "backward",
    "optimizer": "update",
    "eval": "eval",
    "no-grad": "eval",
    "generate": "eval",
    "prefill": "eval",
    "decode": "eval",
    "load": "load",
    "save": "load",
}
"""Palette roles of phases; every other one is ``named``."""


def words(bands: Sequence[Band], view: Window, until_ns: int) -> list[str]:
    """The phase of every column, the innermost one that it was mostly spent in; empty where there is none."""
    took: list[dict[str, int]] = [{} for _ in range(view.columns)]
    turns = [0] * view.columns
    covered = [0] * view.columns
    begun = [band for band in bands if band.since_ns < view.end_ns]
    for depth in sorted({band.depth for band in begun}, reverse=True):
        taken = list(covered)
        for band in begun:
            end = min(until_ns, band.until_ns if band.until_ns is not None else until_ns)
            if band.depth != depth or end < view.start_ns:
                continue
            word = band_word(band)
            first = max(0, view.column_of(band.since_ns))
            last = min(view.columns - 1, view.column_of(max(band.since_ns, end - 1)))
            for column in range(first, last + 1):
                start = view.start_ns + column * view.column_ns
                inside = min(end, start + view.column_ns) - max(band.since_ns, start)
                share = min(max(1, inside), view.column_ns - taken[column])
                if share > 0:
                    took[column][word] = took[column].get(word, 0) + share
                    turns[column] += word in _TRAINING
                    covered[column] += share
    return [_word(each, count) for each, count in zip(took, turns, strict=True)]


def change_after(bands: Sequence[Band], view: Window, t_ns: int, until_ns: int) -> int | None:
    """Where the next run of columns with another word begins, in columns as wide as those of ``view``."""
    ahead = Window(t_ns, view.column_ns, view.columns * _FAR)
    found = words(bands, ahead, until_ns)
    changed = (
        n for n in range(1, len(found)) if found[n] and found[n] != found[n - 1] and found[n] != found[0]
    )
    column = next(changed, None)
    return None if column is None else t_ns + column * view.column_ns


def change_before(bands: Sequence[Band], view: Window, t_ns: int, started_ns: int) -> int | None:
    """Where the run of columns with one word that ended before a moment has begun."""
    columns = max(1, min(view.columns * _FAR, (t_ns - started_ns) // view.column_ns))
    start_ns = t_ns - columns * view.column_ns
    found = words(bands, Window(start_ns, view.column_ns, columns), t_ns)
    begins = [n for n in range(len(found)) if found[n] and (n == 0 or found[n] != found[n - 1])]
    return start_ns + begins[-1] * view.column_ns if begins else None


def band_word(band: Band) -> str:
    """What a band is called."""
    if band.phase != SEVERAL:
        return clean(band.phase)
    names = band.name.split(", ")
    return STEPS if names[0] in _TRAINING else clean(" ".join(names))


def _word(took: dict[str, int], turns: int) -> str:
    if not took:
        return ""
    word = max(took, key=lambda each: took[each])
    return STEPS if word in _TRAINING and (turns > 2 or STEPS in took) else word


_SHORT = 3
"""Cells of a phase that is told apart from its neighbours wherever it stands."""

_TURNS = 2
"""Short runs beside each other that are still told apart."""


def row(words_: Sequence[str], *, textured: bool) -> list[Span]:
    """One row of cells: runs of one phase, each with its word where the whole of it has room.

    Phases of training that take turns too fast to be read are one run of steps. A word that has
    no room is left out in colour, and is its first letter without.
    """
    spans: list[Span] = []
    for word, size in _runs(words_):
        role = ROLES.get(word, "named") if word else "text"
        if not word:
            spans.append(Span(" " * size))
        elif textured:
            label = word[:1].upper() + word[1:]
            told = next((text for text in (label, label[0]) if width(text) <= size), "")
            spans.append(Span(f"{told}{'─' * (size - width(told))}", role))
        else:
            spans.append(Span(left(word if width(word) <= size else "", size), f"ground/{role}"))
    return spans


def _runs(words_: Sequence[str]) -> list[tuple[str, int]]:
    """Words and the numbers of neighbouring cells that have them."""
    found: list[tuple[str, int]] = []
    turns: list[tuple[str, int]] = []
    for word, cells in (*((word, len(list(group))) for word, group in groupby(words_)), ("", 0)):
        if word == STEPS or (word in _TRAINING and cells < _SHORT):
            turns.append((word, cells))
            continue
        if len(turns) > _TURNS or STEPS in dict(turns):
            turns = [(STEPS, sum(size for _, size in turns))]
        found += turns
        turns = []
        if cells:
            found.append((word, cells))
    return found

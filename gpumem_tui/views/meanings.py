"""What stands under a pointer, in a clause: the words of the help where they are used.

Owns which span of a line explains which; the clauses are those of ``present``. Refuses to guess:
what has no entry has no meaning to tell.
"""

from gpumem_tui.views import present
from gpumem_tui.views.text import Line, width

WORDS = {
    **{word: meaning for words, meaning in present.PHASE_WORDS.items() for word in words.split(", ")},
    **{present.LABELS[role]: meaning for role, meaning in present.MEANINGS.items() if role != "opaque"},
    **dict(present.MADE_OF.values()),
    "reserved": "what PyTorch's allocator manages; it contains allocated",
    "device used": "all that is used on the card, by whomever, as the driver says, without its own share",
}
"""Words that explain themselves wherever they stand alone in a span."""

_BY_ROLE = {
    **{role: f"{present.LABELS[role]}: {meaning}" for role, meaning in present.MEANINGS.items()},
    **{role: f"{word}: {meaning}" for role, (word, meaning) in present.MADE_OF.items()},
}

_NEAR = 3
"""How many spans a figure or a name may stand behind the glyph of its term."""


def meaning_at(line: Line, cell: int) -> str:
    """``cached: reserved by …`` for the span at that cell of a line; empty where there is nothing to tell."""
    at = 0
    for number, span in enumerate(line):
        at += width(span.text)
        if cell < at:
            return _told(line[: number + 1])
    return ""


def _told(line: Line) -> str:
    word = line[-1].text.strip()
    if word in WORDS:
        return f"{word}: {WORDS[word]}"
    for span in reversed(line[-_NEAR:]):
        if span.role in _BY_ROLE:
            return _BY_ROLE[span.role]
        if span.text.strip() in WORDS:
            return f"{span.text.strip()}: {WORDS[span.text.strip()]}"
        if not span.text.strip():
            return ""
    return ""

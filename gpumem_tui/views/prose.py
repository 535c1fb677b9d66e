"""Sentences broken into lines at spaces, or cut after a clause, by cells.

A word longer than a line is broken where it must be.
"""

import re

from gpumem_tui.views.text import Line, Span, clean, cut, fit, width


def wrapped(text: str, cells: int, role: str = "text", *, first: str = "") -> list[Line]:
    """Lines of exactly ``cells`` cells; ``first`` stands before the first, the others are indented as much.

    Control characters are shown as such.
    """
    indent = " " * width(first)
    return [
        fit((Span(indent if number else first, role), Span(part, role)), cells)
        for number, part in enumerate(broken(clean(text), max(1, cells - width(first))))
    ]


def broken(text: str, room: int) -> list[str]:
    """The text's parts of at most ``room`` cells; one empty part for an empty text."""
    parts: list[str] = []
    line, used = "", 0
    for word in text.split(" "):
        size = width(word)
        if used and used + 1 + size <= room:
            line, used = f"{line} {word}", used + 1 + size
            continue
        if used:
            parts.append(line)
        while size > room:
            head = _head(word, room)
            parts.append(head)
            word = word[len(head) :]
            size = width(word)
        line, used = word, size
    return [*parts, line] if line or not parts else parts


def _head(word: str, room: int) -> str:
    """As much of a word as fits, at least one character."""
    used = 0
    for at, char in enumerate(word):
        used += width(char)
        if used > room and at:
            return word[:at]
    return word


_CLAUSE = re.compile(r"(?=[,;:] )")


def brief(text: str, cells: int) -> str:
    """A sentence in at most ``cells`` cells: the clauses that fit, or as much of it as does.

    Either way an ellipsis tells that there is more.
    """
    if width(text) <= cells:
        return text
    ends = [match.start() for match in _CLAUSE.finditer(text)]
    whole = [text[:end] for end in ends if cells / 2 < width(text[:end]) + 2 <= cells]
    return f"{whole[-1]} …" if whole else cut(text, cells)

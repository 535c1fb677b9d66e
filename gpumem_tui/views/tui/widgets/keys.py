"""The footer: keys with their words, each of which the mouse can press as well."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from textual import events

from gpumem_tui.views.text import Line, Span, ends, fit, line_width
from gpumem_tui.views.tui.widgets.lines import Lines


class Hint(NamedTuple):
    """One key in the footer."""

    key: str
    word: str
    action: str
    """What pressing or clicking it does, as Textual calls it."""
    here: bool = False
    """Whether it stands for what is shown now."""
    tab: bool = False
    """Whether it is a screen's."""
    plain: int = 0
    """Whether its key is told by the help: the higher, the sooner it gives way; 0 is none of those."""


HELP, LEAVE, PAUSE = 1, 2, 3
"""Plain keys, from the one that stays longest on."""


def _poorer(hints: Sequence[Hint]) -> Iterator[list[Hint]]:
    """The same keys with less and less said about them."""
    yield list(hints)
    yield [hint._replace(word="") if hint.plain > HELP else hint for hint in hints if hint.plain < PAUSE]
    yield [hint._replace(word="") if hint.tab and not hint.here else hint for hint in hints]
    yield [hint._replace(word="") if hint.tab else hint for hint in hints]
    yield [hint._replace(word="") for hint in hints]


class Keys(Lines):
    """One line of keys, with words at its left and right ends."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._hit: list[tuple[int, int, str]] = []

    def show_keys(self, hints: Sequence[Hint], status: Line = (), lead: Line = ()) -> None:
        """New keys; ``lead`` stands before them, ``status`` at the right end."""
        cells = self.size.width
        if line_width(status) > cells:
            status = fit(status, cells)
        room = cells - line_width(status)
        for spelled in _poorer(hints):
            if line_width(lead) + sum(map(_width, spelled)) <= room:
                break
        spans = list(lead)
        self._hit = []
        at = line_width(lead)
        for hint in spelled:
            self._hit.append((at, at + _width(hint), hint.action))
            at += _width(hint)
            spans.append(Span(f" {hint.key}", "key"))
            if hint.word:
                spans.append(Span(f" {hint.word} ", "strong" if hint.here else "dim"))
        self.show([ends(spans, status, cells) if room > 0 else status])

    async def on_click(self, event: events.Click) -> None:
        """Press the key under the pointer."""
        for start, end, action in self._hit:
            if start <= event.x < end:
                await self.monitor.run_action(action)


def _width(hint: Hint) -> int:
    return len(hint.key) + 1 + (len(hint.word) + 2 if hint.word else 0)

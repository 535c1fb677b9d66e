"""The command palette: every action of the registry, found by words of what it does."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import events

from gpumem_tui.analysis.state import RunState
from gpumem_tui.views.panels import rule
from gpumem_tui.views.text import Line, Span, left
from gpumem_tui.views.tui.screens.view import View
from gpumem_tui.views.tui.widgets.lines import Lines
from gpumem_tui.views.tui.widgets.panel import hidden

if TYPE_CHECKING:
    from gpumem_tui.views.tui.registry import Action

_KEY = 12


def matching(actions: Sequence["Action"], words: str) -> list["Action"]:
    """Actions whose meaning, word or key has every one of the words.

    First those that begin with all of it, then those that begin with its first word, then those
    in which most of the words are beginnings of words.
    """
    wanted = words.lower().split()

    def rank(action: "Action") -> tuple[bool, bool, int]:
        named = [text.lower() for text in (action.short, action.meaning) if text]
        begun = f" {' '.join(named)}"
        return (
            not any(text.startswith(" ".join(wanted)) for text in named),
            not named[0].startswith(wanted[0]),
            sum(f" {word}" not in begun for word in wanted),
        )

    found = [a for a in actions if all(word in f"{a.meaning} {a.short} {a.shown}".lower() for word in wanted)]
    return sorted(found, key=rank) if wanted else found


class Commands(View, Lines):
    """The list; the prompt below it searches and chooses."""

    def __init__(self) -> None:
        super().__init__(id="commands")
        self._actions: Sequence[Action] = ()
        self._found: list[Action] = []
        self._at = 0
        self._first = 0

    def open(self, actions: Sequence["Action"]) -> None:
        """Start with all of them."""
        self._actions = actions
        self.search("")

    def search(self, words: str) -> None:
        """Show what fits."""
        self._found = matching(self._actions, words)
        self._at = self._first = 0
        self._draw()

    def step(self, step: int) -> None:
        """Choose the next one."""
        if self._found:
            self._at = (self._at + step) % len(self._found)
        self._draw()

    @property
    def chosen(self) -> "Action | None":
        """The marked one; None where nothing fits."""
        return self._found[self._at] if self._found else None

    def show_state(self, state: RunState) -> None:
        """The same, whatever the picture."""
        self._draw()

    def _draw(self) -> None:
        room = max(1, self.size.height - 1)
        self._first = max(self._at - room + 1, min(self._first, self._at, max(0, len(self._found) - room)))
        shown = self._found[self._first : self._first + room]
        below = len(self._found) - self._first - len(shown)
        lines: list[Line] = [rule("what to do", self.size.width, hidden(self._first, below), focused=True)]
        for number, action in enumerate(shown, self._first):
            marked = number == self._at
            lines.append(
                (
                    Span(" ▸ " if marked else "   ", "focus"),
                    Span(left(action.spelled(self.monitor.ascii), _KEY), "key"),
                    Span(action.meaning, "strong" if marked else "text"),
                )
            )
        if not shown:
            lines.append((Span("   nothing does that", "dim"),))
        self.show(lines)

    def on_resize(self) -> None:
        """Draw again for the new size."""
        self._draw()

    async def on_click(self, event: events.Click) -> None:
        """Do what is clicked."""
        at = self._first + event.y - 1
        if event.y and at < len(self._found):
            self._at = at
            await self.monitor.run_command()

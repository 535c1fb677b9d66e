"""A long text in sections, with the mouse wheel and keys; the first heading stays on top."""

from collections.abc import Sequence

from gpumem_tui.views.panels import rule
from gpumem_tui.views.text import Line
from gpumem_tui.views.tui.widgets.panel import Panel

Part = tuple[str, Sequence[Line]]
"""(heading, rows) of a section."""


class Sheet(Panel):
    """Sections one below the other under the heading of the first."""

    def __init__(self, *, id: str) -> None:
        super().__init__("", id=id)
        self._starts: list[int] = []

    def show_parts(self, parts: Sequence[Part]) -> None:
        """New contents; the place in them is kept."""
        rows: list[Line] = []
        self._starts = [0]
        for number, (heading, lines) in enumerate(parts):
            if number == 0:
                self.title = heading
            else:
                self._starts.append(len(rows))
                rows.append(rule(heading, self.size.width))
            rows += lines
        self.show_rows(rows)

    def next_part(self, step: int) -> None:
        """The next section's heading comes to the top; past the last one, the first does."""
        last = max(0, len(self._rows) - self.page())
        places = sorted({min(start, last) for start in self._starts})
        if step > 0:
            self._first = next((place for place in places if place > self._first), 0)
        else:
            self._first = next((place for place in reversed(places) if place < self._first), last)
        self._draw()

    def top(self) -> None:
        """Back to the beginning."""
        self._first = 0
        self._draw()

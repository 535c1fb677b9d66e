"""The help: what the colours and textures mean, the keys, and what a simulated card assumes."""

from textual import events

from gpumem_tui.analysis.state import RunState
from gpumem_tui.views import present
from gpumem_tui.views.text import TEXTURE, Line, Span
from gpumem_tui.views.tui.actions import ACTIONS
from gpumem_tui.views.tui.widgets.lines import Lines


def help_lines(state: RunState | None) -> list[Line]:
    """Everything that the help says, top to bottom."""
    lines: list[Line] = [(Span(" Where is every byte of this card?", "strong"),), ()]
    for term, meaning in present.MEANINGS.items():
        lines.append(_sign(term, present.LABELS[term], meaning))
    lines += [
        (
            Span("   — ", "missing"),
            Span(f"{'missing':<13}"),
            Span("not read; the line below the figures says why", "dim"),
        ),
        (),
        (Span("   They add up to the card's total; reserved = allocated + cached.", "dim"),),
        (Span("   All figures are binary: 1 GiB = 1,073,741,824 bytes.", "dim"),),
        (),
        (
            *(Span("   In the chart: ", "dim"), Span("┄", "dim"), Span(" nothing was read then   ", "dim")),
            *(Span("▲", "warning"), Span(" an event; levels are highs, from zero", "dim")),
        ),
        (),
        (Span(" What allocated is made of, at the end of a step", "strong"),),
        *(_sign(key, label, meaning) for key, (label, meaning) in present.MADE_OF.items()),
        (),
        (Span(" Keys", "strong"),),
    ]
    lines += [(Span(f"   {a.shown:<10}", "key"), Span(a.meaning, "text")) for a in ACTIONS]
    if state is not None:
        facts = state.facts
        if facts.simulated is not None:
            lines += [
                (),
                (Span(" SIMULATED ", "badge"), Span("  the cards are not real; assumed sizes:", "text")),
            ]
            lines += [(Span(f"   {text}"),) for text in present.assumptions(facts)]
        if facts.recorded:
            lines += [
                (),
                (Span(" RECORDED ", "badge"), Span("  a bundled recording is played, nothing runs", "text")),
            ]
        lines += [(), (Span(" This run", "strong"),), (Span(f"   recording  {facts.path}", "dim"),)]
        lines.append((Span(f"   command    {' '.join(facts.command)}", "dim"),))
    return lines


def _sign(key: str, label: str, meaning: str) -> Line:
    return (Span(f"   {TEXTURE[key]} ", key), Span(f"{label:<13}"), Span(meaning, "dim"))


class Help(Lines):
    """The help, scrollable."""

    def __init__(self) -> None:
        super().__init__(id="help")
        self._first = 0

    def show_state(self, state: RunState | None) -> None:
        """Draw the part that fits; the last row says what does not."""
        lines = help_lines(state)
        height = max(1, self.size.height)
        if len(lines) > height:
            self._first = max(0, min(self._first, len(lines) - height + 1))
            below = len(lines) - self._first - height + 1
            more = f"   {below} more lines: ↓" if below > 0 else "   the end"
            lines = [*lines[self._first : self._first + height - 1], (Span(more, "key"),)]
        self.show(lines)

    def move(self, step: int) -> None:
        """By lines."""
        self._first += step
        self.show_state(self.monitor.state)

    def move_page(self, step: int) -> None:
        """By pages."""
        self.move(step * max(1, self.size.height - 2))

    def move_end(self, step: int) -> None:
        """To one end."""
        self.move(step * 10_000)

    def on_resize(self) -> None:
        """Draw again for the new size."""
        self.show_state(self.monitor.state)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel."""
        event.stop()
        self.move(2)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel."""
        event.stop()
        self.move(-2)

"""The help: what the colours and textures mean, the keys, and what a simulated card assumes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import events

from gpumem_tui.analysis.state import RunState
from gpumem_tui.views import present
from gpumem_tui.views.failurepanels import FAILURE_WORDS
from gpumem_tui.views.foresight import foresight_sentences
from gpumem_tui.views.matrix import MEANINGS
from gpumem_tui.views.matrixpanels import GLYPH
from gpumem_tui.views.text import SWATCH, Line, Span
from gpumem_tui.views.tui.screens.view import View
from gpumem_tui.views.tui.widgets.lines import Lines

if TYPE_CHECKING:
    from gpumem_tui.views.tui.registry import Action


def help_lines(state: RunState | None, actions: Sequence["Action"], *, ascii: bool = False) -> list[Line]:
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
        (
            Span("   ≈ ", "missing"),
            Span(f"{'roughly':<13}"),
            Span("memory moved between the two readings that it joins", "dim"),
        ),
        _sign("unattributed", "merged", present.MERGED),
        (),
        (Span("   They add up to the card's total; reserved = allocated + cached.", "dim"),),
        (Span("   All figures are binary: 1 GiB = 1,073,741,824 bytes.", "dim"),),
        (),
        (
            *(Span("   In the chart: ", "dim"), Span("┄", "dim"), Span(" nothing was read then   ", "dim")),
            *(Span("▲", "warning"), Span(" an event", "dim")),
        ),
        (Span("   Its levels are the highs of each column, drawn from zero; allocated has its", "dim"),),
        (Span("   low in its own colour, and what it swung to above that in a darker one.", "dim"),),
        (Span("   “to 1.50 GiB” in its title: nearly empty, the card is drawn only so far.", "dim"),),
        (),
        (Span(" Phases", "strong"),),
        *((Span(f"     {word:<13}"), Span(meaning, "dim")) for word, meaning in present.PHASE_WORDS.items()),
        (),
        (Span(" What allocated is made of, at the end of a step", "strong"),),
        *(_sign(key, label, meaning) for key, (label, meaning) in present.MADE_OF.items()),
        (),
        (Span(" Ranks × GPUs", "strong"),),
        *(_line(*GLYPH[stand], stand.value, meaning) for stand, meaning in MEANINGS.items()),
        (),
        (Span(" When memory ran out", "strong"),),
        *(_line(" ", "text", word, meaning) for word, meaning in FAILURE_WORDS.items()),
        (),
        (Span(" Keys", "strong"),),
    ]
    lines += [
        (Span(f"   {a.spelled(ascii):<12}", "key"), Span(a.meaning, "text")) for a in actions if a.shown
    ]
    if state is not None:
        facts = state.facts
        if facts.simulated is not None:
            lines += [
                (),
                (Span(" SIMULATED ", "badge"), Span("  the cards are not real; assumed sizes:", "text")),
            ]
            lines += [(Span(f"   {text}"),) for text in present.assumptions(facts)]
            lines += [(Span(f"   {text}"),) for text in foresight_sentences(facts.foresight)]
        if facts.recorded:
            lines += [
                (),
                (Span(" RECORDED ", "badge"), Span("  a bundled recording is played, nothing runs", "text")),
            ]
        lines += [(), (Span(" This run", "strong"),), (Span(f"   recording  {facts.path}", "dim"),)]
        lines.append((Span(f"   command    {' '.join(facts.command)}", "dim"),))
    return lines


def _sign(key: str, label: str, meaning: str) -> Line:
    return _line(SWATCH[key], key, label, meaning)


def _line(glyph: str, role: str, label: str, meaning: str) -> Line:
    return (Span(f"   {glyph} ", role), Span(f"{label:<13}"), Span(meaning, "dim"))


class Help(View, Lines):
    """The help, scrollable."""

    def __init__(self, actions: Sequence["Action"]) -> None:
        super().__init__(id="help")
        self._actions = actions
        self._first = 0

    def show_state(self, state: RunState | None) -> None:
        """Draw the part that fits; the last row says what does not."""
        lines = help_lines(state, self._actions, ascii=self.monitor.ascii)
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

"""Every key of the view, once: bindings, footer and help are made from this table."""

from typing import NamedTuple

from textual.binding import Binding


class Action(NamedTuple):
    """One thing that a key does."""

    keys: str
    """Textual's names, separated by commas; the first is the one that is shown."""
    action: str
    shown: str
    """The key as people read it."""
    short: str
    """Its word in the footer; empty: only in the help."""
    meaning: str
    screens: tuple[str, ...] = ("overview", "output", "phases", "help")


ACTIONS = (
    Action("1", "show('overview')", "1", "overview", "the cards: where every byte is"),
    Action("2", "show('output')", "2", "output", "what the workload prints"),
    Action("3", "show('phases')", "3", "phases", "what each phase of the workload took"),
    Action("question_mark,f1,h", "help", "?", "help", "the keys, the terms, what is assumed"),
    Action("space", "pause", "space", "pause", "hold the picture still; again to go on"),
    Action("tab", "next_panel(1)", "tab", "", "move to the next panel", ("overview", "phases")),
    Action(
        "shift+tab", "next_panel(-1)", "shift+tab", "", "move to the panel before", ("overview", "phases")
    ),
    Action("up,k", "move(-1)", "↑", "", "previous card, or scroll up"),
    Action("down,j", "move(1)", "↓", "", "next card, or scroll down"),
    Action("pageup", "move_page(-1)", "PgUp", "", "a page up"),
    Action("pagedown", "move_page(1)", "PgDn", "", "a page down"),
    Action("home,g", "move_end(-1)", "home", "", "to the beginning"),
    Action("end,G", "move_end(1)", "end", "follow", "to the end, and follow it", ("output",)),
    Action("plus,equals_sign", "span(1)", "+", "", "a longer time in the chart", ("overview",)),
    Action("minus", "span(-1)", "-", "", "a shorter time in the chart", ("overview",)),
    Action("t", "theme", "t", "", "next theme: dark, light, ansi, mono"),
    Action("ctrl+l", "redraw", "ctrl+l", "", "draw the whole screen again"),
    Action("i", "type", "i", "type", "type a line into the workload", ("output",)),
    Action("escape", "back", "esc", "", "back to the picture; stay"),
    Action("d", "answer('detach')", "d", "", "after q: detach, the run goes on"),
    Action("s", "answer('stop')", "s", "", "after q: stop the run"),
    Action("q,ctrl+c,ctrl+q", "leave", "q", "leave", "leave: detach, or stop the run; asks first"),
)


_FIRST = ("tab", "shift+tab", "ctrl+c", "ctrl+q")
"""Keys that Textual or an input line would take otherwise."""


def bindings() -> list[Binding]:
    """What Textual listens to."""
    return [
        Binding(key, action.action, action.meaning, show=False, priority=key in _FIRST)
        for action in ACTIONS
        for key in action.keys.split(",")
    ]


def footer_keys(screen: str) -> list[tuple[str, str]]:
    """(key, word) of what the footer of a screen shows, in order."""
    return [(a.shown, a.short) for a in ACTIONS if a.short and screen in a.screens]

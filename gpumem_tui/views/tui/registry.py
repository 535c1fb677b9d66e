"""Every screen and every key of the view, once: bindings, footer, help and palette are made from this.

A new screen is a module of ``screens`` and one line of :data:`SCREENS`.
"""

from functools import lru_cache
from typing import NamedTuple

from textual.binding import Binding

from gpumem_tui.views.tui import THEMES
from gpumem_tui.views.tui.palette import Commands
from gpumem_tui.views.tui.screens.device import Device
from gpumem_tui.views.tui.screens.failure import FailureScreen
from gpumem_tui.views.tui.screens.help import Help
from gpumem_tui.views.tui.screens.matrix import MatrixScreen
from gpumem_tui.views.tui.screens.memorymap import MemoryMapScreen
from gpumem_tui.views.tui.screens.output import Output
from gpumem_tui.views.tui.screens.overview import Overview
from gpumem_tui.views.tui.screens.phases import Phases
from gpumem_tui.views.tui.screens.view import View
from gpumem_tui.views.tui.widgets.keys import HELP, LEAVE, PAUSE, Hint


class Place(NamedTuple):
    """One screen."""

    name: str
    """Its widget's id, and what ``show`` calls it."""
    key: str
    title: str
    """Its word in the footer."""
    meaning: str
    make: type[View]


SCREENS = (
    Place("overview", "1", "overview", "the cards: where every byte is", Overview),
    Place("device", "2", "device", "one card: its history, its ledger, what changed", Device),
    Place("phases", "3", "phases", "what each phase of the workload took", Phases),
    Place("matrix", "4", "matrix", "ranks × GPUs: who holds what on which card", MatrixScreen),
    Place("failure", "5", "failure", "what failed, why, and what to try next", FailureScreen),
    Place("output", "6", "output", "what the workload prints", Output),
    Place("map", "7", "map", "how the allocator's memory lay: pools and their holes", MemoryMapScreen),
)
"""In the order in which the footer shows them."""


_ARROWS = str.maketrans({"←": "left", "→": "right", "↑": "up", "↓": "down"})


class Action(NamedTuple):
    """One thing that a key does."""

    keys: str
    """Textual's names, separated by commas; the first is the one that is shown. Empty: palette only."""
    action: str
    shown: str
    """The key as people read it."""
    short: str
    """Its word in the footer; empty: only in help and palette."""
    meaning: str
    screens: tuple[str, ...] = ()
    """Where it does something; empty is everywhere."""

    def spelled(self, ascii: bool) -> str:
        """The key; arrows as words where they would look like other keys."""
        return self.shown.translate(_ARROWS) if ascii else self.shown

    def works_on(self, screen: str) -> bool:
        """Whether it does something on that screen."""
        return not self.screens or screen in self.screens


ACTIONS = (
    *(Action(p.key, f"show('{p.name}')", p.key, p.title, p.meaning) for p in SCREENS),
    Action("question_mark,f1,h", "help", "?", "help", "the keys, the terms, what is assumed"),
    Action("space", "pause", "space", "pause", "hold the picture still; again to go on"),
    Action("left", "scrub(-1)", "←", "", "back in time by a column of the chart"),
    Action("right", "scrub(1)", "→", "", "forward in time"),
    Action("shift+left", "scrub(-10)", "shift+←", "", "back by ten columns"),
    Action("shift+right", "scrub(10)", "shift+→", "", "forward by ten columns"),
    Action("e", "jump('event', 1)", "e", "", "to the next event"),
    Action("E", "jump('event', -1)", "E", "", "to the event before"),
    Action("n", "jump('phase', 1)", "n", "", "to where the next phase begins"),
    Action("N", "jump('phase', -1)", "N", "", "to where a phase began before"),
    Action("m", "jump('step', 1)", "m", "", "to the next step"),
    Action("M", "jump('step', -1)", "M", "", "to the step before"),
    Action("f", "jump('failure', 1)", "f", "", "to the next failure"),
    Action("F", "jump('failure', -1)", "F", "", "to the failure before"),
    Action("tab", "next_panel(1)", "tab", "", "move to the next panel"),
    Action("shift+tab", "next_panel(-1)", "shift+tab", "", "move to the panel before"),
    Action("up,k", "move(-1)", "↑", "", "previous card, or scroll up"),
    Action("down,j", "move(1)", "↓", "", "next card, or scroll down"),
    Action("enter", "choose", "enter", "", "open what is selected; of a failure, its moment"),
    Action("right_square_bracket", "next_item(1)", "]", "", "the next failure", ("failure",)),
    Action("left_square_bracket", "next_item(-1)", "[", "", "the failure before", ("failure",)),
    Action("r", "ask_map", "r", "map now", "ask every rank for a map of its blocks now", ("map",)),
    Action("pageup", "move_page(-1)", "PgUp", "", "a page up"),
    Action("pagedown", "move_page(1)", "PgDn", "", "a page down"),
    Action("home,g", "move_end(-1)", "home", "", "to the beginning"),
    Action("end,G", "move_end(1)", "end", "follow", "to the end and follow it; back to now", ("output",)),
    Action("plus,equals_sign", "span(1)", "+", "", "a longer time in the chart, up to the whole run"),
    Action("minus", "span(-1)", "-", "", "a shorter time in the chart, down to 10 s"),
    Action("c", "chart", "c", "", "charts in blocks, in braille, in textures"),
    Action("slash", "filter", "/", "", "show only rows with a word"),
    Action("colon,ctrl+p", "commands", ":", "", "every command, found by its words"),
    Action("o", "sort", "o", "", "processes by size, growth, age; phases by peak, time, growth"),
    Action("p", "pin", "p", "", "keep the selected card in view; again to let go"),
    Action("y", "copy", "y", "", "copy what is selected to the terminal's clipboard"),
    Action("Y", "copy(True)", "Y", "", "copy the whole screen"),
    Action("w", "save", "w", "", "write a report of this picture as text"),
    Action("", "save('html')", "", "", "write a report of this picture as a page with charts"),
    Action("less_than_sign", "interval(1)", "<", "", "draw less often"),
    Action("greater_than_sign", "interval(-1)", ">", "", "draw more often"),
    Action("", "low_bandwidth", "", "", "low bandwidth on or off: spare a slow line"),
    *(Action("", f"use_theme('{name}')", "", "", f"theme {name}: {says}") for name, says in THEMES.items()),
    Action("t", "theme", "t", "", f"next theme: {', '.join(THEMES)}"),
    Action("ctrl+l", "redraw", "ctrl+l", "", "draw the whole screen again"),
    Action("i", "type", "i", "type", "type a line into the workload", ("output",)),
    Action("escape", "back", "esc", "", "back to the picture; stay"),
    Action("d", "answer('detach')", "d", "", "after q: detach, the run goes on"),
    Action("s", "answer('stop')", "s", "", "after q: stop the run"),
    Action("q,ctrl+c,ctrl+q", "leave", "q", "leave", "leave: detach, or stop the run; asks first"),
)


def make_views() -> dict[str, View]:
    """A fresh widget of every screen, by name; help and palette last."""
    return {**{place.name: place.make() for place in SCREENS}, "help": Help(ACTIONS), "commands": Commands()}


_TRAVELLING = (
    Hint("←", "", "scrub(-1)"),
    Hint("→", "", "scrub(1)"),
    Hint("end", "now", "live"),
    Hint("?", "", "help"),
)
"""In the footer while the picture is held."""

_LIVE_ONLY = ("ask_map", "type")
"""What a run that is over has no use for."""

_PLAIN = {"help": HELP, "pause": PAUSE}
"""How soon keys of the footer that the help tells of give way."""


@lru_cache(maxsize=64)
def hints(view_name: str, paused: bool, over: bool, ascii: bool = False) -> tuple[Hint, ...]:
    """The keys that do something on a screen, of a run that goes on or is over."""
    tabs = {f"show('{place.name}')" for place in SCREENS}
    found = []
    for action in ACTIONS:
        tab, word = action.action in tabs, action.short
        if not word or not action.works_on(view_name) or (paused and not tab):
            continue
        if over and action.action in _LIVE_ONLY:
            continue
        plain = 0 if tab or action.screens else _PLAIN.get(action.action, LEAVE)
        if action.action == "help" and view_name == "help":
            word, plain = "close", 0
        here = action.action == f"show('{view_name}')"
        found.append(Hint(action.shown, word, action.action, here, tab, plain))
    found += _TRAVELLING if paused else ()
    return tuple(hint._replace(key=hint.key.translate(_ARROWS)) for hint in found) if ascii else tuple(found)


def bindings() -> list[Binding]:
    """What Textual listens to, at once: see ``Typist``."""
    return [
        Binding(key, action.action, action.meaning, show=False, priority=True)
        for action in ACTIONS
        for key in action.keys.split(",")
        if key
    ]

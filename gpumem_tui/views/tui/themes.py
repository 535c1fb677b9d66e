"""Palettes: which colour each role has. The only place where colours are named.

Blue, sky and orange carry the ledger: they stay apart for every common colour
blindness and in their brightness, and every term has a texture of its own besides.
"""

from collections.abc import Mapping
from functools import lru_cache

from rich.style import Style
from textual.theme import Theme

DARK = {
    "background": "#14181d",
    "text": "#c6ced6",
    "dim": "#7d8894",
    "rule": "#3b4550",
    "title": "#e4eaf0 bold",
    "strong": "#ffffff bold",
    "phase": "#9fd3ff",
    "focus": "#ffffff bold",
    "allocated": "#4a9be8",
    "swing": "#2f6aa6",
    "cached": "#8cc9f5",
    "outside": "#f0a030",
    "others": "#d683b4",
    "driver": "#9aa5b1",
    "unattributed": "#f2e35c",
    "free": "#46515c",
    "used": "#5f6b77",
    "opaque": "#c9a06a",
    "parameters": "#5cc4b0",
    "gradients": "#e8c468",
    "optimizer": "#b39ae8",
    "buffers": "#9aa5b1",
    "caches": "#f0a030",
    "live": "#4a9be8",
    "missing": "#b0a078",
    "remark": "#b0a078",
    "warning": "#f2c35c",
    "failure": "#ff8a70 bold",
    "badge": "#14181d on #f2e35c bold",
    "prompt": "#14181d on #9fd3ff bold",
    "key": "#9fd3ff bold",
    "ground": "#14181d",
    "steps": "#6f8fb5",
    "forward": "#5fb0d8",
    "backward": "#d8a05c",
    "update": "#b39ae8",
    "eval": "#7cc47c",
    "load": "#9aa5b1",
    "named": "#c9b48a",
}
LIGHT = {
    "background": "#fbfbf9",
    "text": "#2b333b",
    "dim": "#68737e",
    "rule": "#c3cad1",
    "title": "#10161c bold",
    "strong": "#000000 bold",
    "phase": "#0b5c99",
    "focus": "#000000 bold",
    "allocated": "#1f6fbf",
    "swing": "#4a90d0",
    "cached": "#7fb8e6",
    "outside": "#c46f00",
    "others": "#a8407e",
    "driver": "#6e7984",
    "unattributed": "#8a7a00",
    "free": "#c3cad1",
    "used": "#aab3bc",
    "opaque": "#8a6430",
    "parameters": "#0f7f6c",
    "gradients": "#a87800",
    "optimizer": "#6a4fb0",
    "buffers": "#6e7984",
    "caches": "#c46f00",
    "live": "#1f6fbf",
    "missing": "#7a6a30",
    "remark": "#7a6a30",
    "warning": "#985c00",
    "failure": "#b3261e bold",
    "badge": "#ffffff on #7a6a00 bold",
    "prompt": "#ffffff on #0b5c99 bold",
    "key": "#0b5c99 bold",
    "ground": "#ffffff",
    "steps": "#4f6f9f",
    "forward": "#1f7fae",
    "backward": "#a86414",
    "update": "#6a4fb0",
    "eval": "#2f7f2f",
    "load": "#68737e",
    "named": "#80682f",
}
ANSI = {
    "background": "default",
    "text": "default",
    "dim": "bright_black",
    "rule": "bright_black",
    "title": "default bold",
    "strong": "default bold",
    "phase": "cyan",
    "focus": "default bold",
    "allocated": "blue",
    "swing": "bright_blue",
    "cached": "bright_cyan",
    "outside": "yellow",
    "others": "magenta",
    "driver": "white",
    "unattributed": "bright_yellow",
    "free": "bright_black",
    "used": "bright_black",
    "opaque": "yellow",
    "parameters": "cyan",
    "gradients": "yellow",
    "optimizer": "magenta",
    "buffers": "white",
    "caches": "yellow",
    "live": "blue",
    "missing": "yellow",
    "remark": "yellow",
    "warning": "bright_yellow",
    "failure": "bright_red bold",
    "badge": "black on yellow bold",
    "prompt": "black on cyan bold",
    "key": "cyan bold",
    "ground": "black",
    "steps": "white",
    "forward": "cyan",
    "backward": "yellow",
    "update": "magenta",
    "eval": "green",
    "load": "bright_blue",
    "named": "bright_white",
}
MONO = {
    **dict.fromkeys(DARK, "default"),
    **dict.fromkeys(("title", "strong", "focus", "warning", "failure", "key"), "default bold"),
    "badge": "default reverse",
    "prompt": "default reverse",
}
"""No colour at all, for NO_COLOR: bold and reverse only, the textures tell the rest."""


CONTRAST = {
    **DARK,
    "background": "#000000",
    "text": "#ffffff",
    "dim": "#d0d0d0",
    "rule": "#a0a0a0",
    "title": "#ffffff bold",
    "phase": "#b8e0ff",
    "allocated": "#5cb2ff",
    "swing": "#3c8fdc",
    "cached": "#a8dcff",
    "outside": "#ffb020",
    "others": "#ff8ad0",
    "driver": "#c8c8c8",
    "unattributed": "#fff060",
    "free": "#9a9a9a",
    "used": "#b0b0b0",
    "opaque": "#ffc080",
    "missing": "#ffe0a0",
    "remark": "#ffe0a0",
    "warning": "#ffd24a bold",
    "failure": "#ff9a85 bold",
    "badge": "#000000 on #ffff00 bold",
    "prompt": "#000000 on #ffffff bold",
    "key": "#ffffff bold",
}
"""Nothing that is read stands below seven to one on its ground."""
SAFE = {
    **DARK,
    "background": "#101418",
    "dim": "#8e99a4",
    "phase": "#56b4e9",
    "allocated": "#0072b2",
    "swing": "#005a8c",
    "cached": "#56b4e9",
    "outside": "#e69f00",
    "others": "#cc79a7",
    "driver": "#8e99a4",
    "unattributed": "#f0e442",
    "free": "#4a545e",
    "opaque": "#d55e00",
    "parameters": "#009e73",
    "gradients": "#e69f00",
    "optimizer": "#cc79a7",
    "buffers": "#8e99a4",
    "live": "#0072b2",
    "missing": "#c8b06a",
    "remark": "#c8b06a",
    "warning": "#f0e442",
    "failure": "#ff8c42 bold",
    "badge": "#101418 on #f0e442 bold",
    "prompt": "#101418 on #56b4e9 bold",
    "key": "#56b4e9 bold",
}
"""The colours of Okabe and Ito, which stay apart for every common colour blindness."""


class Palette:
    """Styles by role, for one theme."""

    def __init__(self, name: str, colours: Mapping[str, str]) -> None:
        self.name = name
        self.textured = name == "mono"
        """Whether levels must be told apart by texture alone."""
        self._colours = colours
        self.style = lru_cache(maxsize=512)(self._style)
        self.background = colours["background"]
        self.native = self.background == "default"
        """Whether it uses the terminal's own colours."""

    def colour(self, role: str) -> str:
        """A role's foreground, as its name or number."""
        return self._colours[role].split()[0]

    def _style(self, role: str) -> Style:
        """``role``; ``a/b``: a on b; ``=words``: the workload's own style, on our ground."""
        if role.startswith("="):
            return self._foreign(role[1:])
        front, _, back = role.partition("/")
        if back:
            return Style.parse(f"{self.colour(front)} on {self.colour(back)}")
        wanted = self._colours[front]
        return Style.parse(wanted if " on " in wanted else f"{wanted} on {self.background}")

    def _foreign(self, words: str) -> Style:
        style = Style.parse(words)
        if self.textured:
            style = style.without_color
        return self.style("text") + style


PALETTES = {
    "dark": Palette("dark", DARK),
    "light": Palette("light", LIGHT),
    "ansi": Palette("ansi", ANSI),
    "mono": Palette("mono", MONO),
    "contrast": Palette("contrast", CONTRAST),
    "safe": Palette("safe", SAFE),
}


def choose(wanted: str | None, environ: Mapping[str, str]) -> Palette:
    """The palette for this terminal: NO_COLOR wins, then what was asked for, then what it can show."""
    if environ.get("NO_COLOR"):
        return PALETTES["mono"]
    if wanted is not None:
        return PALETTES[wanted]
    rich_colours = environ.get("COLORTERM") in ("truecolor", "24bit") or "256color" in environ.get("TERM", "")
    return PALETTES["dark" if rich_colours else "ansi"]


NATIVE = "ansi-dark"
"""Textual's own theme on the terminal's colours; it filters none of ours."""


def textual_theme(palette: Palette) -> str | Theme:
    """The theme for Textual's own surfaces: a new one, or the name of one that it has."""
    if palette.native:
        return NATIVE
    text, primary = (palette.colour(role) for role in ("text", "allocated"))
    return Theme(
        name=f"gpumem-{palette.name}",
        primary=primary,
        background=palette.background,
        surface=palette.background,
        panel=palette.background,
        foreground=text,
        dark=palette.name != "light",
    )

"""What comes from the terminal as messages: Textual's parser, but escape and a key are two keys.

A stalled line hands over at once what was typed one after the other, and so do tmux and
screen. Textual's parser takes escape and a key for one with alt, of which we have none,
and forgets most of those. Refuses to read the terminal and to know what a key does.
"""

import codecs
import re
from collections.abc import Iterator

from textual import events
from textual._xterm_parser import XTermParser
from textual.message import Message

_ESCAPE_AND_KEY = re.compile(r"\x1b(?=[ !-NQ-WYZ`ac-eg-~\x1b])")
"""Escape before a key that begins no sequence; alt+b and alt+f are left to lines that are typed."""

ESCAPE = "\x1b"


class Keyboard:
    """Takes bytes as they come."""

    def __init__(self, debug: bool = False) -> None:
        self._parser = XTermParser(debug)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._held = ""
        """An escape that came last: alone, or the beginning of what comes next."""

    def hear(self, data: bytes) -> Iterator[Message]:
        """What these bytes tell."""
        text = self._held + self._decode(data)
        self._held = ESCAPE if text.endswith(ESCAPE) else ""
        parts = _ESCAPE_AND_KEY.split(text)
        parts[-1] = parts[-1].removesuffix(ESCAPE)
        for number, part in enumerate(parts):
            if number:
                yield _escape()
            if part:
                yield from self._parser.feed(part)
        yield from self._parser.tick()

    def rest(self) -> Iterator[Message]:
        """What is known once nothing has come for a moment."""
        if self._held:
            self._held = ""
            yield _escape()
        yield from self._parser.tick()


def _escape() -> events.Key:
    return events.Key("escape", ESCAPE)

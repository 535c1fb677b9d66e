"""From a raw line of a log to what a program said, and who said it.

Takes off what terminals, launchers, clusters, test runners and mail put around a
line: colours (with their escape character kept, spelt out or lost), time stamps,
quoting, worker and rank prefixes. A line with a rank's prefix in its middle is two.
Refuses nothing: garbage becomes text without control characters.
"""

import re
from typing import NamedTuple


class Source(NamedTuple):
    """Who said a line, as far as its prefix tells."""

    rank: int | None = None
    local_rank: int | None = None
    worker: str | None = None
    pid: int | None = None


class Segment(NamedTuple):
    """What one source said on one line."""

    at: int
    """Position among all pieces of lines that were kept; the order of a log."""
    line: int
    source: Source
    text: str


NOBODY = Source()

_ESCAPES = re.compile(
    r"(?:\x1b|\\x1b|\\u001[bB]|\\033|\\e|␛|\^\[)"
    r"(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[()][0-9A-B])"
)
_LOST_ESCAPES = re.compile(r"\[\d{1,3}(?:;\d{1,3}){0,4}m")
_BREAKS = re.compile(r"\r|<br ?/?>")
_SPELT_BREAKS = re.compile(r"\r|\\r\\n|\\n|\\r|<br ?/?>")
_WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_RANK = re.compile(
    r"\[(?:rank|Rank|RANK) ?(\d{1,6})\] ?:? ?|\[default(\d{1,4})\]: ?|\[\d+,(\d{1,6})\]<std(?:err|out)> ?: ?"
)
_LOOSE_RANK = re.compile(r"(?:rank|Rank|RANK)[ =:]?(\d{1,6})\s*(?:\||:|\]|-)\s")
_WORKER = re.compile(r"\((?:(?P<name>[A-Za-z_][\w.:/<>= -]{0,60}?)[ ,]+)?pid=(?P<pid>\d{1,9})[^()]{0,80}\) ?")
_HOST = re.compile(
    r"(?P<name>[A-Za-z][\w.-]{0,40}) {0,8}\| |(?P<host>[a-z][\w-]{0,20}\d+): |(?P<task>\d{1,5}): "
)
_QUOTES = re.compile(r"(?:[>|#*•│┃║]|&gt;|//|- |E {2,}(?=\S))\s*")
_STAMP = re.compile(
    r"\[?(?:"
    r"\d{4}[-/]\d\d[-/]\d\d[T ,_]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    r"|(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
    r"|\d\d[-/]\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"|\d{1,8}\.\d{6}(?![\dA-Za-z])"
    r")\]?(?: - | \| |: |, | )?"
)
_LEVEL = re.compile(
    r"\[?(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\]?(?=[\s:|-])(?: - | \| |: | )?"
    r"|\[[\w./-]{1,80}\.\w{1,4}:\d{1,6}\]\s?"
)
_REPEATED = re.compile(r"\[repeated \d+x across cluster\]")
_BOX = re.compile(r"[\u2500-\u259f]")
_SPACE = re.compile(r"\s+")


def segments(at: int, line: int, raw: bytes) -> list[Segment]:
    """The segments of a raw line, or of a piece of one, in order; empty ones are dropped."""
    text = raw.decode("utf-8", "replace")
    if "\x1b" in text or "[" in text or "␛" in text:
        text = _LOST_ESCAPES.sub("", _ESCAPES.sub("", text))
    found: list[Segment] = []
    source = NOBODY
    # "\n" spelt out is a break in JSON and in repr(), but not in C:\new
    breaks = _BREAKS if _WINDOWS_PATH.search(text) else _SPELT_BREAKS
    for part in breaks.split(text):  # the prefix stands only before the first part
        source = _part((at, line), part, source, found)
    return found


def _part(place: tuple[int, int], text: str, source: Source, found: list[Segment]) -> Source:
    at = 0
    for match in _RANK.finditer(text):
        if text[at : match.start()].strip():
            source = _say(place, text[at : match.start()], source, found)
        if match[1] is not None or match[3] is not None:
            source = source._replace(rank=int(match[1] or match[3]))
        else:
            source = source._replace(local_rank=int(match[2]))
        at = match.end()
    return _say(place, text[at:], source, found)


def _say(place: tuple[int, int], text: str, source: Source, found: list[Segment]) -> Source:
    text = _CONTROL.sub("", text).rstrip()
    for _ in range(10):
        text, source, more = _peel(text, source)
        if not more:
            break
    text = _REPEATED.sub("", text).rstrip()
    if text.strip():
        found.append(Segment(*place, source, text))
    return source


def _peel(text: str, source: Source) -> tuple[str, Source, bool]:
    """One prefix off: the rest, who speaks, and whether there was one. Indentation is kept at the end."""
    start = len(text) - len(text.lstrip())
    if match := _WORKER.match(text, start):
        named = source._replace(worker=match["name"] or source.worker, pid=int(match["pid"]))
        return text[match.end() :], named, True
    if match := _LOOSE_RANK.match(text, start):
        return text[match.end() :], source._replace(rank=int(match[1])), True
    for pattern in (_STAMP, _QUOTES, _LEVEL):
        if (match := pattern.match(text, start)) and match.end() > start:
            return text[match.end() :], source, True
    if match := _HOST.match(text, start):
        name = match["name"] or match["host"] or f"task {match['task']}"
        return text[match.end() :], source._replace(worker=source.worker or name), True
    return text, source, False


def squeeze(text: str) -> str:
    """The text without white space and box drawing: in it no wrap can split a number or a word."""
    return _SPACE.sub("", _BOX.sub("", text))


def is_box(char: str) -> bool:
    """Whether a character only draws, as the bars and boxes of a terminal do."""
    return "\u2500" <= char <= "\u259f"


def readable(text: str, most: int = 200) -> str:
    """One line that is safe to print: no control characters, at most so many characters."""
    flat = _SPACE.sub(" ", _CONTROL.sub("", text)).strip()
    return flat if len(flat) <= most else flat[: most - 1] + "…"

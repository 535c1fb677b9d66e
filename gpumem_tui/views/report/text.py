"""A report as plain text: tables in columns, textures instead of colours."""

import textwrap
from collections.abc import Iterable, Sequence

from gpumem_tui.views.bar import bar
from gpumem_tui.views.report.sheet import Bar, Chart, Column, Item, Sheet, Table, Words
from gpumem_tui.views.text import TEXTURE, cut, left, plain, right, to_ascii, width

_NARROW = 20
"""A column of text is wrapped down to this many cells before others give way."""

_GAP = 2


def render(sheet: Sheet, *, cells: int = 100, ascii: bool = False) -> str:
    """The whole report in lines of at most ``cells`` cells (40 at least), ending with a newline."""
    cells = max(40, cells)
    lines = [*_wrap(f"{sheet.title}{'   ' + sheet.badge if sheet.badge else ''}", cells, 0), ""]
    for item in sheet.summary:
        lines += _item(item, cells, 0)
    for part in sheet.parts:
        lines += ["", part.title.upper(), "═" * width(part.title)]
        lines += _wrap(part.lead, cells, 0)
        for section in part.sections:
            lines += ["", f"  {section.title}"]
            for item in section.items:
                lines += _item(item, cells, 2)
    lines += ["", *_wrap(sheet.foot, cells, 0)]
    text = "\n".join(cut(line.rstrip(), cells) for line in lines) + "\n"
    return "\n".join(map(to_ascii, text.split("\n"))) if ascii else text


def _item(item: Item, cells: int, indent: int) -> Iterable[str]:
    match item:
        case Words():
            return _wrap(item.text, cells, indent)
        case Table():
            return _table(item, cells, indent)
        case Bar():
            return _bar(item, cells, indent)
        case Chart():
            return _wrap(item.description, cells, indent)


def _wrap(text: str, cells: int, indent: int) -> list[str]:
    pad = " " * indent
    return textwrap.wrap(text, cells, initial_indent=pad, subsequent_indent=pad, break_on_hyphens=False) or [
        ""
    ]


def _bar(item: Bar, cells: int, indent: int) -> list[str]:
    pad = " " * indent
    drawn = plain(bar([(key, size) for key, _, size in item.parts], item.total_bytes, cells - indent))
    return [*_wrap(item.title, cells, indent), pad + drawn]


def _table(item: Table, cells: int, indent: int) -> list[str]:
    """Caption, head, rows; what found no room is said below."""
    room = cells - indent - 2
    rows = [[cell.text for cell in row] for row in item.rows]
    if item.keys:
        rows = [
            [f"{TEXTURE.get(key, ' ')} {row[0]}", *row[1:]] for key, row in zip(item.keys, rows, strict=True)
        ]
    pad = " " * (indent + 2)
    lines = _wrap(item.caption, cells, indent)
    two = len(item.columns) == 2 and item.columns[0].title == "what"
    gave_way: dict[str, None] = {}
    for number, chosen in enumerate(_blocks(item.columns, rows, room)):
        kept, widths, dropped, _ = _fitted(chosen, item.columns, rows, room)
        gave_way.update(dict.fromkeys(dropped))
        lines += [""] if number else []
        if not two:
            lines += _row([item.columns[n].title for n in kept], kept, item.columns, widths, pad, bottom=True)
        for row in rows:
            lines += _row([row[n] for n in kept], kept, item.columns, widths, pad)
    if gave_way:
        lines += _wrap(f"no room for: {', '.join(gave_way)}", cells, indent + 2)
    return lines


def _blocks(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> Iterable[list[int]]:
    """Columns that stand beside each other: all, or with each block as many of a series as find room."""
    always = [n for n, column in enumerate(columns) if not column.serial]
    waiting = [n for n, column in enumerate(columns) if column.serial]
    while True:
        taken = len(waiting)
        while taken > 1 and not _fitted(always + waiting[:taken], columns, rows, room)[3]:
            taken -= 1
        yield sorted(always + waiting[:taken])
        waiting = waiting[taken:]
        if not waiting:
            return


def _fitted(
    chosen: Iterable[int], columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int
) -> tuple[list[int], dict[int, int], list[str], bool]:
    """Of the chosen columns those kept, widths, titles of those that gave way, and whether all fits."""
    kept, dropped = sorted(chosen), []
    whole = {
        n: max([max(map(width, columns[n].title.split() or [""])), *(width(row[n]) for row in rows)])
        for n in kept
    }
    while True:
        widths = {n: whole[n] for n in kept}
        over = sum(widths.values()) + _GAP * (len(kept) - 1) - room
        soft = [n for n in kept if not columns[n].right]
        while over > 0 and any(widths[n] > _NARROW for n in soft):
            widths[max(soft, key=widths.__getitem__)] -= 1
            over -= 1
        give = [n for n in kept if columns[n].keep < 9]
        if over <= 0 or not give:
            break
        least = min(give, key=lambda n: columns[n].keep)
        kept.remove(least)
        dropped.append(columns[least].title)
    return kept, widths, dropped, over <= 0


def _row(
    texts: Sequence[str],
    kept: Sequence[int],
    columns: Sequence[Column],
    widths: dict[int, int],
    pad: str,
    *,
    bottom: bool = False,
) -> list[str]:
    """One row of a table, in as many lines as its longest text needs."""
    wrapped = [
        textwrap.wrap(text, widths[n], break_on_hyphens=False) or [""]
        for text, n in zip(texts, kept, strict=True)
    ]
    height = max(map(len, wrapped))
    lines = []
    for number in range(height):
        fields = []
        for parts, n in zip(wrapped, kept, strict=True):
            at = number - (height - len(parts)) if bottom else number
            text = parts[at] if 0 <= at < len(parts) else ""
            fields.append(right(text, widths[n]) if columns[n].right else left(text, widths[n]))
        lines.append(pad + (" " * _GAP).join(fields))
    return lines

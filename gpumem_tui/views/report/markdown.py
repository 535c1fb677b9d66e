"""A report as Markdown (GitHub's tables). Text of other people is escaped and stays text."""

import re
from collections.abc import Iterable

from gpumem_tui import units
from gpumem_tui.views.bar import bar
from gpumem_tui.views.report.sheet import Bar, Chart, Item, Sheet, Table, Words
from gpumem_tui.views.text import TEXTURE, plain

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&])")
_BAR_CELLS = 72


def render(sheet: Sheet) -> str:
    """The whole report, ending with a newline."""
    lines = [f"# {_escape(sheet.title)}", ""]
    if sheet.badge:
        lines += [f"**{_escape(sheet.badge)}**", ""]
    for item in sheet.summary:
        lines += _item(item)
    for part in sheet.parts:
        lines += [f"## {_escape(part.title)}", "", f"*{_escape(part.lead)}*", ""]
        for section in part.sections:
            lines += [f"### {_escape(section.title)}", ""]
            for item in section.items:
                lines += _item(item)
    lines += ["---", "", _escape(sheet.foot)]
    return "\n".join(lines) + "\n"


def _item(item: Item) -> Iterable[str]:
    match item:
        case Words():
            text = _escape(item.text)
            return [f"**{text}**" if item.role in ("failure", "warning", "headline") else text, ""]
        case Table():
            return _table(item)
        case Bar():
            return _bar(item)
        case Chart():
            return [_escape(item.description), ""]


def _bar(item: Bar) -> list[str]:
    drawn = plain(bar([(key, size) for key, _, size in item.parts], item.total_bytes, _BAR_CELLS))
    legend = "  ".join(
        f"{TEXTURE[key]} {label} {units.format_bytes(size)}" for key, label, size in item.parts
    )
    return [f"{_escape(item.title)}", "", "```text", drawn, legend, "```", ""]


def _table(item: Table) -> list[str]:
    lines = [f"**{_escape(item.caption)}**", ""]
    if not item.rows:
        return lines
    lines.append("| " + " | ".join(_escape(column.title) for column in item.columns) + " |")
    lines.append("|" + "|".join("---:" if column.right else "---" for column in item.columns) + "|")
    lines += ["| " + " | ".join(_escape(cell.text) for cell in row) + " |" for row in item.rows]
    return [*lines, ""]


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)

"""A report as one HTML file: no script, nothing from the network, charts as inline SVG.

Every text of other people is escaped; a content security policy forbids the rest.
"""

from collections.abc import Iterable
from html import escape
from itertools import count

from gpumem_tui import units
from gpumem_tui.views.report import svg
from gpumem_tui.views.report.sheet import Bar, Cell, Chart, Column, Item, Sheet, Table, Words
from gpumem_tui.views.report.style import style_sheet
from gpumem_tui.views.text import cut

_DENSE = 10
"""A table of more columns is set smaller, so that it fits a printed page."""

_PROSE = 30
"""A field of more characters is prose: on a narrow screen it keeps a width that can be read."""

_MARKS = 6
"""Failures told below a chart, the latest ones; the chart has all."""

SCOPE = "gpumem-tui"
"""Class of what is put into another page."""

_LABEL = 100
"""Characters of such a line; the chart's own tooltip has all."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(sheet: Sheet) -> str:
    """The whole page."""
    numbers = count(1)
    badge = f'<strong class="badge">{escape(sheet.badge)}</strong>' if sheet.badge else ""
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(sheet.title)}{' · ' + escape(sheet.badge) if sheet.badge else ''}</title>",
        f"<style>{style_sheet()}</style></head><body>",
        f"<header><h1>{escape(sheet.title)}</h1>{badge}",
        *_items(sheet.summary, numbers),
        "</header>",
        f"<nav>{_contents(sheet)}</nav><main>" if sheet.parts else "<main>",
    ]
    for number, part in enumerate(sheet.parts, 1):
        lines.append(f'<section id="part-{number}"><h2>{escape(part.title)}</h2>')
        lines.append(f'<p class="lead">{escape(part.lead)}</p>')
        for section in part.sections:
            lines.append(f"<h3>{escape(section.title)}</h3>")
            lines += _items(section.items, numbers)
        lines.append("</section>")
    lines += ["</main>", f"<footer><p>{escape(sheet.foot)}</p></footer></body></html>", ""]
    return "\n".join(lines)


def _contents(sheet: Sheet) -> str:
    """Links to the parts."""
    return " · ".join(
        f'<a href="#part-{number}">{escape(part.title)}</a>' for number, part in enumerate(sheet.parts, 1)
    )


def fragment(sheet: Sheet) -> str:
    """Its summary alone, for a page of somebody else's: the style reaches nothing around it."""
    badge = f'<strong class="badge">{escape(sheet.badge)}</strong>' if sheet.badge else ""
    lines = [
        f'<div class="{SCOPE}"><style>{style_sheet(f".{SCOPE}")}</style>',
        f"<h3>{escape(sheet.title)} {badge}</h3>",
        *_items(sheet.summary, count(id(sheet))),
        "</div>",
    ]
    return "\n".join(lines)


def _items(items: Iterable[Item], numbers: "count[int]") -> Iterable[str]:
    for item in items:
        match item:
            case Words():
                yield f"<p{_class(item.role)}>{escape(item.text)}</p>"
            case Table():
                yield _table(item)
            case Bar():
                yield f'<p class="drawn">{escape(item.title)}</p>{svg.bar(item, next(numbers))}'
            case Chart():
                drawn = f'<div class="wide">{svg.chart(item, next(numbers))}</div>'
                yield f'<p class="drawn">{escape(item.title)}</p>{drawn}{_legend(item)}'


def _class(role: str) -> str:
    return f' class="{role}"' if role else ""


def _table(item: Table) -> str:
    pair = len(item.columns) == 2 and item.columns[0].title == "what"
    head = "".join(
        f'<th scope="col"{_class("right" if column.right else "")}>{escape(column.title) or "kind"}</th>'
        for column in item.columns
    )
    head = "" if pair else f"<thead><tr>{head}</tr></thead>"
    keys = item.keys or ("",) * len(item.rows)
    rows = "".join(_row(row, item.columns, key) for row, key in zip(item.rows, keys, strict=True))
    caption = f"<caption>{escape(item.caption)}</caption>"
    dense = _class("dense" if len(item.columns) > _DENSE else "")
    return f'<div class="wide"><table{dense}>{caption}{head}<tbody>{rows}</tbody></table></div>'


def _row(row: tuple[Cell, ...], columns: tuple[Column, ...], key: str) -> str:
    swatch = f'<span class="swatch {escape(key)}"></span>' if key else ""
    fields = [f'<th scope="row">{swatch}{escape(row[0].text)}</th>']
    for cell, column in zip(row[1:], columns[1:], strict=True):
        prose = "prose" if len(cell.text) > _PROSE else ""
        kinds = " ".join(filter(None, ("right" if column.right else "", prose, cell.role)))
        title = f' title="{cell.bytes:,} bytes"' if cell.bytes is not None else ""
        fields.append(f"<td{_class(kinds)}{title}>{escape(cell.text)}</td>")
    return f"<tr>{''.join(fields)}</tr>"


def _legend(item: Chart) -> str:
    lines = list(dict.fromkeys((trace.key, trace.label.partition(" rank ")[0]) for trace in item.traces))
    entries = [f'<li><span class="line {key}"></span>{escape(label)}</li>' for key, label in lines]
    for t_ns, label in item.marks[-_MARKS:]:
        after = units.format_seconds((t_ns - item.since_ns) / 1e9)
        when = f"{units.format_seconds((item.until_ns - t_ns) / 1e9)} before" if item.zero else f"at {after}"
        entries.append(f'<li><span class="line mark"></span>{when}: {escape(cut(label, _LABEL))}</li>')
    seen = {band.phase for lane in item.lanes for band in lane.bands}
    shown = [phase for phase in svg.PHASES if phase in seen]
    entries += [f'<li><span class="swatch band-{phase}"></span>{phase}</li>' for phase in shown]
    others = sorted(seen - set(svg.PHASES))
    if others:
        entries.append(f'<li><span class="swatch band-other"></span>{escape(", ".join(others))}</li>')
    return f'<ul class="legend">{"".join(entries)}</ul>'

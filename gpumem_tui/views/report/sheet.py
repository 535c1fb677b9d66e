"""What a report is made of: parts with sections, sections with sentences, tables, bars and charts.

Data only, in words; refuses markup, widths and colours. A figure is text with its raw
bytes beside it, a missing one is text that gives the reason.
"""

from collections.abc import Sequence

import msgspec

from gpumem_tui import units
from gpumem_tui.analysis.rankstate import Series
from gpumem_tui.analysis.state import Band


class Cell(msgspec.Struct, frozen=True):
    """One field of a table."""

    text: str
    bytes: int | None = None
    """The raw figure behind the text, where it is one of bytes."""
    role: str = ""
    """``failure`` or ``warning`` where it is one, ``missing`` where the text is a reason."""


class Column(msgspec.Struct, frozen=True):
    """The head of a column."""

    title: str
    right: bool = False
    """Figures stand on the right."""
    keep: int = 9
    """Where there is no room for all, columns of the lowest number give way first."""
    serial: bool = False
    """One of a series, such as one a run: where there is no room for all, the table goes on below itself."""


class Table(msgspec.Struct, frozen=True):
    """Rows under a head."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    keys: tuple[str, ...] = ()
    """Of every row, the term that it stands for (a texture and a colour); empty where rows are no terms."""


class Words(msgspec.Struct, frozen=True):
    """A sentence."""

    text: str
    role: str = ""
    """``failure``, ``warning`` or ``headline``."""


class Bar(msgspec.Struct, frozen=True):
    """One device's ledger from left to right."""

    title: str
    parts: tuple[tuple[str, str, int | None], ...]
    """(key, label, bytes)."""
    total_bytes: int | None


class Trace(msgspec.Struct, frozen=True):
    """One curve of a chart."""

    label: str
    key: str
    """``used``, ``reserved`` or ``allocated``."""
    series: Series


class Lane(msgspec.Struct, frozen=True):
    """Phase bands of one rank at one depth."""

    label: str
    bands: tuple[Band, ...]


class Chart(msgspec.Struct, frozen=True):
    """A device's memory over time, with phase bands below and failures on the axis."""

    title: str
    description: str
    since_ns: int
    until_ns: int
    top_bytes: int
    """Upper end of the scale: the card's total where it is known."""
    top_is_total: bool
    traces: tuple[Trace, ...]
    lanes: tuple[Lane, ...]
    marks: tuple[tuple[int, str], ...]
    """(t_ns, label) of what went wrong."""
    zero: str = ""
    """What its last moment is, where the axis counts back from it; empty where it counts from the start."""


Item = Words | Table | Bar | Chart


class Section(msgspec.Struct, frozen=True):
    """A heading and what stands under it."""

    title: str
    items: tuple[Item, ...]


class Part(msgspec.Struct, frozen=True):
    """One of the report's parts."""

    title: str
    lead: str
    """What kind of figure stands in it, in one sentence."""
    sections: tuple[Section, ...]


class Sheet(msgspec.Struct, frozen=True):
    """The whole report."""

    title: str
    badge: str
    """SIMULATED or RECORDED, with what; empty for real cards."""
    summary: tuple[Item, ...]
    parts: tuple[Part, ...]
    foot: str


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell | str]],
    keys: Sequence[str] = (),
) -> Table:
    """A table from cells or plain texts."""
    made = tuple(tuple(Cell(each) if isinstance(each, str) else each for each in row) for row in rows)
    return Table(caption, tuple(columns), made, tuple(keys))


def size(value: int | None, reason: str = "", *, bound: bool = False) -> Cell:
    """A figure in binary units; the reason beside ``—`` where there is none."""
    if value is None:
        return Cell(f"{units.MISSING} ({reason})" if reason else units.MISSING, role="missing")
    return Cell(f"{'≥ ' if bound else ''}{units.format_bytes(value)}", value)


def raw(value: int | None) -> Cell:
    """The same figure in bytes, to the byte."""
    return (
        Cell(units.MISSING, role="missing") if value is None else Cell(f"{value:,}".replace("-", "−"), value)
    )

"""How many rows each panel of the overview and of the phases gets. Arithmetic only."""

from typing import NamedTuple

WIDE = 140
"""From this width on, ranks, processes and events stand beside the devices."""


class Plan(NamedTuple):
    """Heights in rows; 0 hides a panel."""

    wide: bool
    full: bool
    """Devices as blocks; otherwise as a table."""
    devices: int
    chart: int
    ranks: int
    processes: int
    events: int


def arrange(cells: int, height: int, blocks: list[int], ranks: int, processes: int, events: int) -> Plan:
    """Share ``height`` rows out.

    ``blocks`` are the heights of the devices' blocks; the rest are counts of rows. Without a
    device there is one row to say so, and no chart.
    """
    charted, blocks = bool(blocks), blocks or [1]
    wide = cells >= WIDE
    tall, table = sum(blocks), len(blocks) + 1
    full = tall <= height * (0.68 if wide else 0.46) or (len(blocks) == 1 and tall <= height)
    devices = tall if full else min(table, max(2, height // 2))
    devices = min(devices, height)
    rest = height - devices
    wants = {"ranks": 1 + ranks, "processes": 1 + processes, "events": 1 + max(4, events)}
    if wide:
        side = share(height, {name: (2, want) for name, want in wants.items()})
        side["events"] += height - sum(side.values())
        return Plan(wide, full, devices, rest if charted else 0, **side)
    least = {name: (2, want) for name, want in wants.items()}
    chart = {"chart": (5, max(8, height // 3))} if charted else {}
    rows = {"chart": 0, **share(rest, {**chart, **{n: least[n] for n in ("ranks", "events", "processes")}})}
    spare = rest - sum(rows.values())
    rows["chart" if rows["chart"] else "events"] += spare
    return Plan(wide, full, devices, **rows)


class PhasesPlan(NamedTuple):
    """Heights of the panels of the phases, in rows; 0 hides a panel."""

    now: int
    table: int
    compared: int
    composition: int
    inputs: int
    chart: int = 0


_CHART = 10
"""Rows from which on a chart beside the phases says something."""


def arrange_phases(
    height: int, ranks: int, table: int, compared: int, composition: int, inputs: int, *, beside: bool = False
) -> PhasesPlan:
    """Share ``height`` rows out. All else are counts of rows; the table's has its head.

    The table comes first; the ranks compared, composition and inputs are shown where there is room.
    What nobody wants stays blank at the bottom. ``beside``: composition and inputs have a column of
    their own, and a chart what they leave of it.
    """
    if height < 4:
        return PhasesPlan(0, height, 0, 0, 0)
    wants = {
        "table": (min(1 + table, max(4, height // 2)), 1 + table),
        "now": (min(1 + ranks, max(2, height // 5)), 1 + ranks),
    }
    if composition:
        wants["composition"] = (min(1 + composition, 5), 1 + composition)
    if compared:
        wants["compared"] = (min(1 + compared, 4), 1 + compared)
    if inputs:
        wants["inputs"] = (2, 1 + inputs)
    column: tuple[str, ...] = ("composition", "inputs") if beside else ()
    side = {name: wants.pop(name) for name in column if name in wants}
    rows = {**share(height, wants), **share(height, side)}
    if beside:
        rest = height - sum(rows[name] for name in side)
        rows["chart"] = rest if rest >= _CHART else 0
    return PhasesPlan(**{name: rows.get(name, 0) for name in PhasesPlan._fields})


def share(rows: int, wants: dict[str, tuple[int, int]]) -> dict[str, int]:
    """First what each needs at least, in order, as far as it goes; then row by row up to its wish."""
    given = dict.fromkeys(wants, 0)
    for name, (least, _) in wants.items():
        if least <= rows:
            given[name] = least
            rows -= least
    while rows:
        hungry = [name for name, (_, want) in wants.items() if 0 < given[name] < want]
        if not hungry:
            break
        for name in hungry[:rows]:
            given[name] += 1
        rows -= min(rows, len(hungry))
    return given

"""How much a root module was given: elements of its input tensors, and the largest load of each phase.

Reads the text in which the agent tells inputs (``float32[8,512] mask=bool[8]``). Pure.
"""

import math
import re
from collections.abc import Iterable

import msgspec

from gpumem_tui.analysis.rankstate import InputRow, RankState

_TENSOR = re.compile(r"(?:\w+=)?\w+\[(?P<shape>[\d,]*)\]")


class Load(msgspec.Struct, frozen=True):
    """The largest input of one phase, over all ranks."""

    phase: str
    name: str
    input: str
    elements: int | None
    """Of all its tensors together; None where the text tells no shapes."""
    count: int
    """How often it was seen, over all ranks."""
    kinds: int
    """Different inputs that this phase has seen."""


def elements_of(text: str) -> int | None:
    """Elements of all tensors of one input; None where there is no tensor in it."""
    shapes = [match["shape"] for match in _TENSOR.finditer(text)]
    if not shapes:
        return None
    return sum(math.prod(int(side) for side in shape.split(",") if side) for shape in shapes)


def largest_loads(ranks: Iterable[RankState]) -> tuple[Load, ...]:
    """Of each phase, the input with the most elements; ones without shapes only where no other is."""
    groups: dict[tuple[str, str], list[InputRow]] = {}
    for rank in ranks:
        for row in rank.inputs:
            groups.setdefault((row.phase, row.name), []).append(row)
    return tuple(_largest(phase, name, rows) for (phase, name), rows in groups.items())


def _largest(phase: str, name: str, rows: list[InputRow]) -> Load:
    best = max(rows, key=lambda row: (elements_of(row.input) is not None, elements_of(row.input) or 0))
    return Load(
        phase=phase,
        name=name,
        input=best.input,
        elements=elements_of(best.input),
        count=sum(row.count for row in rows if row.input == best.input),
        kinds=len({row.input for row in rows}),
    )

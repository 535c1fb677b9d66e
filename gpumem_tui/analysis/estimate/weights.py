"""Lines for what the weights hold: a uniform number of bits, or format by format as a header stores them."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from gpumem_tui.analysis.estimate import tensors as stored
from gpumem_tui.analysis.estimate.figures import (
    Basis,
    Input,
    Line,
    Place,
    basis_of,
    bytes_of,
    per_rank,
    read,
    say,
    say_split,
)

LEAST_PLAIN_BITS = 16
"""Formats narrower than this come with scales in practice."""


@dataclass(frozen=True)
class Group:
    """Weights of one format as they lie on the device."""

    name: str
    count: Input[int]
    bits: Input[Fraction]
    stored_bits: int | None = None
    """In the file, where there is one."""
    parameters: bool = True
    """False for integers, whose elements are not parameters one by one."""


def group_stored(tensors: Sequence[stored.Tensor], path: str, bits: Input[Fraction] | None) -> list[Group]:
    """Groups of a checkpoint: as stored, or floating formats converted to ``bits`` when loaded."""
    groups = []
    for dtype, members in stored.by_format(tensors).items():
        counts = stored.is_parameter(members[0])
        as_stored = read(Fraction(members[0].bits), f"{path}: stored as {dtype}")
        groups.append(
            Group(
                name=dtype,
                count=read(stored.elements(members), f"{path}: {len(members):,} tensors"),
                bits=bits if bits is not None and counts else as_stored,
                stored_bits=members[0].bits,
                parameters=counts,
            )
        )
    return groups


def weight_lines(groups: Sequence[Group], parts: int, what: str, scaled: bool) -> list[Line]:
    """The weights on one device, split evenly over ``parts`` ranks or devices (``what``).

    ``scaled``: scales are counted apart, so that narrow formats need no remark.
    """
    lines = []
    for group in groups:
        count, bits = group.count.value, group.bits.value
        unit = "parameters" if group.parameters else "elements"
        notes: list[str] = []
        if group.stored_bits is None:
            if bits < LEAST_PLAIN_BITS and not scaled:
                notes.append(
                    f"packed {say(bits)} bits without scales and other metadata; --group-size counts them"
                )
        elif bits != group.stored_bits:
            notes.append(f"stored as {group.name} ({group.stored_bits} bits), converted when loaded")
            if bits < LEAST_PLAIN_BITS:
                notes.append("every tensor converted; loaders commonly keep embeddings and norms as stored")
                if not scaled:
                    notes.append("without scales and other metadata; --group-size counts them")
        if not group.parameters:
            notes.append(
                "integers: packed or quantised values, indices or buffers; not counted as parameters"
            )
        shared = parts > 1 and what == "devices"
        narrowed = group.stored_bits is not None and group.stored_bits != bits < LEAST_PLAIN_BITS
        lines.append(
            Line(
                key=f"weights.{group.name}" if group.name else "weights",
                title=f"weights, {group.name}" if group.name else "weights",
                bytes=bytes_of(per_rank(count, parts), bits),
                basis=Basis.ASSUMED if narrowed or shared else basis_of(group.count, group.bits),
                formula=f"{say(count)} {unit} × {say(bits)} bits ÷ 8" + say_split(parts, what),
                notes=tuple(notes),
            )
        )
    return lines


def disk_line(groups: Sequence[Group]) -> Line:
    """What the checkpoint stores, where that is not what is loaded."""
    size = sum(bytes_of(g.count.value, Fraction(g.stored_bits or 0)) for g in groups)
    parts = [f"{say(g.count.value)} × {g.stored_bits} bits ({g.name})" for g in groups]
    return Line("storage", "checkpoint", size, Basis.COMPUTED, " + ".join(parts), Place.DISK)


def scale_line(count: Input[int], group: Input[int], bits: Input[Fraction], parts: int, what: str) -> Line:
    """Scales of weights that are quantised in groups."""
    return Line(
        key="weights.scales",
        title="scales of the weights",
        bytes=bytes_of(per_rank(-(-count.value // group.value), parts), bits.value),
        basis=basis_of(count, group, bits),
        formula=f"{say(count.value)} parameters ÷ groups of {say(group.value)} × {say(bits.value)} bits ÷ 8"
        + say_split(parts, what),
    )

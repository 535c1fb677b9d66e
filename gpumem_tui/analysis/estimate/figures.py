"""The words of an estimate: inputs that know where they come from, lines that know how they came to be."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class Origin(str, Enum):
    """Where an input comes from."""

    GIVEN = "given"
    READ = "read"
    ASSUMED = "assumed"


class Basis(str, Enum):
    """How a line came to be: *computed* from what was given or read, or *assumed* in some part."""

    COMPUTED = "computed"
    ASSUMED = "assumed"


class Place(str, Enum):
    """Where the bytes lie. Only the device's are summed."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"


@dataclass(frozen=True)
class Input(Generic[Value]):
    """One number or name that the estimate rests on."""

    value: Value
    origin: Origin
    source: str
    """The option, the file and key, or why it was assumed."""

    def but(self, value: Value) -> "Input[Value]":
        """The same origin for a value that follows from this one."""
        return replace(self, value=value)


def given(value: Value, option: str) -> Input[Value]:
    """An input from the command line."""
    return Input(value, Origin.GIVEN, option)


def read(value: Value, source: str) -> Input[Value]:
    """An input from a file."""
    return Input(value, Origin.READ, source)


def assumed(value: Value, why: str) -> Input[Value]:
    """An input that nobody gave."""
    return Input(value, Origin.ASSUMED, why)


def basis_of(*inputs: Input[Any] | None) -> Basis:
    """Assumed as soon as one input is."""
    if any(entry is not None and entry.origin is Origin.ASSUMED for entry in inputs):
        return Basis.ASSUMED
    return Basis.COMPUTED


@dataclass(frozen=True)
class Line:
    """Bytes in one place, or the reason why there is no figure; never a zero for "unknown"."""

    key: str
    """Stable name in JSON."""
    title: str
    bytes: int | None
    basis: Basis
    formula: str
    place: Place = Place.DEVICE
    notes: tuple[str, ...] = ()
    reason: str | None = None
    """Set exactly if ``bytes`` is None."""

    def __post_init__(self) -> None:
        if (self.bytes is None) == (self.reason is None):
            raise ValueError("a line has either bytes or a reason")


@dataclass(frozen=True)
class Omission:
    """Something that a running program holds and the estimate does not count."""

    key: str
    text: str


@dataclass(frozen=True)
class Estimate:
    """What one device must hold of what was declared; the same on each of ``ranks`` ranks."""

    inputs: dict[str, Input[Any]]
    lines: tuple[Line, ...]
    omissions: tuple[Omission, ...]
    notes: tuple[str, ...] = ()
    ranks: int = 1
    split: int = 1
    """Devices that one copy of the model is split over (tensor parallel)."""
    devices: tuple[int, ...] = ()
    """Sizes in bytes to set the sum against."""

    def at(self, place: Place) -> tuple[Line, ...]:
        """The lines of one place."""
        return tuple(line for line in self.lines if line.place is place)

    @property
    def device_bytes(self) -> int:
        """Sum of the known lines on the device."""
        return total(self.at(Place.DEVICE))

    @property
    def unknown(self) -> tuple[Line, ...]:
        """Lines on the device without a figure: the sum is at least what it says."""
        return tuple(line for line in self.at(Place.DEVICE) if line.bytes is None)

    @property
    def basis(self) -> Basis:
        """Of the sum: assumed as soon as one of its lines is."""
        if any(line.basis is Basis.ASSUMED for line in self.at(Place.DEVICE)):
            return Basis.ASSUMED
        return Basis.COMPUTED


def total(lines: Sequence[Line]) -> int:
    """Sum in bytes of the lines that have a figure."""
    return sum(line.bytes for line in lines if line.bytes is not None)


def bytes_of(values: int, bits: Fraction) -> int:
    """Bytes that hold so many values of so many bits, rounded up to whole bytes."""
    return -(-values * bits.numerator // (8 * bits.denominator))


def per_rank(count: int, ranks: int) -> int:
    """The largest part of an even split."""
    return -(-count // ranks)


def say(number: int | Fraction) -> str:
    """``7,000,000,000``; ``4.5``."""
    if isinstance(number, Fraction) and number.denominator != 1:
        return f"{float(number):g}"
    return f"{int(number):,}"


def say_split(ranks: int, what: str = "ranks") -> str:
    """The end of a formula whose result is split evenly; nothing where it is not."""
    return f" ÷ {ranks:,} {what}" if ranks > 1 else ""

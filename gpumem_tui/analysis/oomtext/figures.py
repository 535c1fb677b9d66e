"""A size as a message prints it, and the bytes that it can have been.

A printed "2.00 MiB" was any number of bytes that rounds to it, so a figure keeps
its low and high bound; comparisons use the bounds, and none is called certain that
rounding could turn round. Owns the sentinels: figures that stand for "not told".
"""

import re

import msgspec

SIZE = r"\d{1,20}(?:\.\d{1,6})?(?:bytes?|[KMGT]i?B)"
"""A size in squeezed text (all white space removed)."""

_SIZE = re.compile(r"(\d{1,20})(?:\.(\d{1,6}))?(bytes?|[KMGT]i?B)")
_POWER = {"b": 0, "K": 1, "M": 2, "G": 3, "T": 4}

NOT_TOLD_BYTES = 1 << 63
"""The driver's "no figure" is 2^64 − 1, printed as 2^34 GiB; nothing from here on up is a size."""

NO_FIGURE = "the driver gave no figure"
NO_LIMIT = "no limit is set"


class Figure(msgspec.Struct, frozen=True):
    """One printed size."""

    printed: str
    """As in the text, with one space before the unit."""
    bytes: int | None
    """The nearest whole number of bytes; None where the figure is a sentinel."""
    low_bytes: int | None
    high_bytes: int | None
    """Smallest and largest number of bytes that print so."""
    reason: str | None = None
    """Set exactly where ``bytes`` is None."""

    @staticmethod
    def exact(value: int) -> "Figure":
        """A number of bytes printed in full."""
        return Figure(f"{value} bytes", value, value, value)

    @staticmethod
    def parse(squeezed: str, *, sentinel: str = NO_FIGURE, zero_is_told: bool = True) -> "Figure":
        """From squeezed text that matches :data:`SIZE`.

        KB, MB and GB are binary too: the one backend that prints them (MPS, before it
        said KiB) divides by powers of 1024, in single precision. Raises ValueError
        for what is no size.
        """
        match = _SIZE.fullmatch(squeezed)
        if match is None:
            raise ValueError(f"{squeezed!r} is no size")
        whole, decimals, unit = match[1], match[2] or "", match[3]
        printed = f"{whole}{'.' if decimals else ''}{decimals} {unit}"
        factor = 1 << (10 * _POWER[unit[0]])
        scale = 10 ** len(decimals)
        number = int(whole + decimals) * factor
        low = -((factor - 2 * number) // (2 * scale)) if factor > 1 else number
        high = (2 * number + factor) // (2 * scale) if factor > 1 else number
        value = (2 * number + scale) // (2 * scale)
        if value >= NOT_TOLD_BYTES:
            return Figure(printed, None, None, None, sentinel)
        if value == 0 and not zero_is_told:
            return Figure(printed, None, None, None, NO_FIGURE)
        if unit in ("KB", "MB", "GB", "TB"):
            low, high = low - (low >> 23), high + (high >> 23)
        return Figure(printed, value, max(0, low), high)

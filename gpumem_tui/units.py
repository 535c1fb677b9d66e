"""The only place where bytes, durations and shares become text, or text becomes bytes.

Files and JSON keep raw bytes; people read binary units (KiB, MiB, GiB). Decimal GB
is printed nowhere but beside GiB, by :func:`format_both`.
"""

import math
import re

from gpumem_tui.errors import BadInput

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40

MISSING = "—"
"""What stands where no value is known; the reason is shown beside it."""

_BINARY = {"": 1, "k": KIB, "m": MIB, "g": GIB, "t": TIB}
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmgt]?)(?P<suffix>ib|b)?", re.IGNORECASE)


def format_bytes(value: int | None, *, precision: int | None = None) -> str:
    """``None`` → ``—``; otherwise the largest binary unit that keeps the figure readable.

    Bytes below 1 KiB are exact. The sign is kept: a negative figure is a finding,
    never clamped. ``precision`` fixes the number of decimals (default: by size).
    """
    if value is None:
        return MISSING
    sign, size = ("−", -value) if value < 0 else ("", value)
    if size < KIB:
        return f"{sign}{size} B"
    for unit, factor in (("KiB", KIB), ("MiB", MIB), ("GiB", GIB), ("TiB", TIB)):
        number = size / factor
        if number < 1023.5 or unit == "TiB":
            break
    decimals = precision if precision is not None else (0 if number >= 100 else 1 if number >= 10 else 2)
    return f"{sign}{number:.{decimals}f} {unit}"


def format_gib(value: int | None, *, precision: int = 2) -> str:
    """A figure in GiB without its unit, for columns whose head says GiB."""
    if value is None:
        return MISSING
    text = f"{value / GIB:.{precision}f}"
    return text.replace("-", "−")


def format_both(value: int) -> str:
    """Raw bytes, GB and GiB side by side, for planning: ``14,000,000,000 bytes, 14.00 GB, 13.04 GiB``."""
    return f"{value:,} bytes, {value / 1e9:.2f} GB, {value / GIB:.2f} GiB"


def format_share(part: int | None, whole: int | None) -> str:
    """Percent of a whole; ``—`` where either is missing or the whole is nothing."""
    if part is None or not whole:
        return MISSING
    return f"{100 * part / whole:.0f} %"


def format_seconds(seconds: float | None) -> str:
    """A duration as people say it: ``0.4 s``, ``42 s``, ``3 min 5 s``, ``2 h 07 min``, ``3 d 4 h``."""
    if seconds is None or math.isnan(seconds):
        return MISSING
    if seconds < 0:
        return "−" + format_seconds(-seconds)
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def parse_card(text: str, *, what: str) -> int:
    """The memory of a card, as :func:`parse_size`; a bare ``24`` is refused, which nobody means in bytes."""
    size = parse_size(text, what=what)
    if size < MIB:
        unit = f"; write {text.strip()}GiB" if text.strip().isdecimal() else ""
        raise BadInput(f"{what} {text!r} is {format_bytes(size)}, which no card has{unit}")
    return size


def parse_size(text: str, *, what: str = "size") -> int:
    """``24GiB``, ``24gib``, ``24G``, ``1.5g``, ``512 MiB``, ``1073741824`` → bytes, all binary.

    ``24GB`` is refused, because it means 24,000,000,000 bytes to some and 24 GiB to
    others. Raises :class:`BadInput` with what would have been understood.
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise BadInput(f"{what} {text!r} is not understood; write it as 24GiB, 512MiB or a number of bytes")
    unit, suffix = match["unit"].lower(), (match["suffix"] or "").lower()
    if unit and suffix == "b":
        binary = f"{match['number']}{unit.upper()}iB"
        raise BadInput(
            f"{what} {text!r} is ambiguous (decimal or binary?); write {binary}, or the number of bytes"
        )
    number = match["number"]
    size = int(number) * _BINARY[unit] if "." not in number else round(float(number) * _BINARY[unit])
    if size <= 0:
        raise BadInput(f"{what} {text!r} must be more than nothing")
    if size >= 1 << 60:
        raise BadInput(f"{what} {text!r} is larger than any device")
    return size

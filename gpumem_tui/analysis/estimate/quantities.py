"""What people write on the command line, as exact numbers: ``7B``, ``bf16``, ``0.5%``, ``4``.

Refuses what two readers would understand differently (``8K`` tokens, ``7GB`` parameters,
``8x7B``), and whatever is not a finite number. Every error is a :class:`BadInput`.
"""

import re
from fractions import Fraction

from gpumem_tui.errors import BadInput
from gpumem_tui.units import GIB, parse_card

MOST_PARAMETERS = 10**15
MOST_OTHERS = 10**10

_GROUPED = r"[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+(?:_[0-9]+)*"
_COUNT = re.compile(
    rf"(?P<number>(?:{_GROUPED})(?:\.[0-9]+)?)(?:e\+?(?P<power>[0-9]{{1,2}}))?\s?(?P<unit>[kmbt]?)", re.I
)
_WHOLE = re.compile(rf"(?:{_GROUPED})")
_BITS = re.compile(r"(?P<number>[0-9]{1,2}(?:\.[0-9]{1,6})?)(?:[ -]?bits?)?", re.I)
_GIB = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_SHARE = re.compile(r"(?P<number>[0-9]{1,3}(?:\.[0-9]{1,9})?)\s?(?P<percent>%?)")

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}

FORMATS = {
    **dict.fromkeys(("fp64", "float64", "f64", "double"), 64),
    **dict.fromkeys(("fp32", "float32", "f32", "float", "tf32"), 32),
    **dict.fromkeys(("bf16", "bfloat16", "fp16", "float16", "f16", "half"), 16),
    **dict.fromkeys(("fp8", "float8", "f8", "float8_e4m3fn", "float8_e5m2", "int8", "i8"), 8),
    **dict.fromkeys(("fp4", "nf4", "int4", "i4", "mxfp4", "nvfp4"), 4),
}
"""Names of formats → bits a value; scales and other metadata are not in them."""


def shown(text: str) -> str:
    """The user's text in an error line, not longer than a line bears."""
    return repr(text if len(text) <= 40 else text[:37] + "…")


def parse_parameters(text: str, *, what: str = "--params") -> int:
    """``7B``, ``7e9``, ``350M``, ``6,738,415,616`` → a count of parameters."""
    words = text.strip()
    match = _COUNT.fullmatch(words) if len(words) <= 40 else None
    if not match:
        if re.fullmatch(r"[0-9]+x[0-9.]+[mb]?", words, re.IGNORECASE):
            raise BadInput(
                f"{what} {shown(text)} is a name, not a count (the experts share layers); "
                "give the number of parameters, or the model's safetensors file"
            )
        if re.fullmatch(r"[0-9.]+\s?[kmgt]i?b?", words, re.IGNORECASE):
            raise BadInput(f"{what} counts parameters, not bytes: {shown(text)}; write 7B, 350M or 7e9")
        raise BadInput(f"{what} {shown(text)} is not understood; write 7B, 350M, 7e9 or the exact count")
    number = Fraction(match["number"].replace(",", "").replace("_", ""))
    count = number * 10 ** int(match["power"] or 0) * _FACTORS[match["unit"].lower()]
    if count.denominator != 1:
        raise BadInput(f"{what} {shown(text)} is not a whole number of parameters")
    return _within(int(count), text, what, MOST_PARAMETERS)


def parse_whole(text: str, *, what: str, least: int = 1) -> int:
    """``8192``, ``8,192`` → a count of layers, heads, tokens…; ``8K`` is refused as ambiguous."""
    words = text.strip()
    if len(words) > 40 or not _WHOLE.fullmatch(words):
        if re.fullmatch(r"[0-9]+\s?k", words, re.IGNORECASE):
            thousands = int(words[:-1])
            raise BadInput(
                f"{what} {shown(text)} is ambiguous; write {thousands * 1000} or {thousands * 1024}"
            )
        raise BadInput(f"{what} {shown(text)} is not a whole number; write it as 8192")
    return _within(int(words.replace(",", "").replace("_", "")), text, what, MOST_OTHERS, least)


def _within(count: int, text: str, what: str, most: int, least: int = 1) -> int:
    if count < least:
        raise BadInput(f"{what} {shown(text)} must be at least {least}")
    if count > most:
        raise BadInput(f"{what} {shown(text)} is more than anyone has; the most is {most:,}")
    return count


def parse_bits(text: str, *, what: str = "--bits") -> Fraction:
    """``16``, ``4.5``, ``bf16``, ``int8`` → bits a value, more than 0 and at most 64."""
    words = text.strip()
    if words.lower() in FORMATS:
        return Fraction(FORMATS[words.lower()])
    match = _BITS.fullmatch(words)
    if not match:
        raise BadInput(
            f"{what} {shown(text)} is not understood; write bits such as 16, 8, 4.5, or bf16, int8"
        )
    bits = Fraction(match["number"])
    if not 0 < bits <= 64:
        raise BadInput(f"{what} {shown(text)} is out of range; take more than 0 and at most 64 bits")
    return bits


def parse_gib(text: str, *, what: str) -> int:
    """``4``, ``1.5`` → bytes; the option's name says GiB."""
    if not _GIB.fullmatch(text.strip()):
        raise BadInput(f"{what} {shown(text)} is not understood; give a number of GiB, such as 4 or 1.5")
    size = round(Fraction(text.strip()) * GIB)
    if size >= 1 << 60:
        raise BadInput(f"{what} {shown(text)} is larger than any device")
    return size


def parse_share(text: str, *, what: str) -> Fraction:
    """``0.5%``, ``0.005`` → a share, more than nothing and at most all."""
    match = _SHARE.fullmatch(text.strip())
    if not match:
        raise BadInput(f"{what} {shown(text)} is not understood; write 0.5% or 0.005")
    share = Fraction(match["number"]) / (100 if match["percent"] else 1)
    if not 0 < share <= 1:
        hint = f"; {match['number']}% perhaps?" if 1 < share <= 100 else ""
        raise BadInput(f"{what} {shown(text)} is not a share between 0 and 1{hint}")
    return share


def parse_devices(text: str, *, what: str = "--device") -> tuple[int, ...]:
    """``24GiB`` or ``24GiB,80GiB`` → bytes of each."""
    return tuple(parse_card(size, what=what) for size in text.split(","))

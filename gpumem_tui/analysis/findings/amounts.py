"""Bytes known up to rounding: comparisons say "certainly" only where no rounding could turn them."""

import msgspec

from gpumem_tui.units import format_bytes


class Amount(msgspec.Struct, frozen=True):
    """A number of bytes between two bounds, and where it is from."""

    low_bytes: int
    high_bytes: int
    source: str
    """"message", "counters", "driver", or the sum that it is."""
    printed: str | None = None
    """As the text printed it."""

    @staticmethod
    def exact(value: int, source: str) -> "Amount":
        """A number known to the byte."""
        return Amount(value, value, source)

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            self.low_bytes + other.low_bytes,
            self.high_bytes + other.high_bytes,
            f"{self.source} + {other.source}" if self.source != other.source else self.source,
        )

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(
            self.low_bytes - other.high_bytes,
            self.high_bytes - other.low_bytes,
            f"{self.source} − {other.source}" if self.source != other.source else self.source,
        )

    def certainly_at_least(self, other: "Amount | int") -> bool:
        """Whether no rounding makes this the smaller one."""
        return self.low_bytes >= (other if isinstance(other, int) else other.high_bytes)

    def certainly_below(self, other: "Amount | int") -> bool:
        """Whether this is the smaller one, whatever was rounded."""
        return self.high_bytes < (other if isinstance(other, int) else other.low_bytes)

    def say(self) -> str:
        """For people: as printed, otherwise the middle of the bounds."""
        return self.printed or format_bytes((self.low_bytes + self.high_bytes) // 2)


def total_of(amounts: "list[Amount]", source: str) -> Amount:
    """The sum of several, none of them missing."""
    return Amount(sum(a.low_bytes for a in amounts), sum(a.high_bytes for a in amounts), source)

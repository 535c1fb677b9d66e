"""How often one call of the driver is made: its rate, and how it backs off when the call is slow."""

SLOW_NS = 20_000_000
"""A call that takes longer than this halves its own rate."""
QUICK_NS = 10_000_000
"""One that takes less than this gets its rate back, doubling each time."""
LONGEST_NS = 16_000_000_000
"""No call becomes rarer than this."""


class Pace:
    """When a call is due. Deadlines are absolute: being late once does not shift the rest."""

    def __init__(self, period_ns: int, now_ns: int) -> None:
        """Due at once, then every ``period_ns``."""
        self.base_ns = period_ns
        self.period_ns = period_ns
        self.due_ns = now_ns

    def is_due(self, now_ns: int) -> bool:
        """Whether its moment has come."""
        return now_ns >= self.due_ns

    def advance(self, now_ns: int) -> None:
        """It was made, or missed: the next deadline is the first on the grid that is still to come."""
        missed = (now_ns - self.due_ns) // self.period_ns
        self.due_ns += (missed + 1) * self.period_ns

    def learn(self, took_ns: int) -> None:
        """How long the call took."""
        if took_ns > SLOW_NS:
            longer = min(self.period_ns * 2, max(LONGEST_NS, self.base_ns))
            self.due_ns += longer - self.period_ns
            self.period_ns = longer
        elif took_ns < QUICK_NS and self.period_ns > self.base_ns:
            self.period_ns = max(self.period_ns // 2, self.base_ns)

    def settle(self, period_ns: int) -> None:
        """Change the rate that it strives for; what was learned about slowness is kept."""
        slowness = self.period_ns // self.base_ns
        self.base_ns = period_ns
        self.period_ns = period_ns * slowness

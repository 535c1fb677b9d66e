"""When a record speaks of."""


def ended_ns(record: object) -> int:
    """The moment of a record; of a folded one, the end of its bucket. Monotonic nanoseconds."""
    until: int | None = getattr(record, "until_ns", None)
    moment: int = getattr(record, "t_ns", 0)
    return moment if until is None else until

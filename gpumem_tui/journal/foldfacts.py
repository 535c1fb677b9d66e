"""What a folded segment's header says beyond a header: how coarse, what was seen, what was lost."""

import msgspec


class FoldFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Kept in the header of every fold, so that a fold can be folded again and followed on from."""

    folded: bool = False
    bucket_ns: int = 0
    """Width of its buckets; 0 for a raw segment."""
    corrupt_lines: int = 0
    """Lines of the raw segment that could not be read."""
    last_seq: int = 0
    """Highest sequence number of the span edges that went into it."""
    seen: list[tuple[str, str]] = []
    """(phase, name) of every span that had begun by its end, in this and all earlier segments."""


_facts = msgspec.json.Decoder(FoldFacts)


def decode_fold_facts(line: bytes) -> FoldFacts:
    """The facts in a header line; those of a raw segment where it has none."""
    try:
        return _facts.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return FoldFacts()

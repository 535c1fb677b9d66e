"""What journals say seldom, kept while a recording is read: a look into the past cannot seek it."""

from collections.abc import Iterator

from gpumem_tui import records
from gpumem_tui.records import Header

Who = tuple[int, int | None]


class Rare:
    """What writers say of themselves and seldom, with who said it; bounded."""

    MOST = 4096
    """Of one writer; beyond it every second composition and input is left out."""

    _DENSE = frozenset(
        (
            records.Sample, records.Samples, records.Begin, records.End, records.Spans, records.Mark,
            records.Memory, records.Memories, records.Processes, records.Load, records.Tree, records.Host,
            records.Output, records.Dropped,
        )
    )  # fmt: skip
    _MANY = (records.Composition, records.Inputs)

    def __init__(self) -> None:
        self._of: dict[tuple[str, Who], tuple[Header, list[records.Record]]] = {}

    def take(self, head: Header, record: records.Record) -> None:
        """Keep a record if it is a rare one."""
        if type(record) in self._DENSE:
            return
        key = (head.journal, (head.pid, head.started_ticks))
        found = self._of.get(key)
        if found is None:
            found = self._of[key] = (head, [])
        kept = found[1]
        kept.append(record)
        if len(kept) > self.MOST:
            many = [place for place, each in enumerate(kept) if isinstance(each, self._MANY)]
            gone = set(many[::2]) or set(range(0, len(kept), 2))
            kept[:] = [each for place, each in enumerate(kept) if place not in gone]

    def records(self) -> Iterator[tuple[Header, records.Record]]:
        """Everything kept, writer by writer, in the order in which it was written."""
        for head, kept in self._of.values():
            for record in kept:
                yield head, record

"""Every record of a recording, once, in bounded memory: journals first, then what only rings still hold."""

from collections.abc import Iterator

from gpumem_tui.journal.follow import Follower
from gpumem_tui.journal.ringtail import read_tail
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.records import Bye, Header, Record

BLOCK_BYTES = 8 << 20
"""Journal read at a time."""


def records_of(run: RunDirectory, *, since_ns: int | None = None) -> Iterator[tuple[Header, Record]]:
    """(writer's header, record), in file order of each writer; of a run that goes on, up to now.

    With ``since_ns``, what writers say of themselves and everything from about then on.
    Writers come in turn, so times go back where one writer follows another. Raises
    :class:`UnreadableRecording`.
    """
    heads: dict[str, Header] = {}
    ended: set[str] = set()
    with Follower(run, since_ns=since_ns) as follower:
        more = True
        while more:
            batch = follower.poll(BLOCK_BYTES)
            more = batch.more
            for head, record in batch:
                who = _who(head)
                heads[who] = head
                if isinstance(record, Bye):
                    ended.add(who)
                yield head, record
        last_seq = follower.last_seq
    for who, head in heads.items():
        if head.ring is None or who in ended:
            continue
        for edge in read_tail(run.rings / head.ring, last_seq.get(who, 0)):
            yield head, edge


def _who(head: Header) -> str:
    """The writer, as ``Follower`` names it."""
    if head.journal == "driver":
        return head.journal
    return f"{head.journal}-{head.pid}-{head.started_ticks or 0}"

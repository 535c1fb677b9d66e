"""From the bytes of a line to a record. Refuses nothing silently: a line is a record, unknown, or corrupt."""

import msgspec

from gpumem_tui.agent import wire
from gpumem_tui.errors import UnreadableRecording
from gpumem_tui.records.kinds import Record


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a segment: who wrote it, and which clock it speaks in."""

    journal: str
    schema: int
    run: str = ""
    segment: int = 0
    host: str = ""
    boot: str | None = None
    pid: int = 0
    started_ticks: int | None = None
    t_ns: int
    wall_ns: int
    fields: dict[str, list[str]] = {}
    folded: bool = False
    """Whether this segment is the recorder's folded form of what the writer once wrote."""
    parent: int | None = None
    argv: list[str] = []
    executable: str | None = None
    python: str | None = None
    agent: str | None = None
    """Version of the agent that wrote it."""
    ring: str | None = None
    """File name of this process's ring in the run's ``rings``, where it has one."""


class Unknown(msgspec.Struct, frozen=True):
    """A well-formed line of a kind that this version does not know; newer writers may add kinds."""

    kind: str


_record = msgspec.json.Decoder(Record)
_header = msgspec.json.Decoder(Header)
_any = msgspec.json.Decoder()


def decode_line(line: bytes) -> Record | Unknown | None:
    """A record; :class:`Unknown` for a kind of a later version; ``None`` for a corrupt line."""
    try:
        return _record.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        values = _any.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(values, list) and values and isinstance(values[0], str) and values[0] not in wire.FIELDS:
        return Unknown(values[0])
    return None


def decode_header(line: bytes) -> Header | None:
    """The header of a segment, or ``None`` if this line is none.

    Raises :class:`UnreadableRecording` for a schema newer than this version reads.
    """
    try:
        head = _header.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if head.schema > wire.SCHEMA:
        raise UnreadableRecording(
            f"this recording has schema {head.schema}, written by a newer gpumem-tui; "
            f"this version reads up to {wire.SCHEMA}: upgrade to open it"
        )
    return head

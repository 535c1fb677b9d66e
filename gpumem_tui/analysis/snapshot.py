"""A memory snapshot of PyTorch's allocator as typed data: segments, their blocks, and failed requests.

Takes plain lists and dicts in any shape that PyTorch 2.0 to 2.15 has written
(``torch.cuda.memory._dump_snapshot``, ``_snapshot`` or ``memory_snapshot``), and keeps
what says where memory is. Refuses stacks and traces: they say who took it, and are
left to PyTorch's own viewer. A field that the version does not have is None.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

import msgspec

from gpumem_tui.errors import BadInput

LARGEST_BYTES = 1 << 50
"""No segment is larger; a larger number is damage."""


class Use(str, Enum):
    """What a block is at the moment of the snapshot. The values are stable."""

    LIVE = "live"
    PENDING = "waiting for its stream"
    """Freed by the program, and still in use by another stream."""
    IDLE = "idle"


_USES = {
    "active_allocated": Use.LIVE,
    "active_pending_free": Use.PENDING,
    "active_awaiting_free": Use.PENDING,
    "inactive": Use.IDLE,
}


class Block(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A piece of a segment."""

    size_bytes: int
    use: Use
    requested_bytes: int | None = None
    """What was asked for; None before PyTorch 2.1."""


class Segment(msgspec.Struct, frozen=True, gc=False):
    """What one driver allocation, or one expandable range, holds. Its blocks lie one after another."""

    device: int
    address: int
    total_bytes: int
    stream: int
    large: bool
    """Of the pool for requests above 1 MiB."""
    private: tuple[int, int] | None
    """The private pool (graphs, MemPool) that it belongs to."""
    expandable: bool
    blocks: tuple[Block, ...]

    @property
    def pool(self) -> str:
        """``small``, ``large``, or ``private 1,0``."""
        if self.private is not None:
            return f"private {self.private[0]},{self.private[1]}"
        return "large" if self.large else "small"


class FailedRequest(msgspec.Struct, frozen=True, gc=False):
    """An ``oom`` entry of the snapshot's history."""

    device: int
    requested_bytes: int
    free_bytes: int | None
    """What the driver had free."""


class Snapshot(msgspec.Struct, frozen=True):
    """All devices of one process at one moment."""

    segments: tuple[Segment, ...]
    failed: tuple[FailedRequest, ...] = ()
    expandable_segments: bool | None = None
    settings: str | None = None

    def devices(self) -> list[int]:
        """Ordinals with a segment."""
        return sorted({segment.device for segment in self.segments})

    def of(self, device: int) -> list[Segment]:
        """Segments of a device, by pool, stream and address."""
        found = [segment for segment in self.segments if segment.device == device]
        return sorted(found, key=lambda s: (s.private is not None, s.pool, s.stream, s.address))


def read_snapshot(plain: object) -> Snapshot:
    """From plain data. Raises :class:`BadInput` with what is wrong with it."""
    top: Mapping[str, object] = {}
    listed = plain
    if isinstance(plain, Mapping):
        top = plain
        listed = plain.get("segments")
    if not isinstance(listed, Sequence) or isinstance(listed, str | bytes):
        raise BadInput("no memory snapshot: it has no list of segments")
    segments = tuple(_segment(each, number) for number, each in enumerate(listed))
    settings = top.get("allocator_settings")
    text = expandable = None
    if isinstance(settings, Mapping):
        told = settings.get("PYTORCH_CUDA_ALLOC_CONF")
        text = told if isinstance(told, str) and told else None
        on = settings.get("expandable_segments")
        expandable = on if isinstance(on, bool) else None
    return Snapshot(segments, tuple(_failed(top.get("device_traces"))), expandable, text)


def _segment(found: object, number: int) -> Segment:
    where = f"segment {number}"
    if not isinstance(found, Mapping):
        raise BadInput(f"no memory snapshot: {where} is no mapping")
    total = _size(found, "total_size", where)
    blocks = found.get("blocks")
    if not isinstance(blocks, Sequence) or isinstance(blocks, str | bytes):
        raise BadInput(f"no memory snapshot: {where} has no list of blocks")
    read = tuple(_block(each, where) for each in blocks)
    if sum(block.size_bytes for block in read) > total:
        raise BadInput(f"damaged memory snapshot: the blocks of {where} are more than the segment")
    pool = found.get("segment_pool_id")
    private = None
    if isinstance(pool, Sequence) and len(pool) == 2 and all(type(part) is int for part in pool):
        private = None if tuple(pool) == (0, 0) else (pool[0], pool[1])
    return Segment(
        device=_number(found, "device", 0),
        address=_number(found, "address", 0),
        total_bytes=total,
        stream=_number(found, "stream", 0),
        large=found.get("segment_type") != "small",
        private=private,
        expandable=found.get("is_expandable") is True,
        blocks=read,
    )


def _block(found: object, where: str) -> Block:
    if not isinstance(found, Mapping):
        raise BadInput(f"no memory snapshot: a block of {where} is no mapping")
    use = _USES.get(str(found.get("state")))
    if use is None:
        raise BadInput(
            f"a block of {where} is in a state that is not known: {str(found.get('state'))[:40]!r}"
        )
    requested = found.get("requested_size")
    return Block(_size(found, "size", where), use, requested if type(requested) is int else None)


def _size(found: Mapping[str, object], name: str, where: str) -> int:
    value = found.get(name)
    if type(value) is not int or not 0 <= value <= LARGEST_BYTES:
        raise BadInput(f"no memory snapshot: {name} of {where} is no size")
    return value


def _number(found: Mapping[str, object], name: str, default: int) -> int:
    value = found.get(name, default)
    return value if type(value) is int else default


def _failed(traces: object) -> Iterator[FailedRequest]:
    if not isinstance(traces, Sequence):
        return
    for device, entries in enumerate(traces):
        for entry in entries if isinstance(entries, Sequence) else ():
            if not isinstance(entry, Mapping) or entry.get("action") != "oom":
                continue
            size, free = entry.get("size"), entry.get("device_free")
            if type(size) is int:
                yield FailedRequest(device, size, free if type(free) is int else None)

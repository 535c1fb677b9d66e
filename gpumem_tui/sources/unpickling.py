"""The child that reads a pickle of plain data: nothing in it is called, and it cannot take the machine along.

Run as ``python -m gpumem_tui.sources.unpickling PATH ADDRESS_SPACE_BYTES CPU_SECONDS``, by
``snapshots`` alone. Prints what a memory snapshot says of segments, blocks, failed
requests and settings as MessagePack; ends with 3 and one line on standard error for
what it refuses. A pickle that gets the better of it takes down this process only.
"""

import pickle
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

MOST_BLOCKS = 4_000_000
"""Blocks in all; a process on the largest card has some hundred thousand."""
MOST_ENTRIES = 20_000_000
"""Entries of a history that are looked through for failed requests."""

SEGMENT = (
    "device", "address", "total_size", "stream", "segment_type", "segment_pool_id", "is_expandable",
)  # fmt: skip
BLOCK = ("size", "state", "requested_size")


class RefusedPickle(Exception):
    """It is not plain data, or more of it than is read."""


class PlainUnpickler(pickle.Unpickler):
    """Numbers, text, lists, tuples, sets and mappings; what would be imported or called is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse: a memory snapshot names no class and no function."""
        raise RefusedPickle(f"it wants to load {module}.{name}"[:120])

    def persistent_load(self, pid: Any) -> NoReturn:
        """Refuse."""
        raise RefusedPickle("it refers to objects outside itself")


def picked(plain: Any) -> dict[str, Any]:
    """Of a snapshot what is used, as new lists and dicts of known shape and bounded size."""
    top = plain if isinstance(plain, Mapping) else {}
    listed: Any = top.get("segments") if isinstance(plain, Mapping) else plain
    found: dict[str, Any] = {"segments": None, "device_traces": list(_ooms(top.get("device_traces")))}
    if _is_list(listed):
        budget = [MOST_BLOCKS]
        found["segments"] = [_segment(each, budget) for each in listed]
    settings = top.get("allocator_settings")
    if isinstance(settings, Mapping):
        found["allocator_settings"] = _scalars(settings, ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments"))
    return found


def _is_list(found: Any) -> bool:
    return isinstance(found, Sequence) and not isinstance(found, str | bytes | bytearray)


def _segment(found: Any, budget: list[int]) -> Any:
    if not isinstance(found, Mapping):
        return None
    kept = _scalars(found, SEGMENT)
    blocks: Any = found.get("blocks")
    if _is_list(blocks):
        budget[0] -= len(blocks) + 1
        if budget[0] < 0:
            raise RefusedPickle(f"it has more than {MOST_BLOCKS:,} blocks")
        kept["blocks"] = [_scalars(b, BLOCK) if isinstance(b, Mapping) else None for b in blocks]
    return kept


def _scalars(found: Mapping[Any, Any], names: Sequence[str]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name in names:
        value: Any = found.get(name)
        if isinstance(value, str):
            kept[name] = value[:200]
        elif isinstance(value, int) and abs(value) < 1 << 63:
            kept[name] = value
        elif name == "segment_pool_id" and _is_list(value) and len(value) == 2:
            kept[name] = [part if type(part) is int and abs(part) < 1 << 63 else 0 for part in value]
    return kept


def _ooms(traces: Any) -> Iterator[list[dict[str, Any]]]:
    budget = MOST_ENTRIES
    for entries in traces if _is_list(traces) else ():
        if not _is_list(entries):
            continue
        budget -= len(entries) + 1
        if budget < 0:
            raise RefusedPickle(f"its history has more than {MOST_ENTRIES:,} entries")
        yield [
            _scalars(entry, ("action", "size", "device_free"))
            for entry in entries
            if isinstance(entry, Mapping) and entry.get("action") == "oom"
        ]


def main(path: str, space_bytes: int, cpu_seconds: int) -> int:
    """Read one file and print what was picked; 3 where it is refused."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_AS, (space_bytes, space_bytes))
    try:
        with Path(path).open("rb") as file:
            out = msgspec.msgpack.encode(picked(PlainUnpickler(file).load()))
    except RefusedPickle as refused:
        why = str(refused)
    except MemoryError:
        why = "it needs far more memory than a snapshot of its size"
    except RecursionError:
        why = "it is nested too deeply"
    except OSError as error:
        why = error.strerror or "it cannot be read"
    except Exception as error:  # noqa: BLE001  the named boundary: whatever a damaged pickle makes the reader raise
        why = f"it is damaged ({type(error).__name__})"
    else:
        sys.stdout.buffer.write(out)
        return 0
    sys.stderr.write(why.replace("\n", " "))
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))

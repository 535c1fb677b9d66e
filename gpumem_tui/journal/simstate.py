"""The peaks that a simulated card keeps at the start of its state file, ``simcard.state``.

Read without the simulation's libraries, while the run goes on or long after it. The
layout is ``struct sc_state`` of ``simcard/src/simcard.h``: a magic number, a version, the number
of devices, then ten words a device. Refuses other versions: they have no peaks.
"""

import struct
from pathlib import Path

from gpumem_tui.records.simpeak import PeakCounts

_MAGIC = 0x53494D4341524431
_VERSION = 3
_HEAD = struct.Struct("<3Q")
_PEAK = struct.Struct("<10Q")
_MOST = 16


def read_peaks(path: Path) -> tuple[PeakCounts, ...]:
    """The peak of each device; empty where the file is missing or not of this version."""
    try:
        with path.open("rb") as file:
            data = file.read(_HEAD.size + _MOST * _PEAK.size)
    except OSError:
        return ()
    if len(data) < _HEAD.size + _MOST * _PEAK.size:
        return ()
    magic, version, devices = _HEAD.unpack_from(data)
    # The libraries add the size of their whole state to the magic number.
    if not 0 <= magic - _MAGIC < 1 << 24 or version != _VERSION or devices > _MOST:
        return ()
    return tuple(_peak(index, data) for index in range(devices))


def _peak(index: int, data: bytes) -> PeakCounts:
    total, reserved, used, outside, processes, convolution, refused, invented, counts, grouped = (
        _PEAK.unpack_from(data, _HEAD.size + index * _PEAK.size)
    )
    return PeakCounts(
        index=index,
        total_bytes=total,
        driver_reserved_bytes=reserved,
        used_bytes=used,
        outside_bytes=outside,
        processes=processes,
        convolution_bytes=convolution,
        refused=refused,
        invented_reads=invented,
        invented_counts=counts,
        grouped_plans=grouped,
    )

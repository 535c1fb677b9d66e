"""The wire schema: what every journal of a run directory may contain. Owned here, read by ``records``.

A journal is a file of lines. The first line of each segment is a JSON *object*, the
header; every other line is a JSON *array*: a kind, then the fields of that kind in
the order of :data:`FIELDS`. Times are ``time.monotonic_ns()`` of the node
(CLOCK_MONOTONIC, one clock for all its processes); sizes are raw bytes; a value
that could not be read is ``null``.

Changing the schema: append fields at the end of a kind, or add kinds, freely (old
readers ignore what they do not know, new readers take ``null``). Anything else
raises :data:`SCHEMA`, and readers refuse recordings newer than themselves.

Standard library only, syntax of Python 3.8: this file runs inside the workload.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
from typing import Any, Callable

SCHEMA = 1

FIELDS: dict[str, tuple[str, ...]] = {
    # --- journal of one workload process (role "rank") ------------------------------------------
    # who it is; repeated when a launcher or init_process_group tells more. source: env | process group
    "rank": ("t_ns", "rank", "local_rank", "world_size", "local_world_size", "source"),
    # what computes; backend cuda | hip | cpu, allocator native | cudaMallocAsync | pluggable | none
    "torch": ("t_ns", "version", "backend", "backend_version", "allocator", "settings", "caching"),
    # a device of this process. ordinal is CUDA's; uuid without "GPU-"; total is cudaMemGetInfo's;
    # initialised_ns: when CUDA was initialised, null where the agent came later than that
    "device": ("t_ns", "ordinal", "uuid", "pci", "name", "total_bytes", "identified_by", "initialised_ns"),
    # counters of torch.cuda.memory_stats, one call: *.all.current of the name
    "sample": (
        "t_ns",
        "ordinal",
        "allocated_bytes",
        "reserved_bytes",
        "active_bytes",
        "requested_bytes",
        "inactive_split_bytes",
        "alloc_retries",
        "ooms",
        "peak_allocated_bytes",
        "peak_reserved_bytes",
    ),
    # the peaks of two counters since the process began, whatever anybody has reset; written when they rise
    "peaks": ("t_ns", "ordinal", "peak_allocated_bytes", "peak_reserved_bytes"),
    # a folded run of samples of one device: [min, max, last] of allocated and reserved, count of samples
    "samples": ("t_ns", "until_ns", "ordinal", "count", "allocated", "reserved", "alloc_retries", "ooms"),
    # a span of a phase has begun; levels: [[ordinal, allocated, reserved], ...]
    "begin": ("t_ns", "seq", "span", "parent", "thread", "phase", "name", "step", "levels"),
    # ... and has ended; levels: [[ordinal, allocated, reserved, peak allocated, peak reserved, exact], ...]
    "end": ("t_ns", "seq", "span", "error", "levels"),
    # folded spans of one phase and device; allocated/reserved peaks as [min, max, last]
    "spans": (
        "t_ns",
        "until_ns",
        "phase",
        "name",
        "ordinal",
        "cold",
        "count",
        "errors",
        "duration_ns",
        "peak_allocated",
        "peak_reserved",
        "end_allocated",
        "end_reserved",
        # spans whose peaks are lower bounds; where the agent folded them: last edge, last step, thread
        "inexact",
        "seq",
        "step",
        "thread",
    ),
    # what really entered a root module: input is text such as "float32[8,512]"; count so far
    "inputs": ("t_ns", "phase", "name", "input", "count"),
    # what allocated is made of at the end of a step; bytes by storage, on one device. took_ns: the walk
    "composition": (
        "t_ns",
        "ordinal",
        "step",
        "parameters_bytes",
        "gradients_bytes",
        "optimizer_bytes",
        "buffers_bytes",
        "allocated_bytes",
        "complete",
        "took_ns",
        "caches_bytes",
        # [[kind, dtype, bytes], ...] of the same storages
        "dtypes",
    ),
    # a moment worth a tick on the axis: first collective, process group, empty_cache, the user's own
    "mark": ("t_ns", "name", "detail"),
    # what people must know about how this journal was made; code is stable, text is for reading
    "word": ("t_ns", "code", "text", "ordinal"),
    # an allocation failed; path is the failure record, relative to the run directory
    "failure": ("t_ns", "ordinal", "requested_bytes", "phase", "step", "path"),
    # a map of the allocator's blocks that a watcher asked for; path is a record like a failure's
    "map": ("t_ns", "ordinal", "path", "reason", "took_ns"),
    # an exception that nobody caught, by its class and message. kind: exception | out of memory | outside the
    # allocator; phase and step where it was raised; path as of failure; thread is null for the main one
    "exception": ("t_ns", "kind", "error", "text", "phase", "step", "path", "thread"),
    # an optimizer that has not stepped, before the first backward after it was made: bytes of its parameters
    # and of state that it holds already; options are its truthy defaults that decide how much more it makes
    "optimizer": ("t_ns", "ordinal", "name", "parameters_bytes", "state_bytes", "options"),
    # allocations that succeeded only after the allocator had flushed its cache, since the last such line
    "pressure": ("t_ns", "ordinal", "retries", "alloc_retries"),
    # no span has begun or ended since since_ns, 10 s ago or more; stack: where the main thread is
    "stall": ("t_ns", "since_ns", "phase", "step", "stack"),
    # counts of what could not be written since the last such line
    "dropped": ("t_ns", "edges", "samples", "reason"),
    # the process ends in order (atexit). Without it, the process was killed
    "bye": ("t_ns", "reason"),
    # --- the driver's journal (role "driver") ---------------------------------------------------
    # a device as NVML knows it. uuid without "GPU-"; parent is the index of a MIG instance's card;
    # minor is the number of its device file
    "gpu": (
        "t_ns",
        "index",
        "uuid",
        "pci",
        "name",
        "total_bytes",
        "parent",
        "driver_version",
        "reason",
        "minor",
    ),
    # nvmlDeviceGetMemoryInfo. version 2 tells driver_reserved; used excludes it. took_ns: the call
    "memory": (
        "t_ns",
        "took_ns",
        "index",
        "total_bytes",
        "free_bytes",
        "used_bytes",
        "driver_reserved_bytes",
        "version",
        "reason",
    ),
    # process lists of one device: [[pid, used bytes or null, "C"|"G"|"M"|"CG"..., reason or null], ...].
    # missing: kinds ("G", "GM") whose list was refused, for that reason; the rows are those of the others
    "processes": ("t_ns", "took_ns", "index", "rows", "reason", "missing"),
    # a process that the driver named, as /proc knows it; visible: does this pid namespace show it
    "process": (
        "t_ns",
        "pid",
        "started_ticks",
        "parent",
        "name",
        "user",
        "command",
        "visible",
        "namespace_pid",
        "container",
        "job",
    ),
    # utilisation in percent, temperature in °C, power in milliwatts, clocks in MHz
    "load": (
        "t_ns",
        "index",
        "utilization",
        "temperature",
        "power_mw",
        "reason",
        "clock_mhz",
        "memory_clock_mhz",
    ),
    # the workload's process tree as the recorder sees it: [[pid, started_ticks, parent, rss bytes], ...]
    "tree": ("t_ns", "rows"),
    # host memory; cgroup figures are those of the workload's cgroup, null where there is none
    "host": (
        "t_ns",
        "total_bytes",
        "available_bytes",
        "swap_used_bytes",
        "cgroup_bytes",
        "cgroup_limit_bytes",
        "cgroup_oom_kills",
    ),
    # the kernel has killed processes for want of host memory: how many since the last look, in the workload's
    # cgroup or on the node; gone: [[pid, started_ticks], ...] of the workload's tree since that look
    "kill": ("t_ns", "count", "scope", "gone"),
    # a process of the workload's tree has ended, not with code 0, as the kernel tells (Linux 6.15 on)
    "gone": ("t_ns", "pid", "started_ticks", "code", "signal"),
    # a folded run of memory readings: [min, max, last] of used and free
    "memories": (
        "t_ns",
        "until_ns",
        "index",
        "count",
        "total_bytes",
        "used",
        "free",
        "driver_reserved_bytes",
        "missing",
    ),
    # --- the keeper's journal (role "keeper") ---------------------------------------------------
    "start": ("t_ns", "pid", "started_ticks"),
    "signal": ("t_ns", "number", "action"),
    # how the workload ended: its exit code, or the signal that killed it
    "exit": ("t_ns", "code", "signal"),
    # output.log has this many bytes at this moment (at most ten a second)
    "output": ("t_ns", "size_bytes"),
}
"""Fields of every kind, in the order in which they are written after the kind itself."""

MAP_REQUEST = "map.request"
"""A file in the run directory: whoever watches touches it to have every rank write a map of its blocks."""

ROLES = ("rank", "driver", "keeper")
"""Who writes a journal; the first part of its file name."""


def now_ns(_clock: Callable[[], int] = time.monotonic_ns) -> int:
    """The node's monotonic clock, the only clock of records.

    Kept as a default, where libraries that stop a program's clocks (they exchange the names of
    every module) do not find it.
    """
    return _clock()


def clock(_clock: Callable[[], int] = time.monotonic_ns) -> Callable[[], int]:
    """What :func:`now_ns` calls, for whoever asks very often; to be kept where it is not found either."""
    return _clock


def header(role: str, run: str, segment: int, **more: Any) -> dict[str, Any]:
    """The first line of a segment, as a dict: who writes, which clock, which fields.

    ``wall_ns`` beside ``t_ns`` ties the monotonic clock to the calendar; ``boot`` and
    ``host`` tell whose monotonic clock it is.
    """
    return dict(
        {
            "journal": role,
            "schema": SCHEMA,
            "run": run,
            "segment": segment,
            "host": platform.node(),
            "boot": boot_id(),
            "pid": os.getpid(),
            "started_ticks": started_ticks(os.getpid()),
            "t_ns": now_ns(),
            "wall_ns": time.time_ns(),
            "fields": FIELDS,
        },
        **more,
    )


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True)
_SURROGATES = re.compile(r"\\\\|\\ud[89ab]..\\ud[c-f]..|\\ud[89a-f]..")


def encode(kind: str, *values: Any) -> bytes:
    """One line, as bytes with its newline. ``values`` as in ``FIELDS[kind]``; trailing ones may lack."""
    return (well_formed(_ENCODER.encode((kind,) + values)) + "\n").encode("ascii")


def encode_header(head: dict[str, Any]) -> bytes:
    """The header's line, as bytes with its newline."""
    return (well_formed(_ENCODER.encode(head)) + "\n").encode("ascii")


def well_formed(text: str) -> str:
    """JSON in ASCII that any reader takes: what Python carries of bytes that are no UTF-8 becomes U+FFFD."""
    if "\\ud" not in text:
        return text
    return _SURROGATES.sub(lambda found: "\\ufffd" if len(found.group()) == 6 else found.group(), text)


def boot_id() -> str | None:
    """Identity of this boot of the kernel, hence of its monotonic clock; None where /proc does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return None


def started_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot (field 22 of /proc/PID/stat); None if it is gone.

    A pid together with this number names a process for good: pids are used again.
    """
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def segment_name(role: str, number: int, pid: int | None = None, started: int | None = None) -> str:
    """``rank-4711-88213.0000.jsonl``, ``driver.0003.jsonl``: who, and which part of the journal."""
    who = role if pid is None else "%s-%d-%d" % (role, pid, started or 0)
    return "%s.%04d.jsonl" % (who, number)

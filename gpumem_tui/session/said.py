"""What the message of an exception that nobody caught says of memory, as facts for the rules.

Read by the same scanner as logs, and where that finds nothing, by the words that all
sorts of libraries use. Refuses to look at figures of the recording.
"""

import re

import msgspec

from gpumem_tui import records
from gpumem_tui.analysis.findings import Kind, Lost, Situation

_KINDS = {"outside the allocator": Kind.OUTSIDE, "out of memory": Kind.ALLOCATOR}
"""Kinds that an exception has where its message tells no more."""

_OF_MEMORY = re.compile(
    r"out of (?:\w+ )?memory|OutOfMemory|MemoryError|RESOURCE_EXHAUSTED|\bOOM\b"
    r"|(?:not enough|insufficient) (?:\w+ )?memory"
    r"|(?:fail\w* to|cannot|can't|could not|unable to) allocate|allocation (?:has )?failed",
    re.IGNORECASE,
)
"""Words by which errors of all sorts of libraries speak of memory."""

_OF_DEVICE = re.compile(r"cu(?:da|mem)|\bhip|\bdevice\b|\bgpu\b", re.IGNORECASE)
"""Words of a MemoryError that is not of the host for certain."""


def said_by(line: records.UncaughtException) -> Situation:
    """What the message of an exception says; one without a word of memory says nothing of it."""
    from gpumem_tui.analysis.oomtext import Scanner, situation  # dear, and seldom wanted

    scanner = Scanner()
    scanner.feed(f"{line.error}: {line.text}".encode())
    told = [situation(failure) for failure in scanner.finish().failures]
    of_host = line.error == "MemoryError" and not _OF_DEVICE.search(line.text)
    kind = _KINDS.get(line.kind, Kind.HOST_ALLOCATION if of_host else Kind.EXCEPTION)
    if kind is Kind.OUTSIDE:  # a library may name the host's error beside its own
        of_device = (facts for facts in told if facts.kind in (kind, Kind.FOREIGN))
        told = [msgspec.structs.replace(facts, kind=kind) for facts in of_device]
    if told and told[0].kind is Kind.HOST_KILL and not told[0].certain:  # a process of its own, not it
        return Situation(kind=Kind.EXCEPTION, error=_error_of(line), lost=Lost())
    if told:
        return msgspec.structs.replace(told[0], error=_error_of(line))
    words = _OF_MEMORY.search(f"{line.error}: {line.text}")
    return Situation(kind=kind, error=_error_of(line), of_memory=words[0] if words else None)


def _error_of(line: records.UncaughtException) -> str:
    """``ValueError: too many``: the class, and the first line of the message."""
    text = line.text.partition("\n")[0][:200]
    return f"{line.error}: {text}" if text else line.error

"""Failures of memory that come again in another thread or process: DataLoader workers, replicas, pinning.

PyTorch raises a worker's error once more where its result is asked for, with the
worker's own words and none of its chain. Told apart by those words; refuses to guess
where the failure itself was not recorded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpumem_tui import records
from gpumem_tui.analysis.failurestate import FailureState
from gpumem_tui.analysis.findings import Kind, Situation
from gpumem_tui.records.failure import FailureRecord

NEAR_NS = 60_000_000_000
"""So long before, at most: results of workers wait in a queue."""

Who = tuple[int, int | None]


@dataclass
class Failed:
    """One failing allocation, or one exception that nobody caught."""

    line: records.Failure | records.UncaughtException
    who: Who
    uncaught: bool = False
    """The exception that it raised was caught by nobody."""
    thread: str | None = None
    """Other than the main one, in which nobody caught it."""
    source: "Failed | None" = None
    """The failure of another process that this exception tells again."""
    file: FailureRecord | None = None
    file_reason: str | None = None
    complete: bool = False
    state: FailureState | None = None
    """Cached once nothing changes it any more."""

    @property
    def line_kind(self) -> str:
        """``out of memory``, ``outside the allocator`` or ``exception``."""
        return self.line.kind if isinstance(self.line, records.UncaughtException) else "out of memory"


def joined(told: Sequence[Failed]) -> list[Failed]:
    """Without exceptions in which a failure of the same process comes again; a worker's has its source."""
    failures = [each for each in told if isinstance(each.line, records.Failure)]
    kept = []
    for each in told:
        if isinstance(each.line, records.UncaughtException) and is_retold(each.line):
            source = source_of(each, failures)
            if source is not None:
                source.uncaught = True
                if source.who == each.who:
                    continue
                each.source = source
        kept.append(each)
    return kept


def is_retold(line: records.UncaughtException) -> bool:
    """Whether the exception says that it is another's, for want of device memory."""
    first, _, rest = line.text.partition("\n")
    return first.startswith("Caught ") and (
        "OutOfMemoryError" in first or "out of memory. Tried to allocate" in rest
    )


def source_of(echo: Failed, failures: Sequence[Failed]) -> Failed | None:
    """The latest failing allocation before it that it can be of; None where that was not recorded."""
    worker = "DataLoader worker process" in getattr(echo.line, "text", "").partition("\n")[0]
    near = [
        each
        for each in failures
        if 0 <= echo.line.t_ns - each.line.t_ns <= NEAR_NS and (each.who != echo.who) == worker
    ]
    return max(near, key=lambda each: each.line.t_ns, default=None)


def told_again(echo: Failed, source: Failed) -> Situation:
    """The exception as what it is: the end of a process by the failure of another."""
    line = echo.line
    assert isinstance(line, records.UncaughtException)
    return Situation(
        kind=Kind.EXCEPTION,
        error=f"{line.error}: {line.text.partition(chr(10))[0][:200]}",
        first_rank=f"process {source.who[0]}",
        first_seconds=(line.t_ns - source.line.t_ns) / 1e9,
    )

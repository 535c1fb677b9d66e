"""Failures that one rule decides alone: of the host, in place of a message, and pressure that is none.

Those of the driver and libraries are in ``outside``, of other frameworks in ``frameworks``,
ends that speak of no memory in ``ends``.
"""

from collections.abc import Callable

from gpumem_tui.analysis.findings.ends import other_end
from gpumem_tui.analysis.findings.finding import Evidence, Finding, Strength, Verdict, figure, word
from gpumem_tui.analysis.findings.frameworks import foreign, refused
from gpumem_tui.analysis.findings.outside import outside
from gpumem_tui.analysis.findings.situation import Kind, Situation


def assertion(s: Situation) -> Finding:
    """The message itself failed, and its figures with it."""
    return Finding(
        Verdict.UNKNOWN,
        Strength.UNDECIDED,
        "PyTorch ran out of memory, and failed while asking NVML for the message's process list",
        word("an NVML assertion stands in place of the message", "message"),
        check="print torch.cuda.memory_summary() and torch.cuda.mem_get_info() where the error is caught",
        missing=("every figure: request, free, total, allocated, reserved",),
    )


def impossible(s: Situation) -> Finding:
    """More than an exabyte: a wrong size, not a full card."""
    return Finding(
        Verdict.IMPOSSIBLE_SIZE,
        Strength.SUPPORTED,
        "more than 1 EB was asked for: a size that was computed wrongly, not a card that is full",
        word("a request of more than 1 EB", "message"),
        check="print the shape at the failing line: a negative or overflown dimension",
        trial="none with less memory: correct the shape",
    )


def host_kill(s: Situation) -> Finding:
    """Killed from outside."""
    if s.recorded:
        return _recorded_kill(s)
    if not s.certain:
        return Finding(
            Verdict.UNKNOWN,
            Strength.UNDECIDED,
            "the process was killed (SIGKILL), and the text does not say by whom; host memory is one cause",
            word("killed, without a word on memory", "log"),
            check="look for its pid in dmesg, and for oom_kill in the cgroup's memory.events",
            missing=("the kernel's, the cgroup's or the cluster's own word",),
        )
    return Finding(
        Verdict.HOST_MEMORY,
        Strength.SUPPORTED,
        "host memory ran out and the process was killed; the GPU's memory was not the reason",
        word("an out-of-memory kill is reported", s.call or "kernel or cluster"),
        check="compare resident memory of the process tree with the cgroup's or the job's limit",
        trial="halve the number of DataLoader workers, and see whether resident memory follows",
        missing=("resident memory and the limit",),
    )


def _recorded_kill(s: Situation) -> Finding:
    """SIGKILL, with what the cgroup counted while the run lasted."""
    host = s.host
    figures = (
        *figure("resident memory of the workload", host.rss),
        *figure("in its cgroup", host.used),
        *figure("the cgroup's limit", host.limit),
        *figure("available on the host", host.available),
    )
    if host.kills:
        return Finding(
            Verdict.HOST_MEMORY,
            Strength.SUPPORTED,
            f"host memory ran out and the kernel killed the process ({_kills(host.kills)} in its cgroup); "
            "the GPU's memory was not the reason",
            (*word(f"oom_kill of the cgroup rose by {host.kills} during the run", "memory.events"), *figures),
            check="resident memory of the process tree beside the cgroup's or the job's limit",
            trial="halve the number of DataLoader workers, and see whether resident memory follows",
        )
    told = host.kills is not None
    return Finding(
        Verdict.UNKNOWN,
        Strength.UNDECIDED,
        "the process was killed (SIGKILL), "
        + ("and its cgroup counted no kill for memory" if told else "and nothing tells by whom"),
        figures,
        check="dmesg and the cluster's own log, for its pid: a time limit, a user, or the kernel",
        missing=("who sent the signal",) if told else ("the cgroup's count of kills", "who sent the signal"),
    )


def _kills(count: int) -> str:
    return f"{count} kill{'s' if count != 1 else ''}"


def host_allocation(s: Situation) -> Finding:
    """The process was refused host memory."""
    return Finding(
        Verdict.HOST_MEMORY,
        Strength.SUPPORTED,
        "an allocation of host memory failed; the GPU's memory was not the reason",
        (*word("host allocation failed", "message"), *figure("it asked for", s.requested)),
        check="compare the process's resident memory with its limit (ulimit -v, cgroup) at this line",
        trial="run the failing line with half its input",
        missing=("available host memory and the limit",),
    )


def shared_memory(s: Situation) -> Finding:
    """A worker could not write to /dev/shm."""
    return Finding(
        Verdict.SHARED_MEMORY,
        Strength.SUPPORTED,
        "a DataLoader worker found no room in shared memory (/dev/shm); the GPU's memory was not the reason",
        word("bus error in a DataLoader worker", "message"),
        check="df -h /dev/shm inside the container, while it runs",
        trial="run once with num_workers=0: if it passes, raise the container's shared memory (--shm-size)",
        missing=("size and use of /dev/shm",),
    )


def pressure(s: Situation) -> Finding:
    """Driver allocations failed and the retry went through."""
    count = s.pressure_count or 0
    return Finding(
        Verdict.PRESSURE,
        Strength.SUPPORTED,
        f"{count} driver allocation{'s' if count != 1 else ''} failed and no error followed in this text: "
        "PyTorch gave its cache back and asked again; that costs time and is no failure",
        (
            Evidence(f"{count} warning line{'s' if count != 1 else ''}", "log"),
            *figure("largest request", s.requested),
            *figure("least free", s.free),
        ),
        check="watch num_alloc_retries: where it rises every step, the device is full all the time",
    )


RULES: dict[Kind, Callable[[Situation], Finding]] = {
    Kind.OUTSIDE: outside,
    Kind.FOREIGN: foreign,
    Kind.REFUSED: refused,
    Kind.NVML_ASSERT: assertion,
    Kind.IMPOSSIBLE: impossible,
    Kind.HOST_KILL: host_kill,
    Kind.HOST_ALLOCATION: host_allocation,
    Kind.SHARED_MEMORY: shared_memory,
    Kind.PRESSURE: pressure,
    Kind.EXCEPTION: other_end,
    Kind.SIGNAL: other_end,
    Kind.EXIT: other_end,
    Kind.GONE: other_end,
    Kind.SILENCE: other_end,
}
"""Kinds that one rule decides alone."""

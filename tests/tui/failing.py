"""Runs that ran out of memory, made by hand: the pictures of the failure screen's tests."""

import msgspec
from tui import scripted

from gpumem_tui.analysis.failurestate import FailureState, Outcome, Part
from gpumem_tui.analysis.findings.finding import Evidence, Finding, Strength, Verdict
from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.analysis.state import Alert, Event, Severity
from gpumem_tui.records.failure import (
    DriverReading,
    FailureRecord,
    Holder,
    HostMemory,
    OpenPhase,
    Parts,
    Pool,
    Settings,
    Tensor,
)
from gpumem_tui.units import GIB, MIB

AT = scripted.START + 58 * scripted.SECOND
HEADLINE = (
    "rank 0 asked GPU 0 for 2.00 GiB in forward of step 118; 0.42 GiB were free, "
    "and the largest hole was 610 MiB of 3.10 GiB idle"
)

FRAGMENTED = Finding(
    Verdict.FRAGMENTATION,
    Strength.SUPPORTED,
    "3.10 GiB lie idle in 14 segments, and no hole is larger than 610 MiB",
    evidence=(
        Evidence("asked for 2.00 GiB", "record", 2 * GIB, 2 * GIB),
        Evidence("largest hole 610 MiB", "pools", 610 * MIB, 610 * MIB),
    ),
    check="run the same script with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; it should pass",
    trial="set expandable_segments:True and change nothing else",
)
UNKNOWN = Finding(
    Verdict.UNKNOWN,
    Strength.UNDECIDED,
    "whether the notebook came before the run is not known",
    missing=("a reading of the driver before the run",),
)


def pool(name, total, allocated, largest, releasable=0, segments=7, stream=0):
    idle = total - allocated
    return Pool(name, stream, segments, total, allocated, idle, largest, releasable, idle - releasable)


def record(**changes) -> FailureRecord:
    base = FailureRecord(
        t_ns=AT,
        kind="out of memory",
        pid=4700,
        rank=0,
        ordinal=0,
        requested_bytes=2 * GIB,
        allowed_total_bytes=23 * GIB,
        free_bytes=430 * MIB,
        phases=[OpenPhase("train", "", None), OpenPhase("forward", "Bert", 118)],
        step=118,
        counters={
            "allocated_bytes.all.current": 8 * GIB + 500 * MIB,
            "reserved_bytes.all.current": 11 * GIB + 614 * MIB,
        },
        stack=[
            "/home/ada/train.py:88 main",
            "/home/ada/train.py:41 step",
            "/home/ada/model.py:203 forward",
        ],
        pools=[
            pool("large", 11 * GIB, 8 * GIB, 610 * MIB, 400 * MIB),
            pool("small", 614 * MIB, 500 * MIB, 2 * MIB, 0, 300),
        ],
        driver=DriverReading(
            AT,
            2_000_000,
            24 * GIB,
            430 * MIB,
            processes=[
                Holder(4700, 12 * GIB, "C", "python"),
                Holder(9000, 6 * GIB, "C", "jupyter-lab"),
                Holder(77, None, "G"),
            ],
        ),
        parts=Parts(
            {
                "parameters": GIB,
                "gradients": GIB,
                "optimizer state": 2 * GIB,
                "other": 4 * GIB,
            },
            {"float32": 7 * GIB, "bfloat16": GIB},
            [
                Tensor(512 * MIB, "other", [1000, 512, 256], "float32", None),
                Tensor(90 * MIB, "parameters", [30522, 768], "float32", "bert.embeddings.word.weight"),
            ],
            412,
            True,
            3_000_000,
        ),
        settings=Settings("native", "", False, None),
        host=HostMemory(3 * GIB, 128 * MIB, 60 * GIB),
        took_ns={"essentials": 900_000, "pools": 4_000_000},
        missing={"history": "not asked for; run --history records it"},
    )
    return msgspec.structs.replace(base, **changes)


def failure(**changes) -> FailureState:
    base = FailureState(
        t_ns=AT,
        kind="out of memory",
        headline=HEADLINE,
        pid=4700,
        rank=0,
        part=Part.FIRST,
        outcome=Outcome.ENDED,
        device=0,
        ordinal=0,
        requested_bytes=2 * GIB,
        phase="train > forward Bert",
        step=118,
        record=record(),
        ledger=scripted.device(0, 58, foreign=scripted.FOREIGN).ledger,
        findings=(FRAGMENTED, UNKNOWN),
    )
    return msgspec.structs.replace(base, **changes)


def victim(rank: int, seconds: int = 59) -> FailureState:
    """A rank that was taken along, without a record of its own."""
    return FailureState(
        t_ns=scripted.START + seconds * scripted.SECOND,
        kind="signal",
        headline=f"rank {rank} was ended by SIGTERM, 1.0 s after rank 0 had failed",
        pid=4700 + rank,
        rank=rank,
        part=Part.VICTIM,
        outcome=Outcome.ENDED,
        phase="train > backward",
        step=118,
        record_reason="a signal leaves none",
    )


def failed(count: int = 2, *failures: FailureState, **changes):
    """A run of ``count`` ranks that ended at the out-of-memory error of rank 0."""
    state = scripted.ended(60, count, code=1)
    made = failures or (failure(), *(victim(rank) for rank in range(1, count)))
    ranks = tuple(msgspec.structs.replace(rank, life=Life.FAILED) for rank in state.ranks)
    told = Event(AT, Severity.FAILURE, "out of memory: asked for 2.00 GiB", rank=0, device=0)
    return msgspec.structs.replace(state, ranks=ranks, failures=made, events=(*state.events, told), **changes)


def threatened(count: int = 1):
    """A run that goes on, with a trend that will end it."""
    text = "rank 0 grows by 12.0 MiB a step at the end of forward: 84 steps left"
    finding = Finding(Verdict.CAPACITY, Strength.POSSIBLE, text)
    alert = Alert(AT, Severity.WARNING, text, finding, rank=0, device=0)
    return msgspec.structs.replace(scripted.picture(60, count), alerts=(alert,))

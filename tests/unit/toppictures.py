"""Pictures for tests of ``top``: cards and processes with the figures that a test names."""

from msgspec.structs import replace

from gpumem_tui.analysis.ledger import DriverProcess, DriverReading, ledger, missing, observed
from gpumem_tui.analysis.top import RunShare, TopDevice, TopProcess, TopState
from gpumem_tui.records import Reason

GIB = 1 << 30


def reading(total=24 * GIB, free=10 * GIB, reserved=0, reason=None, held=(), processes_reason=None):
    """What the driver says of a card; ``held`` are (pid, bytes) of its process list."""
    known = free is not None
    return DriverReading(
        t_ns=1,
        total_bytes=total if known else None,
        free_bytes=free,
        driver_reserved_bytes=reserved if known else None,
        reason=reason,
        processes_t_ns=None if processes_reason else 1,
        processes=tuple(DriverProcess(pid, size) for pid, size in held),
        processes_reason=processes_reason,
    )


def card(index=0, *, free=10 * GIB, reserved=0, reason=None, held=(), processes_reason=None, **more):
    made = TopDevice(
        index=index,
        parent=None,
        uuid=f"aaaa{index:04}-bbbb",
        pci=None,
        name="A card",
        ledger=ledger(
            reading(
                free=free, reserved=reserved, reason=reason, held=held, processes_reason=processes_reason
            ),
            [],
        ),
        utilization=None if reason else 40,
        temperature=50,
        power_mw=100_000,
        clock_mhz=1000,
        memory_clock_mhz=5000,
        load_reason=reason,
        processes_reason=processes_reason,
        reason=None,
    )
    return replace(made, **more)


def process(device=0, pid=7, *, used=GIB, rise=0, run=None, reason=Reason.NOT_SUPPORTED, **more):
    share = None if run is None else RunShare(run, 0, "forward", 3, GIB, 2 * GIB, "same pid")
    made = TopProcess(
        device=device,
        pid=pid,
        name="python",
        user="bob",
        command="python train.py",
        kind="C",
        used=observed(used, "NVML usedGpuMemory", 1) if used is not None else missing(reason),
        growth_bytes=None,
        rise_bytes=rise,
        since_ns=1,
        started_wall_ns=1_700_000_000_000_000_000,
        started_ticks=5,
        rss_bytes=1 << 20,
        visible=True,
        zombie=False,
        mine=False,
        container=None,
        job=None,
        namespace_pid=None,
        run=share,
    )
    return replace(made, **more)


def picture(*devices, processes=(), **more):
    made = TopState(
        now_ns=0,
        wall_ns=1_800_000_000_000_000_000,
        host="here",
        viewer="alice",
        driver_version="580.1",
        driver_reason=None,
        driver_word=None,
        simulated=None,
        devices=devices,
        processes=tuple(processes),
    )
    return replace(made, **more)

"""The highest a process has been, whatever it or the monitor has reset meanwhile."""

import pytest

from gpumem_tui import records

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

SPIKES = """
    import time, torch
    MIB = 1 << 20
    keep = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    spike = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda"); del spike   # between phases, unsampled
    {after}
    torch.empty(16 * MIB, dtype=torch.uint8, device="cuda")
    time.sleep(0.3)
"""


@pytest.mark.parametrize(
    "after",
    [
        "pass",
        "torch.cuda.reset_peak_memory_stats()",
        "torch.nn.Linear(8, 8).cuda()(torch.randn(2, 8, device='cuda')).sum().backward()",
    ],
    ids=["left alone", "reset by the user", "reset by a phase"],
)
def test_a_spike_that_no_sample_saw_is_in_the_peak_of_the_process(simcard, agent_run, after):
    simcard.python(SPIKES.format(after=after), env=agent_run.environment())

    last = agent_run.records(records.Peaks)[-1]

    assert last.peak_allocated_bytes == (64 + 512) << 20
    assert last.peak_reserved_bytes >= last.peak_allocated_bytes

"""A map of the blocks of a run that goes on, asked for by whoever watches."""

import pickle

import pytest
from product import wait_until

from gpumem_tui import records
from gpumem_tui.agent import wire
from gpumem_tui.journal.failurefile import read_failure

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

HOLD = """
    import sys, torch
    {before}
    keep = [torch.empty(3 << 20, dtype=torch.uint8, device="cuda") for _ in range(10)]
    del keep[::2]
    {more}
    print(torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), flush=True)
    sys.stdin.readline()
"""


def held(simcard, agent_run, before="", more=""):
    """A program that holds memory until its stdin ends; its allocated and reserved bytes."""
    process = simcard.start_python(HOLD.format(before=before, more=more), env=agent_run.environment())
    return process, [int(word) for word in process.stdout.readline().split()]


def ask(agent_run, process):
    """Ask for a map; its lines."""
    wait_until(lambda: agent_run.records(records.Device), what="the start")
    before = len(agent_run.records(records.Map))
    (agent_run.path / wire.MAP_REQUEST).touch()
    wait_until(lambda: len(agent_run.records(records.Map)) > before, what="a map")
    return agent_run.records(records.Map)


def test_pools_and_every_block_are_written_and_the_program_goes_on(simcard, agent_run):
    process, (allocated, reserved) = held(simcard, agent_run)

    (line,) = ask(agent_run, process)
    record = read_failure(agent_run.path / line.path)
    snapshot = pickle.loads((agent_run.path / record.history).read_bytes())
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    process.communicate("\n")

    assert (record.kind, record.ordinal) == ("map", 0)
    assert sum(pool.total_bytes for pool in record.pools) == reserved
    assert sum(pool.allocated_bytes for pool in record.pools) == allocated
    assert sum(b["size"] for b in blocks if b["state"] == "active_allocated") == allocated
    assert 0 < line.took_ns < 1_000_000_000
    assert process.returncode == 0
    assert agent_run.records(records.Failure) == []


def test_each_request_is_answered_once(simcard, agent_run):
    process, _ = held(simcard, agent_run)
    first = ask(agent_run, process)

    second = ask(agent_run, process)
    process.communicate("\n")

    assert (len(first), len(second)) == (1, 2)
    assert len(agent_run.records(records.Map)) == 2


def test_a_request_from_before_the_program_began_is_not_its(simcard, agent_run):
    (agent_run.path / wire.MAP_REQUEST).touch()

    process, _ = held(simcard, agent_run)
    process.communicate("\n")

    assert agent_run.records(records.Map) == []


def test_too_many_blocks_are_refused_with_their_number(simcard, agent_run):
    more = "tiny = [torch.empty(1, device='cuda') for _ in range(50_100)]"
    process, _ = held(simcard, agent_run, more=more)

    (line,) = ask(agent_run, process)
    process.communicate("\n")

    assert line.path is None
    assert line.reason.endswith("a map of a run that goes on is taken of 50000 at most")


def test_where_only_the_allocating_thread_may_read_it_is_refused(simcard, agent_run):
    before = "torch.cuda.memory.CUDAPluggableAllocator('libc.so.6', 'malloc', 'free')"
    process, _ = held(simcard, agent_run, more=before)

    (line,) = ask(agent_run, process)
    process.communicate("\n")

    assert line.reason == "the counters of this process cannot be read from another thread"

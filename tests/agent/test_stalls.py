"""When a process stands still is told once, with where its main thread is."""

import threading

import pytest

from gpumem_tui import records
from gpumem_tui.agent.stalls import STALL_NS, Stalls, stall_line


def test_a_process_that_moves_does_not_stall():
    stalls = Stalls()

    assert [stalls.look(True, now) for now in range(0, 5 * STALL_NS, STALL_NS)] == [None] * 5


def test_a_stall_is_told_once_with_when_it_began():
    stalls = Stalls()
    stalls.look(True, 1000)

    assert [stalls.look(False, 1000 + n * STALL_NS // 2) for n in range(6)] == [
        None,
        None,
        1000,
        None,
        None,
        None,
    ]


def test_a_process_that_never_began_a_span_does_not_stall():
    assert Stalls().look(False, 100 * STALL_NS) is None


def test_the_next_stall_is_told_again():
    stalls = Stalls()
    for moved, now in ((True, 0), (False, STALL_NS), (True, 2 * STALL_NS)):
        stalls.look(moved, now)

    assert stalls.look(False, 3 * STALL_NS) == 2 * STALL_NS


def test_the_line_says_where_the_main_thread_is_whoever_writes_it():
    lines = []
    writer = threading.Thread(target=lambda: lines.append(stall_line(7, "backward", 3)))
    writer.start()
    writer.join()
    (stall,) = map(records.decode_line, lines)

    assert (stall.since_ns, stall.phase, stall.step) == (7, "backward", 3)
    assert any("test_the_line_says_where" in frame for frame in stall.stack)
    assert "threading.py" in stall.stack[-1]


@pytest.mark.slow
@pytest.mark.simcard
def test_a_rank_that_waits_for_a_peer_says_where(simcard, agent_run):
    simcard.python(
        """
        import sys, time, torch, torch.nn as nn
        model = nn.Linear(8, 8).cuda()
        sys.modules["_gpumem_tui_agent.stalls"].STALL_NS = 300_000_000
        class Waiting(nn.Module):
            def __init__(self): super().__init__(); self.inner = model
            def forward(self, x): wait_for_the_peer(); return self.inner(x)
        def wait_for_the_peer(): time.sleep(1)
        Waiting()(torch.randn(2, 8, device="cuda"))
        """,
        env=agent_run.environment(),
    )
    (begin,) = [begin for begin in agent_run.records(records.Begin) if begin.phase == "forward"]
    (stall,) = agent_run.records(records.Stall)

    assert stall.phase == "forward"
    assert abs(stall.since_ns - begin.t_ns) < 200_000_000
    assert stall.stack[-1].endswith(" wait_for_the_peer")

"""Who the kernel killed for want of host memory, and how processes ended that are not our children."""

import signal
import subprocess
import sys

import pytest

from gpumem_tui.agent import wire
from gpumem_tui.agent.autopsy.host import Cgroup
from gpumem_tui.recorder.kills import Kills
from gpumem_tui.sources.exits import Exits

ROWS = [(10, 1, 1, 0), (11, 2, 10, 0), (12, 3, 10, 0)]


@pytest.fixture
def node(tmp_path):
    """Counters of a cgroup and of the node, to be set."""

    class Node:
        cgroup = Cgroup(2, tmp_path, tmp_path)
        kills = Kills(tmp_path / "vmstat")

        def count(self, cgroup, node):
            (tmp_path / "memory.events").write_text(f"oom 9\noom_kill {cgroup}\noom_group_kill 7\n")
            (tmp_path / "vmstat").write_text(f"nr_free_pages 5\noom_kill {node}\n")

        def look(self, rows=ROWS):
            return [(k.count, k.scope, k.gone) for k in self.kills.look(self.cgroup, rows)]

    made = Node()
    made.count(3, 40)
    made.look()
    return made


def test_kills_of_before_the_run_are_not_told(node):
    assert [node.look(), node.look()] == [[], []]


def test_who_is_gone_soon_after_a_kill_is_named_with_it(node):
    node.count(4, 41)
    looks = [node.look(), node.look(ROWS[:2]), node.look(ROWS[:2])]

    assert looks == [[], [(1, "cgroup", [(12, 3)])], []]


def test_a_kill_is_told_even_if_nobody_of_the_workload_is_gone(node):
    node.count(5, 42)
    node.look()

    assert node.look() == [(2, "cgroup", [])]


def test_a_kill_elsewhere_on_the_node_counts_only_where_someone_of_the_workload_is_gone(node):
    node.count(3, 41)
    elsewhere = [node.look(), node.look()]
    node.count(3, 42)
    ours = [node.look(ROWS[:1]), node.look(ROWS[:1])]

    assert elsewhere == [[], []]
    assert ours == [[], [(1, "node", [(11, 2), (12, 3)])]]


def test_counters_that_cannot_be_read_tell_nothing(tmp_path):
    kills = Kills(tmp_path / "vmstat")

    assert [kills.look(None, ROWS) for _ in range(3)] == [[], [], []]


def ended(how):
    """How a grandchild's end is told: None where this kernel does not tell."""
    code = f"import subprocess as s; p = s.Popen({how!r}); print(p.pid, flush=True); p.wait()"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    exits = Exits()
    with parent:
        pid = int(parent.stdout.readline())
        who = (pid, wire.started_ticks(pid))
        exits.watch([who, (pid, 1)])
        parent.wait()
        found = exits.take()
    exits.close()
    if not found:
        pytest.skip("this kernel does not tell how others' children end")
    return [((gone.pid, gone.started_ticks) == who, gone.code, gone.signal) for gone in found]


def test_the_signal_that_killed_somebody_else_s_child_is_told():
    assert ended(["sh", "-c", "sleep 0.3; kill -9 $$"]) == [(True, None, signal.SIGKILL)]


def test_the_code_with_which_somebody_else_s_child_ended_is_told():
    assert ended(["sh", "-c", "sleep 0.3; exit 7"]) == [(True, 7, None)]


def test_a_child_that_has_ended_well_is_not_worth_a_line():
    exits = Exits()
    with subprocess.Popen(["sleep", "0.2"]) as child:
        exits.watch([(child.pid, wire.started_ticks(child.pid))])

    assert exits.take() == []
    exits.close()

"""The process tree of a workload, with real processes."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from gpumem_tui.agent.wire import started_ticks
from gpumem_tui.sources.tree import ProcessTree

CHILD = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
HOLDER = (
    "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', "
    "'import time; held = bytearray(64 << 20); print(flush=True); time.sleep(60)'], stdout=subprocess.PIPE); "
    "p.stdout.readline(); print(p.pid, flush=True); p.wait()"
)
ORPHAN = (
    "import os, subprocess, sys; p = subprocess.Popen(['sleep', '60'], start_new_session=True); "
    "print(p.pid, flush=True); sys.stdin.read()"
)


@pytest.fixture
def start():
    with contextlib.ExitStack() as stack:
        pids = []

        def begin(code):
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", code],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
            )
            child = int(process.stdout.readline())
            pids.extend((process.pid, child))
            return process, child

        yield begin
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def wait_until_gone(pid):
    until = time.monotonic() + 10
    while started_ticks(pid) is not None and time.monotonic() < until:
        time.sleep(0.01)


def test_a_grandchild_belongs_to_the_tree_with_its_resident_bytes(start):
    root, child = start(HOLDER)
    tree = ProcessTree()
    tree.add_root(root.pid, started_ticks(root.pid))
    rows = {row[0]: row for row in tree.scan()}

    assert rows.keys() == {root.pid, child}
    assert rows[child][1:3] == (started_ticks(child), root.pid)
    # Linux counts pages of a process in parts, so that of one that holds little none may be told.
    assert 64 << 20 <= rows[child][3] < 128 << 20


def test_a_process_seen_before_its_root_was_known_is_found_all_the_same(start):
    root, child = start(CHILD)
    tree = ProcessTree()
    assert tree.scan() == []
    tree.add_root(root.pid, None)

    assert {row[0] for row in tree.scan()} == {root.pid, child}


def test_a_daemon_stays_known_when_its_parent_has_ended(start):
    root, child = start(ORPHAN)
    tree = ProcessTree()
    tree.add_root(root.pid, None)
    tree.scan()
    root.stdin.close()
    root.wait()

    assert [row[0] for row in tree.scan()] == [child]
    os.kill(child, signal.SIGKILL)
    wait_until_gone(child)
    assert tree.scan() == []
    assert tree.is_empty


def test_a_pid_that_is_used_again_is_no_root(start):
    root, _ = start(CHILD)
    tree = ProcessTree()
    tree.add_root(root.pid, started_ticks(root.pid) - 1)

    assert tree.scan() == []


def test_what_is_excluded_is_not_in_the_tree_nor_what_it_started(start):
    root, child = start(CHILD)
    tree = ProcessTree(exclude=[root.pid])
    tree.add_root(os.getpid(), None)

    assert not {root.pid, child} & {row[0] for row in tree.scan()}

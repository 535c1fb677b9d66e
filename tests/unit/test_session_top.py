"""The driver's view over a driver of the test's own: what is joined from its records and /proc."""

import os
import signal
import subprocess
import sys
import time

import pytest

from gpumem_tui import records
from gpumem_tui.records import Reason
from gpumem_tui.session import liveruns
from gpumem_tui.session.top import Top

GIB = 1 << 30
SECOND = 1_000_000_000


class FakeDriver:
    """Hands out what the test puts in."""

    def __init__(self, *cards):
        self.waiting = [
            records.Gpu(0, index, f"aaaa{index}", total_bytes=24 * GIB, minor=index) for index in cards
        ]

    def put(self, *new):
        self.waiting += new

    def poll(self, wait_s):
        taken, self.waiting = self.waiting, []
        return taken

    def close(self):
        pass


def memory(index=0, free=10 * GIB, ago_s=0.0):
    t_ns = time.monotonic_ns() - round(ago_s * SECOND)
    return records.Memory(t_ns, 0, index, 24 * GIB, free, 24 * GIB - free, 0, 2)


def listed(index=0, rows=(), ago_s=0.0, reason=None):
    t_ns = time.monotonic_ns() - round(ago_s * SECOND)
    return records.Processes(t_ns, 0, index, [(pid, size, "C", None) for pid, size in rows], reason)


@pytest.fixture
def top(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUMEM_TUI_HOME", str(tmp_path))

    def make(*cards):
        driver = FakeDriver(*(cards or (0,)))
        return Top(driver), driver

    return make


@pytest.fixture
def child():
    started = []

    def start(code="import time; print('up', flush=True); time.sleep(60)", **options):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, **options)
        started.append(process)
        process.stdout.readline()
        return process

    yield start
    for each in started:
        each.kill()
        each.wait()
        each.stdout.close()


def test_a_process_is_joined_with_what_proc_knows_of_it(top, child):
    view, driver = top()
    process = child(env={**os.environ, "SLURM_JOB_ID": "4711"})
    driver.put(memory(), listed(rows=[(process.pid, GIB)]))
    (row,) = view.read().processes

    assert (row.pid, row.used.bytes, row.job, row.visible) == (process.pid, GIB, "4711", True)
    assert row.mine
    assert row.rss_bytes > 0
    assert "time.sleep(60)" in row.command
    assert abs(row.started_wall_ns / 1e9 - time.time()) < 60


def test_a_process_that_has_ended_and_is_still_listed_is_a_zombie(top, child):
    view, driver = top()
    process = child("print('up')")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, and nobody has taken note
    driver.put(memory(), listed(rows=[(process.pid, GIB)]))
    (row,) = view.read().processes

    assert (row.zombie, row.visible, row.used.bytes) == (True, True, GIB)


def test_a_pid_that_nobody_here_has_is_kept(top):
    view, driver = top()
    driver.put(memory(), listed(rows=[(99_999_999, GIB)]))
    (row,) = view.read().processes

    assert (row.visible, row.user, row.command, row.rss_bytes, row.mine) == (False, "", "", None, False)


def test_growth_is_over_the_last_minute_and_not_known_before(top):
    view, driver = top()
    driver.put(memory(), listed(rows=[(7, GIB)], ago_s=70), listed(rows=[(7, 2 * GIB)], ago_s=50))
    driver.put(listed(rows=[(7, 5 * GIB), (8, GIB)]))
    rows = {row.pid: row for row in view.read().processes}

    assert rows[7].growth_bytes == 3 * GIB
    assert rows[7].rise_bytes == 3 * GIB
    assert rows[8].growth_bytes is None
    assert rows[8].rise_bytes == GIB  # it came meanwhile


def test_a_process_of_the_first_list_has_not_risen(top):
    view, driver = top()
    driver.put(memory(), listed(rows=[(7, 5 * GIB)]))

    assert view.read().processes[0].rise_bytes == 0


def in_part(rows, missing, ago_s=0.0):
    """A process list of which some kinds were refused; rows are (pid, kind)."""
    t_ns = time.monotonic_ns() - round(ago_s * SECOND)
    told = "no permission: refused" if missing else None
    return records.Processes(t_ns, 0, 0, [(pid, GIB, kind, None) for pid, kind in rows], told, missing)


def test_rows_of_a_list_that_was_read_in_part_are_kept_and_its_reason_is_said(top):
    view, driver = top()
    driver.put(memory(), in_part([(7, "C")], "G"))
    state = view.read()

    assert [row.pid for row in state.processes] == [7]
    assert state.devices[0].processes_reason is Reason.NO_PERMISSION
    assert state.devices[0].processes_missing == "G"
    assert state.devices[0].ledger.unattributed.bytes is None


def test_an_empty_list_that_was_read_in_part_is_not_a_missing_one(top):
    view, driver = top()
    driver.put(memory(), in_part([], "G"))

    assert view.read().devices[0].processes_missing == "G"


def test_who_is_of_a_kind_that_was_refused_for_a_while_has_neither_gone_nor_come(top):
    view, driver = top()
    both = [(7, "C"), (8, "G")]
    driver.put(memory(), in_part(both, "", ago_s=70), in_part([(7, "C")], "G", ago_s=30), in_part(both, ""))
    rows = {row.pid: row for row in view.read().processes}

    assert rows[8].rise_bytes == 0
    assert rows[8].growth_bytes == 0


def test_who_is_of_a_kind_that_is_read_for_the_first_time_has_not_come(top):
    view, driver = top()
    driver.put(memory(), in_part([(7, "C")], "G", ago_s=2), in_part([(7, "C"), (8, "G")], ""))

    assert [row.rise_bytes for row in view.read().processes] == [0, 0]


def test_lists_and_figures_that_are_old_do_not_stand_for_now(top):
    view, driver = top()
    driver.put(memory(ago_s=20), listed(rows=[(7, GIB)], ago_s=20))
    state = view.read()

    assert state.devices[0].ledger.total.reason is Reason.STALE
    assert state.devices[0].processes_reason is Reason.STALE
    assert state.processes == ()


def test_a_process_of_an_instance_is_no_second_row_on_its_card(top):
    view, driver = top()
    driver.put(records.Gpu(0, 100, "MIG-1", total_bytes=12 * GIB, parent=0))
    driver.put(memory(), memory(100), listed(rows=[(7, GIB), (8, GIB)]), listed(100, rows=[(7, GIB)]))
    state = view.read()

    assert [(row.device, row.pid) for row in state.processes] == [(0, 8), (100, 7)]
    assert [(d.label, d.split) for d in state.devices] == [("0", True), ("0:0", False)]


def test_memory_of_nobody_has_its_card_s_file_looked_for(top, monkeypatch):
    from gpumem_tui.session import top as module
    from gpumem_tui.sources.devicefiles import OpenFiles

    monkeypatch.setattr(module, "read_open_files", lambda: OpenFiles({1: (os.getpid(),)}, 3))
    view, driver = top(0, 1)
    driver.put(memory(0, free=24 * GIB), memory(1), listed(0), listed(1, rows=[(7, GIB)]))
    state = view.read()

    assert state.devices[0].file_holders is None
    assert [holder.pid for holder in state.devices[1].file_holders] == [os.getpid()]
    assert state.devices[1].unreadable == 3


def test_a_driver_that_cannot_be_opened_is_the_whole_picture(top):
    view, driver = top(*[])
    driver.waiting = [records.Gpu(0, -1, reason="driver and library versions differ: mismatch")]
    state = view.read()

    assert (state.driver_reason, state.driver_word) == (Reason.DRIVER_MISMATCH, "mismatch")
    assert (state.devices, state.complete) == ((), True)


def test_a_driver_that_has_not_answered_yet_is_no_whole_picture(top):
    view, driver = top()
    driver.waiting = [records.Gpu(0, -1, reason="stale: a driver call has not returned")]
    silent = view.read()
    driver.waiting = [records.Gpu(0, 0, uuid="a")]
    driver.put(memory(), listed())

    assert (silent.driver_reason, silent.complete) == (Reason.STALE, False)
    assert view.read().complete


def test_a_picture_is_whole_once_every_card_was_asked(top):
    view, driver = top(0, 1)
    driver.put(memory(0), listed(0))
    half = view.read().complete
    driver.put(memory(1), listed(1, reason="no permission"))
    whole = view.read().complete

    assert (half, whole) == (False, True)


def test_a_signal_goes_to_that_very_process_only(top, child):
    view, _ = top()
    process = child()
    from gpumem_tui.sources.processes import read_stat

    ticks = read_stat(process.pid).started_ticks
    refused = view.end(process.pid, ticks + 1, signal.SIGTERM)
    alive = process.poll() is None
    sent = view.end(process.pid, ticks, signal.SIGTERM)

    assert refused == f"nothing was sent: process {process.pid} has ended"
    assert alive
    assert sent == f"SIGTERM was sent to process {process.pid}"
    assert process.wait(10) == -signal.SIGTERM


def test_recordings_that_cannot_be_listed_or_read_do_not_disturb_the_view(top, tmp_path):
    (tmp_path / "runs" / "broken").mkdir(parents=True)
    (tmp_path / "runs" / "broken" / "run.json").write_text("{")
    view, driver = top()
    driver.put(memory(), listed(rows=[(7, GIB)]))

    assert view.read().processes[0].run is None
    assert liveruns.LiveRuns().alarms == ()

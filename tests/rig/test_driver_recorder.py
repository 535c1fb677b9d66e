"""The recorder as a process, beside a keeper, on the simulated card."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpumem_tui.agent import wire
from gpumem_tui.journal import rundir
from gpumem_tui.journal.runfile import RunFile

pytestmark = pytest.mark.slow

LONG_S = 20

KEEPER = """
import subprocess, sys
from pathlib import Path
from gpumem_tui.keeper.log import KeeperLog
from gpumem_tui.keeper.ending import Ending
log = KeeperLog(Path(sys.argv[1]))
workload = subprocess.Popen(["sleep", "1000"])
log.started(workload.pid)
print(workload.pid, flush=True)
sys.stdin.readline()
workload.kill()
log.ended(Ending(code=0, signal=None))
"""


class Recording:
    """A run directory, a keeper with a workload, and the recorders that are started on it."""

    def __init__(self, card, folder):
        self.card = card
        self.run = rundir.create("run", {rundir.HOME_VARIABLE: str(folder / "home")})
        self.keeper = self.keep(self.run)
        self.recorders = []
        self.workload = int(self.keeper.stdout.readline())
        self.run.write_facts(
            RunFile(
                run="run", command=["sleep"], cwd="/", host="here", user="me", boot=None, wall_ns=0, t_ns=0,
                version="0", interactive=False, keeper_pid=self.keeper.pid,
                keeper_ticks=wire.started_ticks(self.keeper.pid),
            )
        )  # fmt: skip

    @staticmethod
    def keep(run):
        """A keeper with a workload, which says its pid and ends when the keeper's input does."""
        return subprocess.Popen(
            [sys.executable, "-c", KEEPER, run.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def record(self, *options, **popen):
        process = subprocess.Popen(
            [sys.executable, "-m", "gpumem_tui.recorder", self.run.path, *options],
            env=self.card.machine.monitor_environment(),
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            **popen,
        )
        self.recorders.append(process)
        return process

    def lines(self, kind=None):
        """The driver's records as dicts; a line that is still being written is none yet."""
        raw = [
            json.loads(line)
            for path in sorted(self.run.journal.glob("driver.*"))
            for line in path.read_text().splitlines(keepends=True)[1:]
            if line.endswith("]\n")
        ]
        return [
            {"kind": name, **dict(zip(wire.FIELDS[name], values, strict=False))}
            for name, *values in raw
            if kind in (None, name)
        ]

    def wait_for(self, kind, count=1, fits=lambda record: True):
        until = time.monotonic() + LONG_S
        while time.monotonic() < until:
            found = [record for record in self.lines(kind) if fits(record)]
            if len(found) >= count:
                return found
            time.sleep(0.05)
        raise AssertionError(f"no {count} × {kind}; there are {self.lines()[-5:]}")

    def end(self):
        for process in [*self.recorders, self.keeper]:
            process.kill()
            process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.workload, signal.SIGKILL)
        said = [recorder.stderr.read() for recorder in self.recorders]
        for stream in [self.keeper.stdin, self.keeper.stdout, *(r.stderr for r in self.recorders)]:
            stream.close()
        assert "Traceback" not in "".join(said), said


@pytest.fixture
def recording(simcard, tmp_path):
    made = Recording(simcard, tmp_path)
    yield made
    made.end()


def test_it_writes_driver_host_tree_and_who_is_who_and_ends_after_the_exit(recording):
    holder = recording.card.hold("1GiB", name="neighbour")
    recorder = recording.record()
    recording.wait_for("memory", 3, lambda record: record["reason"] is None)
    recording.wait_for("process", 1, lambda record: record["pid"] == recording.workload)
    tree = recording.wait_for("tree", 1, lambda record: record["rows"])[-1]
    neighbour = recording.wait_for("process", 1, lambda record: record["pid"] == holder.pid)[0]
    recording.keeper.stdin.close()

    assert recorder.wait(LONG_S) == 0
    assert [row[0] for row in tree["rows"]] == [recording.workload]
    assert neighbour["visible"] and neighbour["command"].startswith("neighbour 0 ")
    assert recording.lines("host")[0]["total_bytes"] > 0
    assert recording.lines()[-1]["reason"] == "the workload has ended"


def test_killed_and_started_again_it_continues_with_a_new_segment(recording):
    first = recording.record()
    recording.wait_for("memory", 2)
    first.kill()
    first.wait()
    before = (recording.run.journal / "driver.0000.jsonl").read_bytes()
    recording.record()
    recording.wait_for("gpu", 3)

    assert (recording.run.journal / "driver.0001.jsonl").exists()
    assert (recording.run.journal / "driver.0000.jsonl").read_bytes() == before


def test_a_second_recorder_steps_back_at_once(recording):
    recording.record()
    recording.wait_for("memory")
    second = recording.record()

    assert second.wait(LONG_S) == 0
    assert len(list(recording.run.journal.glob("driver.*"))) == 1


def test_a_keeper_that_joins_during_the_last_readings_keeps_the_recorder(recording):
    recorder = recording.record()
    recording.wait_for("memory")
    recording.keeper.stdin.close()
    recording.keeper.wait()
    second = Recording.keep(recording.run)
    workload = int(second.stdout.readline())
    tree = recording.wait_for("tree", 1, lambda record: workload in [row[0] for row in record["rows"]])
    alive = recorder.poll() is None
    second.stdin.close()
    second.wait()
    second.stdout.close()

    assert tree and alive
    assert recorder.wait(LONG_S) == 0


def test_sigterm_ends_it_in_order(recording):
    recorder = recording.record()
    recording.wait_for("memory")
    recorder.terminate()

    assert recorder.wait(LONG_S) == 0
    assert recording.lines()[-1]["reason"] == "told to stop"


def test_it_lasts_as_long_as_the_workload_when_the_keeper_was_killed(recording):
    recorder = recording.record()
    recording.wait_for("tree", 1, lambda record: record["rows"])
    recording.keeper.kill()
    recording.keeper.wait()
    count = len(recording.lines("tree"))
    recording.wait_for("tree", count + 4)
    alive = recorder.poll() is None
    os.kill(recording.workload, signal.SIGKILL)

    assert alive
    assert recorder.wait(LONG_S) == 0


def test_it_gives_way_to_the_workload_but_is_not_taken_before_it_for_want_of_host_memory(recording):
    recorder = recording.record()
    recording.wait_for("memory")

    assert os.getpriority(os.PRIO_PROCESS, recorder.pid) == os.getpriority(os.PRIO_PROCESS, 0) + 5
    scores = [Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in (recorder.pid, "self")]
    assert scores[0] == scores[1]


def test_a_driver_call_that_hangs_stops_neither_host_readings_nor_the_end(recording):
    recorder = recording.record()
    recording.wait_for("memory")
    recording.card.fault(nvml_delay_ms=60_000)
    recording.wait_for("memory", 1, lambda record: (record["reason"] or "").startswith("stale"))
    count = len(recording.lines("host"))
    recording.wait_for("host", count + 2)
    recorder.terminate()

    assert recorder.wait(LONG_S) == 0


def test_a_full_disk_does_not_end_it_and_what_waited_is_written_when_there_is_room(recording):
    recorder = recording.record()
    recording.wait_for("memory", 2)
    size = sum(path.stat().st_size for path in recording.run.journal.glob("driver.*"))
    resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    recording.card.fault(nvml_memory_error="NO_PERMISSION")  # something that happens while it is full
    time.sleep(2)
    while_full = [record for record in recording.lines("memory") if record["reason"]]
    recording.card.fault(nvml_memory_error=0)
    resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    assert while_full == []
    assert recording.wait_for("memory", 3, lambda record: record["reason"])
    assert recorder.poll() is None


def test_without_a_driver_it_says_so_and_records_the_host(recording):
    recording.card.fault(nvml_init_error="DRIVER_NOT_LOADED")
    recording.record()
    whole = recording.wait_for("gpu")[0]

    assert (whole["index"], whole["reason"]) == (-1, "no driver: Driver Not Loaded")
    assert recording.wait_for("host")


def test_a_directory_that_is_no_recording_is_refused_in_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "gpumem_tui.recorder", tmp_path], capture_output=True, text=True, check=False
    )

    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
